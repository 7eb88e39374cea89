//! Health, metrics and status over HTTP. Read-only: nothing here changes the worker.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while every slot's loop turns, otherwise 503 with the reason |
//! | `/readyz` | 200 when every slot can commit, otherwise 503 |
//! | `/metrics` | Prometheus text |
//! | `/v1/status` | [`WorkerStatus`] as JSON |

use std::{net::TcpListener, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use fencepost_crds::contract::WorkerStatus;
use tokio_util::sync::CancellationToken;

/// What the server shows.
pub(crate) trait Observed: Send + Sync + 'static {
    /// The state of the worker.
    fn status(&self) -> WorkerStatus;
    /// Why the process should be restarted, if it should.
    fn stuck(&self) -> Option<String>;
    /// All metrics in the text format of OpenMetrics.
    ///
    /// # Errors
    /// When they cannot be written as text.
    fn metrics(&self) -> Result<String, std::fmt::Error>;
}

/// Serves until cancelled.
///
/// # Errors
/// When the server fails.
pub(crate) async fn serve(
    listener: TcpListener,
    observed: Arc<dyn Observed>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    axum::serve(listener, router(observed)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(observed: Arc<dyn Observed>) -> Router {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status));
    #[cfg(feature = "fault-points")]
    let router = router.merge(faults::router());
    router.with_state(observed)
}

/// `PUT /v1/fault-points/{point}`: arms it with the actions in the body.
#[cfg(feature = "fault-points")]
mod faults {
    use std::sync::Arc;

    use axum::{Router, extract::Path, http::StatusCode, routing::put};

    use crate::slot::fault::arm;

    pub(super) fn router() -> Router<Arc<dyn super::Observed>> {
        Router::new().route("/v1/fault-points/{point}", put(set))
    }

    async fn set(Path(point): Path<String>, actions: String) -> Result<(), (StatusCode, String)> {
        tracing::warn!(point, actions, "fault point armed");
        arm(&point, &actions).map_err(|error| (StatusCode::BAD_REQUEST, error))
    }
}

async fn healthz(State(observed): State<Arc<dyn Observed>>) -> Response {
    match observed.stuck() {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason).into_response(),
    }
}

async fn readyz(State(observed): State<Arc<dyn Observed>>) -> Response {
    let status = observed.status();
    if status.ready && !status.draining {
        return "ok\n".into_response();
    }
    let errors: Vec<_> =
        status.slots.iter().filter_map(|slot| slot.error.as_ref()).map(|e| e.message.as_str()).collect();
    let reason = if status.draining { "draining".to_owned() } else { format!("not ready: {}", errors.join("; ")) };
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

async fn metrics(State(observed): State<Arc<dyn Observed>>) -> Response {
    match observed.metrics() {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn status(State(observed): State<Arc<dyn Observed>>) -> Json<WorkerStatus> {
    Json(observed.status())
}
