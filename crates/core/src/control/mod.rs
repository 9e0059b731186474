//! Two-pass control as state machines without IO.

mod budget;

pub use budget::{Admission, After, Phase, ThinkingBudget, ThinkingRule};
