//! Calls that a model wrote as plain text, in a dialect that nobody looked for (row L1).

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use twopass_core::chat::{
    Diagnostic, DiagnosticKind, Event, Message, Reply, Role, StopReason, ToolCall,
};
use twopass_core::control::{ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::tool_parser::{CallRules, ToolSet, ToolSyntax};

/// Takes what reads as calls in the answer for calls, if all of it holds: the turn has none
/// of its own, the calls are whole, of known tools and fit their schemas, and no tool result
/// holds the same call: what a page or a file says is never carried out, quoted neither.
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
    let cut = reply.stop_reason == StopReason::Length;
    let Some(found) = read(&reply.content, &rules, cut) else {
        return;
    };
    let is_quoted = |call: &ToolCall| {
        let results = history.iter().filter(|message| message.role == Role::Tool);
        results
            .filter_map(|result| read(&result.content_text(), &rules, false))
            .flat_map(|result| result.tool_calls)
            .any(|quoted| quoted.name == call.name && quoted.arguments == call.arguments)
    };
    if found.tool_calls.is_empty() || found.tool_calls.iter().any(is_quoted) {
        return;
    }
    reply.content = found.content;
    reply.tool_calls = found.tool_calls;
    reply.invalid_tool_calls = found.invalid_tool_calls;
    reply.diagnostics.push(Diagnostic::new(
        DiagnosticKind::Degraded,
        "the service took a call for text; it was read by its dialect",
    ));
    if reply.stop_reason != StopReason::Length {
        reply.stop_reason = StopReason::ToolCalls;
    }
}

/// Every dialect of calls. Worked out once.
static ANY: LazyLock<Option<TurnSyntax>> = LazyLock::new(|| {
    let tools = ToolSyntax::from_name("auto")?;
    Some(TurnSyntax::new(ReasoningSyntax::default(), tools))
});

/// The text, read in every dialect.
fn read(text: &str, rules: &CallRules, cut: bool) -> Option<Reply> {
    let mut parser = TurnParser::new(TurnParserOptions {
        syntax: ANY.clone()?,
        prompt_opened: Some(false),
        calls: rules.clone(),
        ..TurnParserOptions::default()
    });
    let mut events: Vec<Event> = Vec::new();
    parser.push(text, &mut events);
    let end = TurnEnd {
        stop_reason: match cut {
            true => StopReason::Length,
            false => StopReason::EndTurn,
        },
        stop_string: None,
    };
    let stop_reason = parser.finish(&end, &mut events);
    let mut assembler = ReplyAssembler::new();
    events.iter().for_each(|event| assembler.handle(event));
    Some(assembler.finish(stop_reason))
}
