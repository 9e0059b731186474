//! Stored responses by their ids: `GET` and `DELETE /v1/responses/{id}`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::json;
use twopass_core::chat::BadRequest;

use super::App;
use crate::api_error::ApiError;
use crate::caller::Caller;

type Id = Result<Path<String>, PathRejection>;

pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    id: Id,
) -> Result<Response, ApiError> {
    let response = app.responses().get(&caller, &read(id)?).await?;
    Ok(super::json_text(response))
}

pub(super) async fn input(
    State(app): State<App>,
    caller: Caller,
    id: Id,
) -> Result<Response, ApiError> {
    let items = app.responses().input(&caller, &read(id)?).await?;
    let items = format!(
        "{{\"object\":\"list\",\"data\":[{}],\"has_more\":false}}",
        items.join(",")
    );
    Ok(super::json_text(items))
}

pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    id: Id,
) -> Result<Response, ApiError> {
    let id = read(id)?;
    app.responses().delete(&caller, &id).await?;
    Ok(super::json(
        &json!({"id": id, "object": "response", "deleted": true}),
    ))
}

fn read(id: Id) -> Result<String, ApiError> {
    let Path(id) = id.map_err(|_| BadRequest::new("response_id", "must be UTF-8"))?;
    Ok(id)
}
