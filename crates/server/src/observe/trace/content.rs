//! What was asked and answered, for traces that are to hold it.
//!
//! Source of the shape: OpenTelemetry semantic conventions 1.37, the JSON schemas of
//! `gen_ai.input.messages` and `gen_ai.output.messages`.

use serde_json::{Value, json};
use twopass_core::chat::{Message, Part, Reply, Role, ToolCall};

/// Messages of one request; further ones at its beginning are left out.
const MESSAGES_MAX: usize = 128;
/// Bytes of one text; what is longer is cut.
const TEXT_BYTES: usize = 16 << 10;

/// The conversation.
pub(super) fn asked(messages: &[Message]) -> Value {
    let last = messages.len().saturating_sub(MESSAGES_MAX);
    messages[last..].iter().map(message).collect()
}

fn message(message: &Message) -> Value {
    let mut parts = reasoning(message.reasoning.as_deref().unwrap_or_default());
    if message.role == Role::Tool {
        parts.push(json!({
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "response": cut(&message.content_text()),
        }));
    } else {
        parts.extend(message.content.iter().map(|part| match part {
            Part::Text(text) => json!({"type": "text", "content": cut(text)}),
            Part::Image(_) => json!({"type": "image"}),
            Part::Audio(_) => json!({"type": "audio"}),
            _ => json!({"type": "file"}),
        }));
    }
    parts.extend(message.tool_calls.iter().map(call));
    json!({"role": message.role.as_str(), "parts": parts})
}

/// One answer.
pub(super) fn answered(reply: &Reply) -> Value {
    let mut parts = reasoning(&reply.reasoning);
    if !reply.content.is_empty() {
        parts.push(json!({"type": "text", "content": cut(&reply.content)}));
    }
    parts.extend(reply.tool_calls.iter().map(call));
    json!({
        "role": "assistant",
        "parts": parts,
        "finish_reason": reply.stop_reason.as_str(),
    })
}

fn reasoning(text: &str) -> Vec<Value> {
    match text {
        "" => Vec::new(),
        text => vec![json!({"type": "reasoning", "content": cut(text)})],
    }
}

fn call(call: &ToolCall) -> Value {
    json!({
        "type": "tool_call",
        "id": call.id,
        "name": call.name,
        "arguments": cut(call.arguments.as_text()),
    })
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES)]
}
