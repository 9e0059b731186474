use super::{Diagnostic, InvalidToolCall, OpaqueItem, PassReport, TokenLogprob, ToolCall};

/// One step of a turn, as parsers and backends give it and every way in shows it.
///
/// Order is the order of the model's output. Merged (adjacent deltas joined) the events of
/// a turn are the same however its bytes were cut, save that `Reclassified` may move text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// More of the private trace. Never empty.
    ReasoningDelta(String),
    /// A think block ended; the next `ReasoningDelta` belongs to another block.
    ReasoningBlockEnd,
    /// More of the answer. Never empty, never holds a marker or part of one.
    TextDelta(String),
    /// The tokens under the `TextDelta` that comes next, where they were asked for. Never
    /// empty; a token of which only a part is shown is told whole.
    Logprobs(Vec<TokenLogprob>),
    /// All text sent so far in this turn was reasoning after all: a closing tag came whose
    /// opening nobody had announced (row C6). A reader moves its answer text so far to the
    /// reasoning and starts the answer anew. Calls made so far were drafts in the thought:
    /// they are void.
    Reclassified,
    /// A call began. `call_idx` counts the turn's calls from 0.
    CallStarted {
        /// Which call of the turn.
        call_idx: usize,
        /// Its id, unique over the conversation.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's argument text (a piece of one JSON object). Never empty.
    ArgumentsDelta {
        /// Which call of the turn.
        call_idx: usize,
        /// The piece.
        text: String,
    },
    /// A call is complete, checked and may be carried out.
    CallFinished {
        /// Which call of the turn.
        call_idx: usize,
        /// The call. Its argument text may differ from the deltas if it had to be repaired
        /// or coerced; the call is right.
        call: ToolCall,
    },
    /// A call failed its checks. `CallStarted` may or may not have been sent for it.
    CallRejected {
        /// Which call of the turn.
        call_idx: usize,
        /// The call with its reason.
        call: InvalidToolCall,
    },
    /// Something that only the provider can read, to be kept for later requests. It comes
    /// where it stood among the turn's text and calls.
    ProviderItem(OpaqueItem),
    /// Something irregular that did not stop the turn.
    Diagnostic(Diagnostic),
    /// A pass ended.
    PassFinished(PassReport),
}

impl Event {
    /// True for what the model wrote.
    #[must_use]
    pub fn is_output(&self) -> bool {
        matches!(
            self,
            Self::ReasoningDelta(_)
                | Self::TextDelta(_)
                | Self::CallStarted { .. }
                | Self::ArgumentsDelta { .. }
                | Self::CallFinished { .. }
        )
    }
}
