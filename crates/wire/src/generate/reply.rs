use serde_json::{Value, json};
use twopass_core::chat::{
    CallErrorKind, Diagnostic, DiagnosticKind, InvalidToolCall, PassReport, Reply, StopReason,
    ToolCall, Usage,
};

use super::InvalidReply;
use super::request::{encode_call, read_arguments};
use crate::invalid_calls::invalid_calls_json;
use crate::json::{Fields, Object, array};
use crate::logprobs;

/// The whole reply as JSON text: the body of a non-stream answer and of the `done` event.
///
/// `response` equals `pre_tool_text` if the turn holds calls (rows F2, F3); without calls
/// `pre_tool_text` is null. `tool_calls` is always a list.
#[must_use]
pub fn encode_reply(reply: &Reply) -> String {
    let mut object = Object::default();
    object.text("thinking", &reply.reasoning);
    object.text("response", &reply.content);
    object.raw("tool_calls", &encode_calls(reply));
    if reply.tool_calls.is_empty() {
        object.raw("pre_tool_text", "null");
    } else {
        object.text("pre_tool_text", &reply.content);
    }
    if !reply.logprobs.is_empty() {
        object.raw("logprobs", &logprobs::chat_json(&reply.logprobs));
    }
    object.text("finish_reason", reply.stop_reason.as_str());
    if let StopReason::StopSequence(stop) = &reply.stop_reason {
        object.text("stop_sequence", stop);
    }
    object.value("thinking_truncated", &reply.reasoning_truncated.into());
    object.value("usage", &encode_usage(&reply.usage));
    object.value("invalid_tool_calls", &invalid_calls_json(reply));
    object.value("diagnostics", &encode_diagnostics(reply));
    let passes: Vec<_> = reply.passes.iter().map(encode_pass).collect();
    object.value("passes", &passes.into());
    object.finish()
}

/// What the parsers alone make of a text, as JSON text: `thinking`, `content`, `tool_calls`,
/// `invalid_tool_calls` and `diagnostics`, each as in [`encode_reply`].
#[must_use]
pub fn encode_parsed(reply: &Reply) -> String {
    let mut object = Object::default();
    object.text("thinking", &reply.reasoning);
    object.text("content", &reply.content);
    object.raw("tool_calls", &encode_calls(reply));
    object.value("invalid_tool_calls", &invalid_calls_json(reply));
    object.value("diagnostics", &encode_diagnostics(reply));
    object.finish()
}

/// Reads a whole reply. Only the documented four fields matter; all others may be absent,
/// and `tool_calls` null is an empty list (row X21).
///
/// # Errors
/// The text is not a JSON object, or a field that matters has the wrong shape.
pub fn decode_reply(text: &str) -> Result<Reply, InvalidReply> {
    let wrong = |fault: twopass_core::chat::BadRequest| {
        InvalidReply::new(format!("the reply is invalid: {fault}"))
    };
    let fields = Fields::read("body", text).map_err(wrong)?;
    if fields.raw("response").is_none()
        && fields.raw("tool_calls").is_none()
        && fields.raw("thinking").is_none()
    {
        return Err(InvalidReply::new(
            "the reply is invalid: it has none of `response`, `thinking` and `tool_calls`",
        ));
    }
    let mut tool_calls = Vec::new();
    for (path, text) in fields.list("tool_calls").map_err(wrong)? {
        tool_calls.push(decode_call(path, text, tool_calls.len()).map_err(wrong)?);
    }
    let content = match fields.text("response").map_err(wrong)? {
        Some(response) => response,
        None => fields
            .text("pre_tool_text")
            .map_err(wrong)?
            .unwrap_or_default(),
    };
    let stop_reason = match lenient_text(&fields, "finish_reason").as_deref() {
        Some("stop") => lenient_text(&fields, "stop_sequence")
            .map_or(StopReason::EndTurn, StopReason::StopSequence),
        Some(other) => decode_stop_reason(other),
        None if tool_calls.is_empty() => StopReason::EndTurn,
        None => StopReason::ToolCalls,
    };
    Ok(Reply {
        logprobs: logprobs::read_field(&fields),
        content,
        reasoning: fields.text("thinking").map_err(wrong)?.unwrap_or_default(),
        tool_calls,
        invalid_tool_calls: lenient_list(&fields, "invalid_tool_calls")
            .iter()
            .map(decode_invalid_call)
            .collect(),
        stop_reason,
        reasoning_truncated: fields
            .boolean("thinking_truncated")
            .ok()
            .flatten()
            .unwrap_or(false),
        usage: fields
            .value("usage")
            .ok()
            .flatten()
            .map(|value| decode_usage(&value))
            .unwrap_or_default(),
        passes: lenient_list(&fields, "passes")
            .iter()
            .map(decode_pass)
            .collect(),
        diagnostics: lenient_list(&fields, "diagnostics")
            .iter()
            .filter_map(decode_diagnostic)
            .collect(),
        provider_items: Vec::new(),
    })
}

/// Reads one call: `{id?, name, arguments}`. A missing id becomes `call_{n}`.
pub(super) fn decode_call(
    path: String,
    text: &str,
    call_idx: usize,
) -> Result<ToolCall, twopass_core::chat::BadRequest> {
    let fields = Fields::read(path, text)?;
    let name = fields
        .text("name")?
        .ok_or_else(|| fields.fault("name", "the called tool's name"))?;
    let field = if fields.raw("arguments").is_none() {
        "args"
    } else {
        "arguments"
    };
    let id = fields.text("id")?.filter(|id| !id.is_empty());
    Ok(ToolCall {
        id: id.unwrap_or_else(|| format!("call_{}", call_idx + 1)),
        name,
        arguments: read_arguments(&fields, field)?,
    })
}

fn lenient_text(fields: &Fields<'_>, name: &str) -> Option<String> {
    fields.text(name).ok().flatten()
}

fn lenient_list(fields: &Fields<'_>, name: &str) -> Vec<Value> {
    match fields.value(name) {
        Ok(Some(Value::Array(items))) => items,
        _ => Vec::new(),
    }
}

fn decode_stop_reason(name: &str) -> StopReason {
    match name {
        "stop" | "end_turn" => StopReason::EndTurn,
        "length" => StopReason::Length,
        "tool_calls" => StopReason::ToolCalls,
        "content_filter" => StopReason::ContentFilter,
        "cancelled" => StopReason::Cancelled,
        other => StopReason::Unknown(other.to_owned()),
    }
}

fn encode_calls(reply: &Reply) -> String {
    let calls: Vec<_> = reply.tool_calls.iter().map(encode_call).collect();
    array(&calls)
}

fn encode_diagnostics(reply: &Reply) -> Value {
    reply
        .diagnostics
        .iter()
        .map(|d| json!({"kind": d.kind.as_str(), "message": d.message}))
        .collect()
}

fn encode_usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "thinking_tokens": usage.thinking_tokens,
        "response_tokens": usage.response_tokens,
        "cached_tokens": usage.cached_tokens,
    })
}

fn count(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn decode_usage(value: &Value) -> Usage {
    Usage {
        prompt_tokens: count(value, "prompt_tokens"),
        thinking_tokens: count(value, "thinking_tokens"),
        response_tokens: count(value, "response_tokens"),
        cached_tokens: count(value, "cached_tokens"),
    }
}

fn encode_pass(pass: &PassReport) -> Value {
    json!({
        "name": pass.name,
        "means": pass.means,
        "max_tokens": pass.max_tokens,
        "prefill_tokens": pass.prefill_tokens,
        "cached_tokens": pass.cached_tokens,
        "decode_tokens": pass.decode_tokens,
        "duration_ms": (pass.duration_ms * 1000.0).round() / 1000.0,
        "finish_reason": pass.stop_reason.as_str(),
    })
}

/// The means of a pass that we know, so that a decoded report can name them again.
const MEANS: [&str; 7] = [
    "engine_rule",
    "completions_exact",
    "chat_prefill",
    "append_message",
    "native_budget",
    "generate",
    "single",
];

fn decode_pass(value: &Value) -> PassReport {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    PassReport {
        name: if text("name") == "thinking" {
            "thinking"
        } else {
            "answer"
        },
        means: MEANS
            .into_iter()
            .find(|means| *means == text("means"))
            .unwrap_or("generate"),
        max_tokens: value
            .get("max_tokens")
            .and_then(Value::as_u64)
            .and_then(|n| u32::try_from(n).ok()),
        prefill_tokens: count(value, "prefill_tokens"),
        cached_tokens: count(value, "cached_tokens"),
        decode_tokens: count(value, "decode_tokens"),
        duration_ms: value
            .get("duration_ms")
            .and_then(Value::as_f64)
            .unwrap_or(0.0),
        stop_reason: decode_stop_reason(text("finish_reason")),
    }
}

const CALL_ERRORS: [CallErrorKind; 7] = [
    CallErrorKind::TruncatedToolCall,
    CallErrorKind::MalformedArguments,
    CallErrorKind::ArgumentsTooLarge,
    CallErrorKind::UnknownTool,
    CallErrorKind::SchemaViolation,
    CallErrorKind::ToolChoiceViolation,
    CallErrorKind::TooManyCalls,
];

fn decode_invalid_call(value: &Value) -> InvalidToolCall {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let kind = text("kind").unwrap_or_default();
    InvalidToolCall {
        id: text("id").unwrap_or_default(),
        name: text("name"),
        arguments: text("arguments").unwrap_or_default(),
        kind: CALL_ERRORS
            .into_iter()
            .find(|known| known.as_str() == kind)
            .unwrap_or(CallErrorKind::MalformedArguments),
        path: text("path"),
        message: text("message").unwrap_or_default(),
    }
}

/// An unknown kind is kept as `degraded`, its name in front of the message.
fn decode_diagnostic(value: &Value) -> Option<Diagnostic> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let (kind, message) = (text("kind")?, text("message").unwrap_or_default());
    Some(match DiagnosticKind::from_name(kind) {
        Some(known) => Diagnostic::new(known, message),
        None => Diagnostic::new(DiagnosticKind::Degraded, format!("{kind}: {message}")),
    })
}
