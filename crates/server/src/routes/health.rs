//! `GET /health` and `/health/ready`: whether turns can start, and on which model (row F7).
//! `GET /health/live`: whether the process answers at all; one that does not is to be restarted,
//! one that is not ready only to be left alone.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::App;
use crate::models::model_id;

/// 200 as long as anything is answered.
pub(super) async fn live() -> Response {
    super::json(&json!({"status": "ok"}))
}

/// `{status, model, ready, provider, providers}`. `status` is `ok`, `loading` or `draining`;
/// it and `model` are the default provider's. 200 if ready, else 503.
pub(super) async fn health(State(app): State<App>) -> Response {
    let served = app.live().now();
    let default = served.models.default_provider();
    let loaded = default.backend().is_ready();
    let draining = app.0.shutdown.is_draining();
    let status = match (draining, loaded) {
        (true, _) => "draining",
        (false, true) => "ok",
        (false, false) => "loading",
    };
    let ready = loaded && !draining;
    let providers: Vec<_> = served
        .models
        .providers()
        .iter()
        .map(|p| json!({"name": p.name(), "model": model_id(p), "ready": p.backend().is_ready()}))
        .collect();
    let mut response = super::json(&json!({
        "status": status,
        "model": model_id(default),
        "ready": ready,
        "provider": default.name(),
        "providers": providers,
    }));
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}
