//! Writing the journal.

use fencepost_crds::{StreamJob, names, v1alpha1::StreamJobStatus};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::error::{Error, is_conflict};

/// Writes a status, if it differs from what the object has. Gives the resource version of the object that has it.
///
/// The patch carries the resource version that was read: when anyone changed the object since, another operator included,
/// it is refused, nothing is done, and everything is looked at again.
///
/// # Errors
/// [`Error::Changed`], or the API server does not answer.
pub async fn write(client: &Client, job: &StreamJob, status: &StreamJobStatus) -> Result<Option<String>, Error> {
    if job.status.as_ref() == Some(status) {
        return Ok(job.resource_version());
    }
    let api = Api::<StreamJob>::namespaced(client.clone(), &job.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": StreamJob::api_version(&()),
        "kind": StreamJob::kind(&()),
        "metadata": {
            "name": job.name_any(),
            "uid": job.uid(),
            "resourceVersion": job.resource_version(),
        },
        "status": status,
    });
    let params = PatchParams::apply(names::MANAGER).force();
    match api.patch_status(&job.name_any(), &params, &Patch::Apply(&patch)).await {
        Ok(written) => Ok(written.resource_version()),
        Err(error) if is_conflict(&error) => Err(Error::Changed("the StreamJob")),
        Err(error) => Err(Error::Status(Box::new(error))),
    }
}
