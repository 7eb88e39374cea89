//! Answering requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};

use crate::request::{Asked, Read, Verb};
use crate::selector::Selector;
use crate::store::{Key, Manager, Refusal, Store, mark};
use crate::{Gate, Moment, Shared, watch};

/// An answer, of known length or without end.
pub(crate) type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// The server as a client has it.
#[derive(Clone)]
pub(crate) struct Serve {
    pub shared: Arc<Shared>,
    pub gate: Arc<dyn Gate>,
}

impl tower::Service<Request<Body>> for Serve {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { shared, gate } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let read = match Read::of(&parts) {
                Ok(read) => read,
                Err(refusal) => return Ok(refused(&refusal)),
            };
            let body = body.collect_bytes().await.unwrap_or_default();
            gate.pass(Moment::Before, &read.asked).await;
            let outcome = answer(&shared, &read, &body);
            gate.pass(Moment::After, &read.asked).await;
            Ok(outcome.unwrap_or_else(|refusal| refused(&refusal)))
        })
    }
}

fn refused(refusal: &Refusal) -> Response<Answer> {
    respond(refusal.code, refusal.status().to_string())
}

fn respond(code: StatusCode, text: String) -> Response<Answer> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = code;
    response
}

fn answer(shared: &Arc<Shared>, read: &Read, body: &[u8]) -> Result<Response<Answer>, Refusal> {
    let asked = &read.asked;
    let selector = read.text("labelSelector").unwrap_or_default();
    let selector = Selector::read(selector).ok_or_else(|| Refusal::bad(format!("selector {selector}")))?;
    if read.text("fieldSelector").is_some() {
        return Err(Refusal::bad("field selectors are not known here".to_owned()));
    }
    let kind = {
        let mut store = shared.store();
        store.asked.insert(asked.clone());
        store.kind_named(&asked.group, &asked.version, &asked.resource)?
    };
    if asked.verb == Verb::Watch {
        let from = read.text("resourceVersion").unwrap_or_default();
        let from = from.parse().map_err(|_| Refusal::bad(format!("resource version {from}")))?;
        let seconds = read.text("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(300);
        let wanted = watch::Wanted {
            kind,
            namespace: asked.namespace.clone(),
            selector,
            metadata_only: read.metadata_only,
            bookmarks: read.flag("allowWatchBookmarks"),
            timeout: std::time::Duration::from_secs(seconds),
        };
        return Ok(Response::new(watch::body(Arc::clone(shared), wanted, from)));
    }
    if asked.verb == Verb::List {
        return Ok(respond(StatusCode::OK, list(&shared.store(), kind, read, &selector)?.to_string()));
    }
    let namespace = asked.namespace.clone().ok_or_else(|| Refusal::bad("no namespace is named".to_owned()))?;
    let name = asked.name.clone().unwrap_or_default();
    let key = Key { kind, namespace, name };
    if asked.subresource.as_deref() == Some("log") {
        let store = shared.store();
        store.get(&key)?;
        return Ok(respond(StatusCode::OK, store.log(&key.namespace, &key.name)));
    }
    let of_status = match asked.subresource.as_deref() {
        None => false,
        Some("status") => true,
        Some(other) => return Err(Refusal::not_found(other)),
    };
    let code = if asked.verb == Verb::Create { StatusCode::CREATED } else { StatusCode::OK };
    let object = if asked.verb == Verb::Get {
        shared.store().get(&key)?
    } else {
        shared.write(|store| write(store, &key, read, of_status, body))?
    };
    let object = if read.metadata_only { metadata_of(&object) } else { object };
    Ok(respond(code, object.to_string()))
}

fn write(store: &mut Store, key: &Key, read: &Read, of_status: bool, body: &[u8]) -> Result<Value, Refusal> {
    let asked = &read.asked;
    let body: Value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).map_err(|error| Refusal::bad(error.to_string()))?
    };
    let who = read.text("fieldManager").unwrap_or("unknown");
    let update = Manager::update(who, of_status);
    match asked.verb {
        Verb::Create => {
            let mut object = body;
            mark(&mut object, "namespace", key.namespace.as_str());
            store.create(key.kind, object, &update, asked.dry_run)
        }
        Verb::Update => store.replace(key, body, &update, asked.dry_run),
        Verb::Patch => match read.content_type.as_str() {
            "application/apply-patch+yaml" => {
                if read.text("fieldManager").is_none() {
                    return Err(Refusal::bad("apply needs a field manager".to_owned()));
                }
                if store.get(key).is_err() {
                    // An apply that creates needs both permissions.
                    store.asked.insert(Asked { verb: Verb::Create, ..asked.clone() });
                }
                store.apply(key, &body, &Manager::apply(who, of_status), (read.flag("force"), asked.dry_run))
            }
            "application/merge-patch+json" => store.merge(key, &body, &update, asked.dry_run),
            other => Err(Refusal::bad(format!("patches of type {other} are not known here"))),
        },
        Verb::Delete => {
            let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
            let expected = (text("/preconditions/uid"), text("/preconditions/resourceVersion"));
            store.delete(key, body.get("gracePeriodSeconds").and_then(Value::as_u64), expected)
        }
        Verb::Get | Verb::List | Verb::Watch => store.get(key),
    }
}

fn list(store: &Store, kind: usize, read: &Read, selector: &Selector) -> Result<Value, Refusal> {
    let known = store.kind(kind)?;
    let found = store.objects(kind, read.asked.namespace.as_deref()).filter(|object| selector.matches(object));
    let items: Vec<Value> =
        if read.metadata_only { found.map(metadata_of).collect() } else { found.cloned().collect() };
    let (api_version, kind) = if read.metadata_only {
        ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned())
    } else {
        (known.api_version(), format!("{}List", known.kind))
    };
    let version = store.version().to_string();
    Ok(json!({ "apiVersion": api_version, "kind": kind, "metadata": { "resourceVersion": version }, "items": items }))
}

/// An object without anything but metadata.
pub(crate) fn metadata_of(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata })
}
