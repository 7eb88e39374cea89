//! Asking workers for their state.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use fencepost_crds::{contract::WorkerStatus, names};
use fencepost_plan::WorkerObserved;
use futures::{StreamExt, future::BoxFuture, stream};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, body::Bytes};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use thiserror::Error;

/// How long a worker may take to answer. One that does not is not an error here: its probes tell the kubelet.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Workers asked at the same time, per job.
const AT_ONCE: usize = 16;
/// Longest answer that is read.
const LIMIT: usize = 4 * 1024 * 1024;

/// A worker that did not answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// It took too long.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// The connection failed.
    #[error("the request failed")]
    Request(#[source] hyper_util::client::legacy::Error),
    /// The request could not be built.
    #[error("no request can be built for this address")]
    Build(#[source] http::Error),
    /// The answer could not be read.
    #[error("the answer cannot be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not a status.
    #[error("the answer is not a status")]
    Json(#[source] serde_json::Error),
}

/// Something that can ask workers.
pub trait WorkerProbe: Send + Sync {
    /// The state of the worker at an address.
    fn status(&self, address: IpAddr) -> BoxFuture<'_, Result<WorkerStatus, AskError>>;
}

/// Real workers, over HTTP.
#[derive(Clone, Debug)]
pub struct Http(Client<HttpConnector, Empty<Bytes>>);

impl Default for Http {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(TIMEOUT));
        Self(Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(30)).build(connector))
    }
}

impl WorkerProbe for Http {
    fn status(&self, address: IpAddr) -> BoxFuture<'_, Result<WorkerStatus, AskError>> {
        Box::pin(
            async move { tokio::time::timeout(TIMEOUT, self.get(address)).await.unwrap_or(Err(AskError::Timeout)) },
        )
    }
}

impl Http {
    async fn get(&self, address: IpAddr) -> Result<WorkerStatus, AskError> {
        let host = match address {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let request = Request::get(format!("http://{host}:{}/v1/status", names::WORKER_HTTP_PORT))
            .body(Empty::new())
            .map_err(AskError::Build)?;
        let response = self.0.request(request).await.map_err(AskError::Request)?;
        let body = Limited::new(response.into_body(), LIMIT).collect().await.map_err(AskError::Body)?;
        serde_json::from_slice(&body.to_bytes()).map_err(AskError::Json)
    }
}

/// What the workers say that answer, by pod name.
pub async fn ask(probe: &dyn WorkerProbe, pods: &[Pod]) -> BTreeMap<String, WorkerObserved> {
    let addresses: Vec<(String, IpAddr)> =
        pods.iter().filter_map(|pod| Some((pod.name_any(), address(pod)?))).collect();
    let asks = addresses.into_iter().map(|(name, address)| async move {
        let answer = probe.status(address).await;
        if let Err(error) = &answer {
            tracing::debug!(pod = name, error = crate::error::chain(error), "a worker does not tell its state");
        }
        Some((name, answer.ok()?.into()))
    });
    stream::iter(asks).buffer_unordered(AT_ONCE).filter_map(|found| async move { found }).collect().await
}

fn address(pod: &Pod) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    let running = status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none();
    running.then(|| status.pod_ip.as_deref()?.parse().ok()).flatten()
}
