//! The CustomResourceDefinition as committed in `crds/yaml` and shipped in the chart.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::StreamJob;

/// Largest CRD that we accept, as compact JSON. Client-side `kubectl apply` stores the object in an annotation of at most 256 KiB.
pub const SIZE_LIMIT: usize = 200_000;

/// The CRD of [`StreamJob`].
#[must_use]
pub fn stream_job() -> CustomResourceDefinition {
    StreamJob::crd()
}

#[cfg(test)]
mod tests;
