//! Does the API server serve the objects as this operator knows them? An older definition drops fields that it does not know, silently:
//! better to wait and say so.

use std::{collections::BTreeSet, time::Duration};

use fencepost_crds::{StreamJob, crd};
use http::Request;
use kube::{Client, Resource};
use serde_json::Value;
use thiserror::Error;

/// Between looks.
const PAUSE: Duration = Duration::from_secs(5);
/// Missing fields that are named in the log.
const NAMED: usize = 10;

/// Why the operator cannot start yet.
#[derive(Debug, Error)]
pub enum NotServed {
    /// The API server does not answer.
    #[error("the API server does not answer")]
    NoAnswer(#[source] Box<kube::Error>),
    /// The definition is not there.
    #[error("the API server does not serve {0}: install the chart fencepost-crds")]
    Missing(String),
    /// The definition is older than the operator.
    #[error(
        "the definition of StreamJob in the cluster is older than this operator, it lacks {0}: upgrade the chart fencepost-crds"
    )]
    Older(String),
}

/// Waits until the definitions are there, saying why. Not a crash: the chart of the definitions may come a moment later.
pub async fn wait(client: &Client) {
    loop {
        match check(client).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(error = crate::error::chain(&error), "waiting for the definition of StreamJob");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Checks once.
///
/// # Errors
/// The definition is missing or older.
pub async fn check(client: &Client) -> Result<(), NotServed> {
    let version = StreamJob::api_version(&());
    let request = Request::get(format!("/openapi/v3/apis/{version}"))
        .body(Vec::new())
        .map_err(|error| NotServed::NoAnswer(Box::new(kube::Error::HttpError(error))))?;
    let served: Value = match client.request(request).await {
        Ok(served) => served,
        // Paths that nothing serves are answered in plain text: there is a code, and no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => return Err(NotServed::Missing(version.into_owned())),
        Err(error) => return Err(NotServed::NoAnswer(Box::new(error))),
    };
    let schema = find(&served).ok_or_else(|| NotServed::Missing(version.into_owned()))?;
    let ours = serde_json::to_value(crd::stream_job()).unwrap_or_default();
    let ours = ours.pointer("/spec/versions/0/schema/openAPIV3Schema").cloned().unwrap_or_default();
    let missing: Vec<String> = missing(&ours, schema).into_iter().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let more = missing.len().saturating_sub(NAMED);
    let mut text = missing.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more fields"));
    }
    Err(NotServed::Older(text))
}

fn find(served: &Value) -> Option<&Value> {
    served.pointer("/components/schemas")?.as_object()?.values().find(|schema| {
        schema
            .get("x-kubernetes-group-version-kind")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|kind| kind.get("kind").and_then(Value::as_str) == Some("StreamJob")))
    })
}

/// Paths of properties that the first schema has and the second has not.
fn missing(ours: &Value, served: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // Metadata is the API server's own.
    for part in ["spec", "status"] {
        let pointer = format!("/properties/{part}");
        if let Some(wanted) = ours.pointer(&pointer) {
            walk(wanted, served.pointer(&pointer), part, &mut found);
        }
    }
    found
}

fn walk(wanted: &Value, have: Option<&Value>, path: &str, found: &mut BTreeSet<String>) {
    let Some(have) = have else {
        found.insert(path.to_owned());
        return;
    };
    for (name, wanted) in wanted.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(wanted, have.get("properties").and_then(|all| all.get(name)), &format!("{path}.{name}"), found);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(wanted) = wanted.get(inner).filter(|inner| inner.is_object()) {
            walk(wanted, have.get(inner), &format!("{path}[]"), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use kube::client::Body;

    use super::*;

    fn ours() -> Value {
        let crd = serde_json::to_value(crd::stream_job()).unwrap();
        crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap().clone()
    }

    #[tokio::test]
    async fn a_missing_definition_is_said_to_be_missing() {
        let client = Client::new(
            tower::service_fn(async |_: Request<Body>| {
                let answer = Response::builder().status(404).body(Body::from(b"404 page not found\n".to_vec()));
                Ok::<_, Infallible>(answer.unwrap())
            }),
            "default",
        );
        let error = check(&client).await.unwrap_err();
        assert!(error.to_string().ends_with("install the chart fencepost-crds"), "{error}");
    }

    #[test]
    fn the_same_definition_lacks_nothing() {
        assert!(missing(&ours(), &ours()).is_empty());
    }

    #[test]
    fn an_older_definition_is_found_by_the_fields_it_lacks() {
        let mut older = ours();
        older
            .pointer_mut("/properties/spec/properties/worker/properties")
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove("drainTimeout");
        older.pointer_mut("/properties/status/properties").unwrap().as_object_mut().unwrap().remove("plan");
        let sources = "/properties/spec/properties/pipeline/properties/sources/items/properties";
        older.pointer_mut(sources).unwrap().as_object_mut().unwrap().remove("onBadRecord");
        let lacks: Vec<String> = missing(&ours(), &older).into_iter().collect();
        assert_eq!(lacks, ["spec.pipeline.sources[].onBadRecord", "spec.worker.drainTimeout", "status.plan"]);
    }
}
