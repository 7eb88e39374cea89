//! The CustomResourceDefinition as committed in `crds/yaml` and shipped in the chart.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON};
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::StreamJob;

/// Largest CRD that we accept, as compact JSON. Client-side `kubectl apply` stores the object in an annotation of at most 256 KiB.
pub const SIZE_LIMIT: usize = 200_000;

/// The CRD of [`StreamJob`].
#[must_use]
pub fn stream_job() -> CustomResourceDefinition {
    let mut crd = StreamJob::crd();
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let status = schema.and_then(|schema| schema.properties.as_mut()).and_then(|all| all.get_mut("status"));
        if let Some(status) = status {
            status.default = Some(JSON(not_seen()));
        }
    }
    crd
}

/// The status of a job that no operator has looked at. Tools that follow kstatus take an object that says nothing for one that is as it should be:
/// without this, whoever waits for a new job waits for nothing.
#[must_use]
pub fn not_seen() -> Value {
    json!({ "observedGeneration": -1 })
}

#[cfg(test)]
mod tests;
