use serde_json::{Value, json};
use twopass_core::chat::{OpaqueKind, Reply, StopReason, Usage};

use super::stream::StreamDecoder;
use crate::fault::Fault;
use crate::invalid_calls::{INVALID_CALLS, some_invalid_calls};
use crate::json::{Lenient, Object, array};
use crate::request::{DecodeContext, ReplyMeta};

/// Reads a whole answer. Its items are read as a stream's, so that both agree.
///
/// # Errors
/// The body is not JSON, is an error or a failed response, or has no output.
pub fn decode_reply(body: &[u8], context: DecodeContext) -> Result<Reply, Fault> {
    let mut decoder = StreamDecoder::new(context);
    decoder.push_whole(body, &mut Vec::new())?;
    decoder.finish(&mut Vec::new())
}

/// Writes a whole answer: the server side. Reasoning is a `summary` part, the only place
/// where clients look for it.
#[must_use]
pub fn encode_reply(reply: &Reply, meta: &ReplyMeta) -> String {
    let mut items = Vec::new();
    if !reply.reasoning.is_empty() {
        let own = reply.provider_items.iter().filter(|item| {
            item.kind == OpaqueKind::ResponsesItem
                && Lenient::read(&item.json)
                    .and_then(|item| item.text("type"))
                    .as_deref()
                    == Some("reasoning")
        });
        items.extend(own.map(|item| item.json.clone()));
        if items.is_empty() {
            items.push(reasoning_item(&item_id("rs", meta, 0), &reply.reasoning).to_string());
        }
    }
    if !reply.content.is_empty() || (reply.tool_calls.is_empty() && items.is_empty()) {
        let id = item_id("msg", meta, items.len());
        items.push(message_item(&id, &reply.content, "completed").to_string());
    }
    for call in &reply.tool_calls {
        let id = item_id("fc", meta, items.len());
        items.push(
            call_item(
                &id,
                &call.id,
                &call.name,
                call.arguments.as_text(),
                "completed",
            )
            .to_string(),
        );
    }
    response(meta, Status::of(&reply.stop_reason), &items, Some(reply))
}

/// How a response stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    InProgress,
    Completed,
    /// With its reason.
    Incomplete(&'static str),
    Failed,
}

impl Status {
    pub(super) fn of(stop: &StopReason) -> Self {
        match stop {
            StopReason::Length => Self::Incomplete("max_output_tokens"),
            StopReason::ContentFilter => Self::Incomplete("content_filter"),
            _ => Self::Completed,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// A response object. Fields that clients demand are there even where we have nothing to
/// say.
pub(super) fn response(
    meta: &ReplyMeta,
    status: Status,
    items: &[String],
    end: Option<&Reply>,
) -> String {
    let mut body = Object::default();
    body.text("id", &meta.id);
    body.text("object", "response");
    body.count("created_at", meta.created_s);
    body.text("status", status.as_str());
    body.raw("error", "null");
    body.value(
        "incomplete_details",
        &match status {
            Status::Incomplete(reason) => json!({"reason": reason}),
            _ => Value::Null,
        },
    );
    body.text("model", &meta.model);
    body.raw("output", &array(items));
    for (name, default) in ECHOED {
        let said = meta.echo.iter().find(|(known, _)| known == name);
        body.raw(name, said.map_or(*default, |(_, json)| json));
    }
    let usage = end.map(|reply| usage_json(&reply.usage));
    body.value("usage", &usage.unwrap_or_default());
    if let Some(calls) = end.and_then(some_invalid_calls) {
        body.value(INVALID_CALLS, &calls);
    }
    body.finish()
}

/// Fields of a request that its response repeats, and what stands there if it has none.
pub(super) const ECHOED: &[(&str, &str)] = &[
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("reasoning", "{\"effort\":null,\"summary\":null}"),
    ("store", "true"),
    ("temperature", "null"),
    ("text", "{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_p", "null"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
];

/// An item's id: its kind, the response's own part, its place.
pub(super) fn item_id(prefix: &str, meta: &ReplyMeta, place: usize) -> String {
    let own = meta.id.strip_prefix("resp_").unwrap_or(&meta.id);
    format!("{prefix}_{own}_{place}")
}

pub(super) fn reasoning_item(id: &str, text: &str) -> Value {
    let summary = if text.is_empty() {
        json!([])
    } else {
        json!([{"type": "summary_text", "text": text}])
    };
    json!({"type": "reasoning", "id": id, "summary": summary})
}

pub(super) fn message_item(id: &str, text: &str, status: &str) -> Value {
    let content = if status == "in_progress" {
        json!([])
    } else {
        json!([{"type": "output_text", "text": text, "annotations": []}])
    };
    json!({
        "type": "message",
        "id": id,
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

pub(super) fn call_item(
    id: &str,
    call_id: &str,
    name: &str,
    arguments: &str,
    status: &str,
) -> Value {
    json!({
        "type": "function_call",
        "id": id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    })
}

fn usage_json(usage: &Usage) -> Value {
    let output = usage.thinking_tokens + usage.response_tokens;
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        "total_tokens": usage.prompt_tokens + output,
    })
}
