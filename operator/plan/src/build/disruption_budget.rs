use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::labels;
use crate::revision::Identity;

/// A node drain takes one worker at a time, and never waits for a worker that does not work anyway.
pub(super) fn build(identity: &Identity) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: labels::metadata(identity, &fencepost_crds::names::child(&identity.name)),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(labels::worker_selector(&identity.name)),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
