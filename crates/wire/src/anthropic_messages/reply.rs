use serde_json::{Value, json};
use twopass_core::chat::{OpaqueItem, OpaqueKind, Reply, StopReason, Usage};

use super::stream::StreamDecoder;
use crate::fault::Fault;
use crate::invalid_calls::{INVALID_CALLS, some_invalid_calls};
use crate::json::{Lenient, Object, array};
use crate::request::{DecodeContext, ReplyMeta};

/// Reads a whole answer. Its blocks are read as a stream's, so that both agree.
///
/// # Errors
/// The body is not JSON, is an error, or has no content.
pub fn decode_reply(body: &[u8], context: DecodeContext) -> Result<Reply, Fault> {
    let mut decoder = StreamDecoder::new(context);
    decoder.push_whole(body, &mut Vec::new())?;
    decoder.finish(&mut Vec::new())
}

/// Writes a whole answer: the server side. Thinking is written only if `with_thinking`, the
/// client having asked for it.
#[must_use]
pub fn encode_reply(reply: &Reply, meta: &ReplyMeta, with_thinking: bool) -> String {
    let mut blocks = Vec::new();
    if with_thinking && !reply.reasoning.is_empty() {
        let signed: Vec<&OpaqueItem> = reply
            .provider_items
            .iter()
            .filter(|item| item.kind == OpaqueKind::AnthropicBlock && is_thinking(&item.json))
            .collect();
        if signed.is_empty() {
            blocks.push(
                json!({
                    "type": "thinking",
                    "thinking": reply.reasoning,
                    "signature": signature_of(&reply.reasoning),
                })
                .to_string(),
            );
        }
        blocks.extend(signed.into_iter().map(|item| item.json.clone()));
    }
    if !reply.content.is_empty() {
        blocks.push(json!({"type": "text", "text": reply.content}).to_string());
    }
    for call in &reply.tool_calls {
        let mut block = Object::default();
        block.text("type", "tool_use");
        block.text("id", &call.id);
        block.text("name", &call.name);
        block.raw("input", call.arguments.as_text());
        blocks.push(block.finish());
    }
    let (reason, sequence) = stop_reason(&reply.stop_reason);
    let mut body = Object::default();
    body.text("id", &meta.id);
    body.text("type", "message");
    body.text("role", "assistant");
    body.text("model", &meta.model);
    body.raw("content", &array(&blocks));
    body.text("stop_reason", reason);
    body.value("stop_sequence", &sequence);
    body.value("usage", &usage_json(&reply.usage));
    if let Some(calls) = some_invalid_calls(reply) {
        body.value(INVALID_CALLS, &calls);
    }
    body.finish()
}

fn is_thinking(json: &str) -> bool {
    Lenient::read(json)
        .and_then(|block| block.text("type"))
        .is_some_and(|kind| matches!(kind.as_str(), "thinking" | "redacted_thinking"))
}

/// What every signature of ours begins with.
pub(super) const SIGNATURE_HEAD: &str = "tp1-";

/// The signature of thinking that our own server wrote: clients demand one and send it
/// back. It proves nothing; it only tells the text apart from another.
pub(super) fn signature_of(text: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{SIGNATURE_HEAD}{hash:016x}")
}

pub(super) fn stop_reason(stop: &StopReason) -> (&'static str, Value) {
    match stop {
        StopReason::Length => ("max_tokens", Value::Null),
        StopReason::ToolCalls => ("tool_use", Value::Null),
        StopReason::ContentFilter => ("refusal", Value::Null),
        StopReason::StopSequence(stop) => ("stop_sequence", stop.clone().into()),
        _ => ("end_turn", Value::Null),
    }
}

/// Prompt tokens that came from the cache are not in `input_tokens` on this wire.
pub(super) fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.thinking_tokens + usage.response_tokens,
    })
}

/// Takes over what this piece of usage tells; later pieces win.
pub(super) fn read_usage(usage: &Lenient<'_>, into: &mut Usage) {
    let input = usage.count("input_tokens");
    let cached = usage.count("cache_read_input_tokens");
    let created = usage.count("cache_creation_input_tokens");
    if let Some(input) = input {
        into.prompt_tokens = input + cached.unwrap_or(0) + created.unwrap_or(0);
        into.cached_tokens = cached.unwrap_or(0);
    }
    if let Some(output) = usage.count("output_tokens") {
        let thinking = usage
            .object("output_tokens_details")
            .and_then(|details| details.count("thinking_tokens"))
            .unwrap_or(0)
            .min(output);
        into.thinking_tokens = thinking;
        into.response_tokens = output - thinking;
    }
}
