use twopass_core::chat::{self, Reply, ToolCall, Usage};
use twopass_tools::ToolOutput;

use crate::{Compacted, Nudge, Outcome};

/// One thing that happened in a run, in the order in which it happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AgentEvent {
    /// The model is asked. Steps count from 1.
    StepStarted {
        /// Which step of the run.
        step: u32,
    },
    /// The model's turn goes on.
    Delta(chat::Event),
    /// The model's turn is whole.
    StepFinished {
        /// Which step of the run.
        step: u32,
        /// The turn: reasoning, text, calls, usage.
        reply: Box<Reply>,
    },
    /// A call waits for a person: [`crate::Run::consent`] lets it go on.
    ConsentNeeded {
        /// The call.
        call: ToolCall,
    },
    /// A call runs.
    CallStarted {
        /// The call.
        call: ToolCall,
    },
    /// A call has its result; it comes for every call exactly once, in the order in which
    /// they end. A call that could not run has a result, too.
    CallFinished {
        /// The call.
        call: ToolCall,
        /// What it gave.
        output: ToolOutput,
    },
    /// The model is told what is wrong.
    Nudged(Nudge),
    /// The history was made shorter.
    Compacted(Compacted),
    /// The history takes up this much of the context: 50, 65 or 80 per cent, each told once.
    ContextFilling {
        /// Per cent of the context.
        percent: u8,
    },
    /// An attempt to update the working memory after the answer (workflow agents).
    MemoryUpdated {
        /// Which attempt, from 1.
        attempt: u32,
        /// Why it changed nothing; `None` if it did what it said.
        error: Option<String>,
        /// The memory's revision now.
        revision: u64,
        /// Tokens of the attempt.
        usage: Usage,
    },
    /// The run is over. Nothing follows.
    Ended(Box<Outcome>),
}
