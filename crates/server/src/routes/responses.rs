//! Stored responses by their ids: `GET` and `DELETE /v1/responses/{id}`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use serde_json::json;
use twopass_core::chat::BadRequest;

use super::App;
use crate::api_error::ApiError;
use crate::caller::Caller;

/// The most items that one list may be asked for. Source: OpenAI's API reference, read 2026-11.
const MAX_LIMIT: usize = 100;

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
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let page = Page::read(query.as_deref().unwrap_or_default())?;
    let mut items = app.responses().input(&caller, &read(id)?).await?;
    if page.is_last_first {
        items.reverse();
    }
    // There is no way to ask for the rest yet: nothing is left out without a word.
    if items.len() > page.limit {
        let message = format!("the list has {} items and is given whole", items.len());
        return Err(BadRequest::new("limit", message).into());
    }
    let items = format!(
        "{{\"object\":\"list\",\"data\":[{}],\"has_more\":false}}",
        items.join(",")
    );
    Ok(super::json_text(items))
}

/// Which items of a list are wanted. Without a wish it is all of them, in their order.
struct Page {
    limit: usize,
    is_last_first: bool,
}

impl Page {
    fn read(query: &str) -> Result<Self, BadRequest> {
        let mut page = Self {
            limit: usize::MAX,
            is_last_first: false,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("limit", text) => {
                    let limit = text.parse().ok();
                    page.limit = limit
                        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                        .ok_or_else(|| {
                            let message = format!("must be 1 to {MAX_LIMIT}, got `{text}`");
                            BadRequest::new("limit", message)
                        })?;
                }
                ("order", "asc") => page.is_last_first = false,
                ("order", "desc") => page.is_last_first = true,
                ("order", text) => {
                    let message = format!("must be `asc` or `desc`, got `{text}`");
                    return Err(BadRequest::new("order", message));
                }
                (name, _) => {
                    let message = "is not known here, only `limit` and `order` are";
                    return Err(BadRequest::new(name, message));
                }
            }
        }
        Ok(page)
    }
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
