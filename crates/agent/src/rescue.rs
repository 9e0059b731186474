//! Calls that a model wrote as plain text, in a dialect that nobody looked for (row L1).

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use twopass_core::chat::{Diagnostic, DiagnosticKind, Message, Reply, Role, StopReason, ToolCall};
use twopass_core::control::read_calls;
use twopass_core::tool_parser::{CallRules, ToolSet};

/// Takes what reads as calls in the answer for calls, if all of it holds: the turn has none
/// of its own, the calls are whole, of known tools and fit their schemas, and no text of
/// another holds the same call: what a page, a file or a pasted text says is never carried out,
/// quoted neither.
pub(crate) fn rescue(
    reply: &mut Reply,
    tools: &Arc<ToolSet>,
    taken_ids: &HashSet<String>,
    history: &[&Message],
) {
    let has_calls = !reply.tool_calls.is_empty() || !reply.invalid_tool_calls.is_empty();
    if has_calls || tools.is_empty() || reply.content.trim().is_empty() {
        return;
    }
    let rules = CallRules {
        tools: Some(Arc::clone(tools)),
        taken_ids: taken_ids.clone(),
        ..CallRules::default()
    };
    let found = read_calls(&reply.content, &rules, &reply.stop_reason);
    let others = history
        .iter()
        .filter(|message| matches!(message.role, Role::Tool | Role::User))
        .map(|message| plain(&message.content_text()));
    let others: Vec<String> = others.collect();
    let is_quoted = |call: &ToolCall| {
        let holds = |text: &String| {
            read_calls(text, &rules, &StopReason::EndTurn)
                .tool_calls
                .iter()
                .any(|quoted| quoted.name == call.name && quoted.arguments == call.arguments)
                || holds_parts(text, call)
        };
        others.iter().any(holds)
    };
    if found.tool_calls.is_empty() || found.tool_calls.iter().any(is_quoted) {
        return;
    }
    reply.content = found.content;
    reply.tool_calls = found.tool_calls;
    reply.invalid_tool_calls = found.invalid_tool_calls;
    // What the turn said of the call no longer holds.
    let notes = &mut reply.diagnostics;
    notes.retain(|note| note.kind != DiagnosticKind::UnreadToolCall);
    reply.diagnostics.push(Diagnostic::new(
        DiagnosticKind::Degraded,
        "a call was left in the text; it was read by its dialect",
    ));
    if reply.stop_reason != StopReason::Length {
        reply.stop_reason = StopReason::ToolCalls;
    }
}

/// Words that stand in calls of every dialect.
const CALL_WORDS: [&str; 6] = [
    "tool_call",
    "function",
    "arguments",
    "parameter",
    "invoke",
    "tool_use",
];

/// True if the text has something of a call and names this tool and each line of its arguments:
/// a call need not be readable in one piece to be quoted (line numbers, an excerpt).
fn holds_parts(text: &str, call: &ToolCall) -> bool {
    let holds = |part: &str| text.contains(part);
    let mut values = call.arguments.as_object().values();
    CALL_WORDS.into_iter().any(holds)
        && holds(&call.name)
        && values.all(|value| holds_value(text, value))
}

fn holds_value(text: &str, value: &Value) -> bool {
    match value {
        Value::Object(members) => members.values().all(|value| holds_value(text, value)),
        Value::Array(items) => items.iter().all(|value| holds_value(text, value)),
        Value::String(line) => {
            let in_json = Value::from(line.as_str()).to_string();
            let mut lines = line.lines().map(str::trim);
            text.contains(&in_json[1..in_json.len() - 1]) || lines.all(|line| text.contains(line))
        }
        other => text.contains(&other.to_string()),
    }
}

/// Text without the names that HTML has for characters of markup.
fn plain(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&#34;", "\"");
    let text = text.replace("&#39;", "'").replace("&apos;", "'");
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use twopass_core::chat::ToolSpec;

    use super::*;

    // Row L1: what the turn said of the call that nobody read no longer holds.
    #[test]
    fn the_note_of_an_unread_call_goes_with_the_call() {
        let tool = ToolSpec {
            name: "find".to_owned(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
        };
        let tools = Arc::new(ToolSet::new([tool]));
        let unread = Diagnostic::new(DiagnosticKind::UnreadToolCall, "a call of `find`");
        let kinds = |content: &str| {
            let mut reply = Reply {
                content: content.to_owned(),
                diagnostics: vec![unread.clone()],
                ..Reply::default()
            };
            rescue(&mut reply, &tools, &HashSet::new(), &[]);
            let kinds = reply.diagnostics.iter().map(|note| note.kind);
            kinds.collect::<Vec<_>>()
        };
        let call = "{\"name\": \"find\", \"arguments\": {}}";
        assert_eq!(kinds(call), [DiagnosticKind::Degraded]);
        assert_eq!(kinds("None."), [DiagnosticKind::UnreadToolCall]);
    }
}
