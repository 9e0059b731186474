//! Two-pass control as state machines without IO.

mod budget;
mod bound_schemas;
mod prompt;
mod replay;
mod turn_parser;
mod two_pass;
mod visible_logprobs;
mod whole;

pub use bound_schemas::OnUnboundSchema;
pub use budget::{Admission, After, Phase, ThinkingBudget, ThinkingRule};
pub use prompt::{PlanError, PlannedTurn, TextModel, TurnSettings, demanded_grammar, plan_turn};
pub use replay::{
    ReasoningSplit, ReplayPolicy, drop_reasoning, dropped_reasoning, replay, split_past_turn,
    split_reasoning,
};
pub use turn_parser::{
    AnswerForm, ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax,
};
pub use two_pass::{Means, PassEnd, PassRequest, Step, TurnPlan, TwoPass};
pub use visible_logprobs::VisibleLogprobs;
pub use whole::{read_calls, read_turn};
