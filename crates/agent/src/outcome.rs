use std::fmt;
use std::sync::Arc;

use twopass_core::chat::{Message, Reply, Usage};
use twopass_provider::ProviderError;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The model answered, or a terminal tool did.
    Answer,
    /// The model would have been asked once more than allowed.
    MaxSteps,
    /// The calls of too many steps in a row failed, or could not be read.
    RepeatedFailures,
    /// The same calls gave the same results again and again.
    LoopDetected,
    /// The model gave neither text nor a call, after a nudge neither.
    EmptyAnswer,
    /// The model would not take the required steps.
    StepsMissing,
    /// The model kept calling a tool before what has to come first.
    PrerequisiteMissing,
    /// The run's tokens are spent.
    BudgetSpent,
    /// The model could not be asked; the outcome holds the error.
    Error,
    /// The caller ended the run.
    Cancelled,
}

impl EndReason {
    /// The name in JSON and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::MaxSteps => "max_steps",
            Self::RepeatedFailures => "repeated_failures",
            Self::LoopDetected => "loop_detected",
            Self::EmptyAnswer => "empty_answer",
            Self::StepsMissing => "steps_missing",
            Self::PrerequisiteMissing => "prerequisite_missing",
            Self::BudgetSpent => "budget_spent",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why it ended.
    pub end: EndReason,
    /// The answer; empty unless `end` is [`EndReason::Answer`].
    pub answer: String,
    /// The model's last turn, whatever it was. Its `stop_reason` tells an answer that the
    /// token cap cut; its `reasoning` is the private trace of the answer.
    pub last: Reply,
    /// The whole conversation, valid as the beginning of a further one: every call has its
    /// result.
    pub messages: Vec<Message>,
    /// How often the model was asked.
    pub n_steps: u32,
    /// Tokens of all steps.
    pub usage: Usage,
    /// What stopped the run, for [`EndReason::Error`].
    pub error: Option<Arc<ProviderError>>,
}

impl PartialEq for Outcome {
    /// Errors are equal if their kinds are.
    fn eq(&self, other: &Self) -> bool {
        let kind = |outcome: &Self| outcome.error.as_ref().map(|error| error.kind());
        self.end == other.end
            && self.answer == other.answer
            && self.last == other.last
            && self.messages == other.messages
            && self.n_steps == other.n_steps
            && self.usage == other.usage
            && kind(self) == kind(other)
    }
}
