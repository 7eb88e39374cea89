//! Health and metrics.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::watch;

use crate::metrics::Metrics;

/// Whether the operator can do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Waiting for the API server or the definitions of the objects.
    Waiting,
    /// Leading, or ready to lead.
    Ready,
}

/// The routes.
pub fn router(metrics: Metrics, readiness: watch::Receiver<Readiness>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(text).with_state(metrics))
}

async fn readyz(State(readiness): State<watch::Receiver<Readiness>>) -> (StatusCode, &'static str) {
    match *readiness.borrow() {
        Readiness::Ready => (StatusCode::OK, "ok"),
        Readiness::Waiting => (StatusCode::SERVICE_UNAVAILABLE, "waiting for the API server, see the log"),
    }
}

async fn text(State(metrics): State<Metrics>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
