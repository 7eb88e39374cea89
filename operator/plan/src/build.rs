//! Children of a job, one builder per kind. All fields that the operator owns are set each time: server-side apply takes
//! away what is left out.

mod config_map;
mod disruption_budget;
pub mod labels;
mod plan_pod;
mod pod;
mod service;
mod service_account;
mod stateful_set;
#[cfg(test)]
mod tests;

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use serde_json::Error as JsonError;
use thiserror::Error;

pub use self::plan_pod::{PlanChildren, plan_children, plan_name};
use crate::{
    revision::{Identity, RunSpec},
    secrets::Fingerprints,
};

/// A child could not be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The resolved job is not JSON.
    #[error("the resolved job cannot be written as JSON")]
    ResolvedJob(#[source] JsonError),
}

/// A start of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Epoch: in the pod template, so that each start has pods of its own.
    pub epoch: i64,
    /// Number of workers.
    pub replicas: i32,
    /// Contents of Secrets that a worker which starts now has.
    pub secrets: Fingerprints,
}

/// Everything a running job consists of, in the order in which it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Children {
    /// An identity without permissions.
    pub service_account: ServiceAccount,
    /// The resolved job.
    pub config_map: ConfigMap,
    /// Stable names of the pods.
    pub service: Service,
    /// One worker at a time may be evicted.
    pub disruption_budget: PodDisruptionBudget,
    /// The workers. Applied last: a pod that starts must find everything else in place.
    pub stateful_set: StatefulSet,
}

/// Builds all children.
///
/// # Errors
/// The resolved job cannot be written as JSON.
pub fn children(identity: &Identity, run: &RunSpec, start: &Start) -> Result<Children, BuildError> {
    Ok(Children {
        service_account: service_account::build(identity),
        config_map: config_map::build(identity, run)?,
        service: service::build(identity),
        disruption_budget: disruption_budget::build(identity),
        stateful_set: stateful_set::build(identity, run, start),
    })
}
