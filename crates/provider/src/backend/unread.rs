//! Calls that a model wrote in a format that nobody looked for: they stay text, and the reply
//! says so.

use twopass_core::chat::{Diagnostic, DiagnosticKind, Reply, StopReason, ToolChoice};
use twopass_core::control::{TurnParserOptions, read_calls};
use twopass_core::tool_parser::CallRules;

/// Blocks of code in which a call is looked for; those behind them are not read.
const MAX_BLOCKS: usize = 64;

/// What tells a call in an answer from other text; by default there is nothing to tell.
#[derive(Default)]
pub(super) struct UnreadCalls {
    /// `None` if a call in the answer would be none: no tools, or an answer bound to a form.
    rules: Option<CallRules>,
}

impl UnreadCalls {
    /// What to look for in an answer that this parser has read.
    pub(super) fn of(parser: &TurnParserOptions) -> Self {
        let rules = &parser.calls;
        let offers = rules.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let may_call = offers && rules.choice != ToolChoice::None && !parser.answer_is_bound;
        Self {
            rules: may_call.then(|| CallRules {
                tools: rules.tools.clone(),
                choice: rules.choice.clone(),
                ..CallRules::default()
            }),
        }
    }

    /// What to say of a turn whose answer holds a call, if none was found in it.
    pub(super) fn note(&self, reply: &Reply) -> Option<Diagnostic> {
        let rules = self.rules.as_ref()?;
        if !reply.tool_calls.is_empty() || !reply.invalid_tool_calls.is_empty() {
            return None;
        }
        let called = |text: &str| called(text, rules, &reply.stop_reason);
        let (name, why) = match called(&reply.content) {
            Some(name) => (
                name,
                "in a format that was not looked for: `tool_parser: auto`, or the format's \
                 name, would read it",
            ),
            None => (
                code_blocks(&reply.content).find_map(called)?,
                "in a block of code, where calls are text: `tool_parser: fenced` reads blocks \
                 of `tool_call`, an entry of `dialects` whose `open` is the block's first line \
                 reads others",
            ),
        };
        let message = format!("the answer holds what reads as a call of `{name}`, {why}");
        Some(Diagnostic::new(DiagnosticKind::UnreadToolCall, message))
    }
}

/// The tool that the text calls in any dialect.
fn called(text: &str, rules: &CallRules, stop_reason: &StopReason) -> Option<String> {
    if text.trim().is_empty() {
        return None;
    }
    let found = read_calls(text, rules, stop_reason).tool_calls;
    Some(found.into_iter().next()?.name)
}

/// What stands between Markdown's fences, without the line that names the language.
fn code_blocks(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split("```").skip(1).step_by(2).take(MAX_BLOCKS);
    pieces.filter_map(|piece| Some(piece.split_once('\n')?.1))
}
