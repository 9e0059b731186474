//! `GET /metrics`: the numbers of this server for Prometheus.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::App;
use crate::observe;

/// OpenMetrics text.
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let text = app.metrics().text();
    ([(header::CONTENT_TYPE, observe::METRICS_TYPE)], text).into_response()
}
