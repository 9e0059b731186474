//! Two-pass control as state machines without IO.

mod budget;
mod turn_parser;

pub use budget::{Admission, After, Phase, ThinkingBudget, ThinkingRule};
pub use turn_parser::{ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions};
