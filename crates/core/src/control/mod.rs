//! Two-pass control as state machines without IO.

mod budget;
mod prompt;
mod turn_parser;
mod two_pass;

pub use budget::{Admission, After, Phase, ThinkingBudget, ThinkingRule};
pub use prompt::{PlanError, PlannedTurn, ReplayPolicy, TextModel, TurnSettings, plan_turn};
pub use turn_parser::{ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions};
pub use two_pass::{Means, PassEnd, PassRequest, Step, TurnPlan, TwoPass};
