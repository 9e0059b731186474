//! `POST /v1/messages/count_tokens`: what a request's prompt would take.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use twopass_core::chat::Request;

use super::App;
use crate::api_error::ApiError;
use crate::body::JsonBytes;
use crate::caller::Caller;
use crate::faces::{Face, Messages};

/// Bytes of text for each token, where the backend cannot count.
const BYTES_PER_TOKEN: u64 = 4;

/// Counted where the prompt is ours; an estimate for chat services.
pub(super) async fn count(
    State(app): State<App>,
    caller: Caller,
    JsonBytes(body): JsonBytes,
) -> Result<Response, ApiError> {
    let ask = Messages.decode(&body)?;
    let served = app.live().now();
    let provider = served.models.pick(&caller, ask.model.as_deref())?.clone();
    let request = provider.request(ask.messages, ask.options)?;
    let bytes = text_bytes(&request);
    let counted = provider.count_prompt(request.into_request()).await?;
    let tokens = counted.unwrap_or(bytes.div_ceil(BYTES_PER_TOKEN));
    Ok(super::json(&json!({ "input_tokens": tokens })))
}

fn text_bytes(request: &Request) -> u64 {
    let messages = request.messages.iter().map(|message| {
        let calls = message.tool_calls.iter();
        let calls = calls.map(|call| call.name.len() + call.arguments.as_text().len());
        message.content_text().len() + calls.sum::<usize>()
    });
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len());
    (messages.sum::<usize>() + tools.sum::<usize>()) as u64
}
