//! Calls that a model wrote in a format that nobody looked for: they stay text, and the reply
//! says so.

use twopass_core::chat::{Diagnostic, DiagnosticKind, Reply, StopReason, ToolChoice};
use twopass_core::control::{AnswerForm, TurnParserOptions, read_calls};
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
        let may_call =
            offers && rules.choice != ToolChoice::None && parser.answer_form == AnswerForm::Free;
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
                code_blocks(&reply.content).find_map(|block| called(&block))?,
                "in a block of code, where calls are text: `tool_parser: fenced` reads blocks \
                 of `tool_call`, an entry of `dialects` whose `open` is the block's first line \
                 reads others",
            ),
        };
        let message = format!("the answer holds what reads as a call of `{name}`, {why}");
        Some(Diagnostic::new(DiagnosticKind::UnreadToolCall, message))
    }
}

/// The tool that the text calls in any dialect, its arguments valid or not.
fn called(text: &str, rules: &CallRules, stop_reason: &StopReason) -> Option<String> {
    if text.trim().is_empty() {
        return None;
    }
    let found = read_calls(text, rules, stop_reason);
    let valid = found.tool_calls.into_iter().map(|call| call.name);
    let is_offered = |name: &String| rules.tools.as_ref()?.get(name);
    let broken = found.invalid_tool_calls.into_iter();
    let broken = broken.filter_map(|call| call.name.filter(|name| is_offered(name).is_some()));
    valid.chain(broken).next()
}

/// What stands between lines of Markdown that open and close a block of code.
fn code_blocks(text: &str) -> impl Iterator<Item = String> {
    let mut lines = text.lines();
    let next = move || {
        let mark = lines.by_ref().find_map(fence)?;
        let block = lines.by_ref().take_while(|line| fence(line) != Some(mark));
        Some(block.collect::<Vec<_>>().join("\n"))
    };
    std::iter::from_fn(next).take(MAX_BLOCKS)
}

/// The marks by which a line opens or closes a block of code.
fn fence(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    ["```", "~~~"]
        .into_iter()
        .find(|mark| line.starts_with(mark))
}
