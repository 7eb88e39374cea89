use std::collections::BTreeMap;

use fencepost_crds::names;
use k8s_openapi::api::core::v1::ConfigMap;

use super::{BuildError, labels};
use crate::revision::{Identity, RunSpec};

/// Name of the ConfigMap of a revision. It is part of the name, and the object is immutable: a pod that restarts in place
/// reads what it was started with, also while a newer revision is on its way.
///
/// The word before the hash keeps the names of different jobs apart: `a-plan` may be the name of a job as well.
pub(super) fn name(job: &str, run: &RunSpec) -> String {
    format!("{}-job-{}", names::child(job), run.revision)
}

pub(super) fn build(identity: &Identity, run: &RunSpec) -> Result<ConfigMap, BuildError> {
    named(identity, run, &name(&identity.name, run))
}

/// The resolved job under another name: plan pods use this too.
pub(super) fn named(identity: &Identity, run: &RunSpec, name: &str) -> Result<ConfigMap, BuildError> {
    let json = serde_json::to_string_pretty(&run.resolved).map_err(BuildError::ResolvedJob)?;
    let mut metadata = labels::metadata(identity, name);
    labels::label(&mut metadata, names::LABEL_REVISION, run.revision.as_str());
    Ok(ConfigMap {
        metadata,
        data: Some(BTreeMap::from([(names::JOB_FILE.to_owned(), json)])),
        immutable: Some(true),
        ..ConfigMap::default()
    })
}
