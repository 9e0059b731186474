//! `GET /v1/models`: exactly the names that the caller's requests may use.

use std::time::UNIX_EPOCH;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};
use twopass_core::chat::BadRequest;
use twopass_provider::Provider;

use super::App;
use crate::api_error::ApiError;
use crate::caller::Caller;

/// OpenAI's list. `created` is when this server started.
pub(super) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let data: Vec<_> = app
        .live()
        .now()
        .models
        .ids(&caller)
        .map(|(id, provider)| entry(&app, id, provider))
        .collect();
    super::json(&json!({"object": "list", "data": data}))
}

/// One entry of the list; 404 for a name that is not in it.
pub(super) async fn retrieve(
    State(app): State<App>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = path.map_err(|_| BadRequest::new("model", "must be UTF-8"))?;
    let served = app.live().now();
    let provider = served.models.pick(&caller, Some(&id))?;
    Ok(super::json(&entry(&app, &id, provider)))
}

fn entry(app: &App, id: &str, provider: &Provider) -> Value {
    let created = app
        .0
        .started
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    json!({"id": id, "object": "model", "created": created, "owned_by": provider.name()})
}
