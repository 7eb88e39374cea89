use std::collections::BTreeMap;

use fencepost_crds::names;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{BuildError, config_map, labels, pod};
use crate::revision::{Identity, Revision, RunSpec};

/// A plan takes a second; a pod that runs longer than this hangs.
const DEADLINE_SECONDS: i64 = 120;

/// The pod that asks a revision's image to plan its pipeline, and what it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanChildren {
    /// The resolved job.
    pub config_map: ConfigMap,
    /// The pod.
    pub pod: Pod,
}

/// Name of the plan pod of a revision, and of its ConfigMap. A second attempt to create it finds the first.
#[must_use]
pub fn plan_name(job: &str, revision: &Revision) -> String {
    format!("{}-plan-{revision}", names::child(job))
}

/// Builds the plan pod of a revision.
///
/// # Errors
/// The resolved job cannot be written as JSON.
pub fn plan_children(identity: &Identity, run: &RunSpec) -> Result<PlanChildren, BuildError> {
    let name = plan_name(&identity.name, &run.revision);
    let mut config_map = config_map::named(identity, run, &name)?;
    labels::label(&mut config_map.metadata, names::LABEL_ROLE, names::ROLE_PLAN);

    let args = ["plan", "--json"].map(str::to_owned).into_iter();
    let mut container = pod::container(run, args.chain([format!("{}/{}", names::JOB_DIR, names::JOB_FILE)]).collect());
    // Small: planning needs little, and must not wait for room that only the workers need.
    container.resources = Some(ResourceRequirements {
        requests: Some(quantities(&[("cpu", "50m"), ("memory", "64Mi")])),
        limits: Some(quantities(&[("memory", "512Mi")])),
        claims: None,
    });
    let mut spec = pod::spec(run, &name, container);
    spec.restart_policy = Some("Never".to_owned());
    spec.active_deadline_seconds = Some(DEADLINE_SECONDS);

    let mut metadata = labels::metadata(identity, &name);
    let mut ours = labels::of_pods(&identity.name, names::ROLE_PLAN);
    ours.insert(names::LABEL_REVISION.to_owned(), run.revision.to_string());
    metadata.labels = Some(pod::overlay(&run.worker.pod_labels, ours));
    metadata.annotations = (!run.worker.pod_annotations.is_empty()).then(|| run.worker.pod_annotations.clone());
    Ok(PlanChildren { config_map, pod: Pod { metadata, spec: Some(spec), status: None } })
}

fn quantities(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    list.iter().map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned()))).collect()
}
