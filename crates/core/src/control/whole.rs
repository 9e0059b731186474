//! Texts that are there as a whole.

use std::sync::LazyLock;

use crate::chat::{Reply, StopReason};
use crate::reasoning_parser::ReasoningSyntax;
use crate::tool_parser::{CallRules, ToolSyntax};

use super::{ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax};

/// Every dialect of calls and none of reasoning. Worked out once.
static ANY_DIALECT: LazyLock<TurnSyntax> = LazyLock::new(|| {
    let tools = ToolSyntax::from_name("auto").expect("`auto` names every dialect");
    TurnSyntax::new(ReasoningSyntax::none(), tools)
});

/// Reads a turn that ended so.
#[must_use]
pub fn read_turn(text: &str, options: TurnParserOptions, end: &TurnEnd) -> Reply {
    let mut parser = TurnParser::new(options);
    let mut events = Vec::new();
    parser.push(text, &mut events);
    let stop_reason = parser.finish(end, &mut events);
    let mut assembler = ReplyAssembler::new();
    events.iter().for_each(|event| assembler.handle(event));
    assembler.finish(stop_reason)
}

/// Reads an answer in which calls may stand in any dialect (`auto`); it was cut if it stopped
/// for its length. Reasoning in it stays text.
#[must_use]
pub fn read_calls(text: &str, rules: &CallRules, stop_reason: &StopReason) -> Reply {
    let options = TurnParserOptions {
        syntax: ANY_DIALECT.clone(),
        prompt_opened: Some(false),
        calls: rules.clone(),
        ..TurnParserOptions::default()
    };
    let end = TurnEnd {
        stop_reason: stop_reason.clone(),
        stop_string: None,
    };
    read_turn(text, options, &end)
}
