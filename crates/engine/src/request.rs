use twopass_core::chat::{PassReport, Sampling, StopReason, TokenLogprob, Usage};
use twopass_core::chat_template::Prompt;
use twopass_core::control::{Phase, ThinkingRule};

use crate::Error;

/// One turn to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// The prompt, up to the point where the model goes on.
    pub prompt: Prompt,
    /// Think within a budget first; the prompt has opened the block (or, for a budget of 0,
    /// holds it closed). The answer that follows is never empty: the end of the turn is
    /// refused until something visible was written.
    pub thinking: Option<ThinkingRule>,
    /// Cap on the answer's tokens, at least 1. `None`: until the context is full. Thinking
    /// has its own budget, and forced closing tokens count for neither.
    pub max_tokens: Option<u32>,
    /// Stop strings, none empty, at most 64 of 1024 bytes. They apply to the answer only; a
    /// string that was met is not part of the text.
    pub stop: Vec<String>,
    /// Constrains the answer. An object in it has no member twice.
    pub grammar: Option<Grammar>,
    /// How tokens are drawn. Defaults: temperature 0.3, `top_p` 0.95, `top_k` 40, `min_p`
    /// 0.05, no penalties, a random seed.
    pub sampling: Sampling,
    /// The LoRA adapter that the model has for this turn, by its name in
    /// [`crate::EngineOptions::lora`].
    pub lora: Option<String>,
    /// Tells the probabilities of the answer's tokens, each with so many of the likeliest ones
    /// at its place (0 to 20). Costs about a millisecond per token with a vocabulary of
    /// 150,000; what a grammar forces is then drawn token by token like the rest.
    pub logprobs: Option<u32>,
    /// For exact tests: the model draws the tokens of this text (control tokens recognised)
    /// and then ends its turn. Scheduler, rules and cache are the real ones; a token that a
    /// rule refuses is skipped, one that is taken back is drawn again.
    pub recite: Option<String>,
}

impl GenerateRequest {
    /// One pass with the defaults.
    #[must_use]
    pub fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            thinking: None,
            max_tokens: None,
            stop: Vec::new(),
            grammar: None,
            sampling: Sampling::default(),
            lora: None,
            logprobs: None,
            recite: None,
        }
    }
}

/// A grammar in llguidance's Lark dialect, of at most 1 MiB.
///
/// Control tokens are written as special tokens (`<|im_end|>` without quotes); tokens that
/// are merely never split (`<tool_call>` in most vocabularies) match as literal strings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grammar {
    /// The text; its start rule is `start`.
    pub lark: String,
    /// The text that opens what is bound, where the grammar leaves the model free before it
    /// and after; `None`: all of the answer is bound.
    ///
    /// A free answer may end with a call inside the thought, and only what is bound is kept
    /// from naming a member twice.
    pub opens_at: Option<String>,
    /// Whether the turn goes on unbound where the grammar cannot go on, as one of endless
    /// recursion cannot; [`Outcome::grammar_failure`] tells. False: the turn fails.
    pub is_optional: bool,
}

impl Grammar {
    /// A grammar of the whole answer.
    #[must_use]
    pub fn whole(lark: impl Into<String>) -> Self {
        Self {
            lark: lark.into(),
            opens_at: None,
            is_optional: false,
        }
    }
}

/// What a stream gives: texts, then one `Done`, then nothing.
#[derive(Debug, Clone)]
pub enum Output {
    /// More of the turn.
    Text {
        /// Whole characters, never empty. A forced closing text is part of it.
        text: String,
        /// Tokens that were drawn for it; 0 for a forced closing text.
        n_tokens: u32,
        /// Which phase it belongs to. The closing tag belongs to the thought.
        phase: Phase,
        /// The tokens that were drawn for it, if they were asked for and it is the answer's.
        logprobs: Vec<TokenLogprob>,
    },
    /// The turn is over.
    Done(Box<Outcome>),
}

/// How a turn ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why it ended, or what failed. The text sent so far is right in any case.
    pub stop: Result<StopReason, Error>,
    /// `thinking` and `answer` with a thinking rule, else one entry `single`. The second
    /// pass' `prefill_tokens` are the forced closing tokens and nothing else.
    pub passes: Vec<PassReport>,
    /// Tokens of the turn.
    pub usage: Usage,
    /// The budget (or the context's end) cut the thought.
    pub thinking_truncated: bool,
    /// The model ended its turn inside the thought, and the close was supplied.
    pub ended_in_thought: bool,
    /// Why an optional grammar was dropped within the turn.
    pub grammar_failure: Option<String>,
    /// The bound text is whole because it was brought to its end: its cap, or the context's
    /// end, was near.
    pub is_hurried: bool,
}
