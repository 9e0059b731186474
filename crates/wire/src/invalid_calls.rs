//! Calls that failed their checks, in answers: a field of ours on every wire (row M7).

use serde_json::{Value, json};
use twopass_core::chat::{InvalidToolCall, Reply};

/// The field's name.
pub(crate) const INVALID_CALLS: &str = "invalid_tool_calls";

/// The turn's invalid calls, each with its reason.
pub(crate) fn invalid_calls_json(reply: &Reply) -> Value {
    let calls = reply.invalid_tool_calls.iter();
    calls.map(encode_invalid_call).collect()
}

/// The same for wires on which the field is only there if there is something to tell.
pub(crate) fn some_invalid_calls(reply: &Reply) -> Option<Value> {
    (!reply.invalid_tool_calls.is_empty()).then(|| invalid_calls_json(reply))
}

/// An invalid call. `arguments` is text: it need not be JSON.
fn encode_invalid_call(call: &InvalidToolCall) -> Value {
    json!({
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "kind": call.kind.as_str(),
        "path": call.path,
        "message": call.message,
    })
}
