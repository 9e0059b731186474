//! Raw completions: a prompt of token ids or text in, text and ids out.
//!
//! `/v1/completions` as vLLM and others speak it, both ways, and llama.cpp's own
//! `/completion` (client side), which alone tells the matched stop string there. Also what
//! belongs to them: tokenizing, detokenizing, templates, the size of the context.
//!
//! The text is the model's raw output: the reader runs the two-pass controller and the turn
//! parser over it. Ids that come back include those of a matched stop string, although the
//! text does not: one id where the string is one token, several elsewhere.
//!
//! Sources: vLLM 0.32 and llama.cpp build 11549 as recorded, read 2026-01.

mod read;
mod tokens;
mod write;

pub use read::{StreamDecoder, decode_reply};
pub use tokens::{
    Tokenized, decode_context_tokens, decode_prompt, decode_tokens, encode_apply_template,
    encode_detokenize, encode_tokenize, encode_tokenize_messages,
};
pub use write::{
    StreamEncoder, decode_request, encode_native_request, encode_reply, encode_request, wants_usage,
};

use serde_json::Value;
use twopass_core::chat::{Sampling, StopReason, TokenLogprob, Usage};

use crate::facts::RepeatPenaltyField;

/// What the model goes on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Token ids: nothing is tokenized again, so the prefix cache holds.
    Ids(Vec<u32>),
    /// Text, special tokens in it included.
    Text(String),
}

/// What the output is bound to.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// JSON that fits a schema.
    JsonSchema(Value),
    /// A grammar in the engine's own language.
    Grammar(String),
    /// A regular expression.
    Regex(String),
}

/// A request of a completion.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The model's id, verbatim.
    pub model: String,
    /// What the model goes on from.
    pub prompt: Prompt,
    /// The cap; `None` = until the context is full.
    pub max_tokens: Option<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Asks for the probabilities of the tokens, each with so many alternatives (0 to 20).
    pub logprobs: Option<u32>,
    /// Strings that end the output.
    pub stop: Vec<String>,
    /// What the output is bound to.
    pub constraint: Option<Constraint>,
    /// True: the answer is a stream.
    pub stream: bool,
    /// Further top-level fields, name and JSON text, sent as they stand.
    pub extra: Vec<(String, String)>,
}

impl CompletionRequest {
    /// A request to go on from this prompt.
    #[must_use]
    pub fn new(model: impl Into<String>, prompt: Prompt) -> Self {
        Self {
            model: model.into(),
            prompt,
            max_tokens: None,
            sampling: Sampling::default(),
            logprobs: None,
            stop: Vec::new(),
            constraint: None,
            stream: false,
            extra: Vec::new(),
        }
    }
}

/// What an engine's `/v1/completions` accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionFacts {
    /// True if `return_token_ids` and `add_special_tokens` are known.
    pub token_ids: bool,
    /// True if `top_k` and `min_p` are known.
    pub top_k_min_p: bool,
    /// The field of the multiplied repeat penalty, if it is known.
    pub repeat_penalty_field: Option<RepeatPenaltyField>,
    /// True if `structured_outputs` is known.
    pub structured_outputs: bool,
    /// True if usage must be asked for in a stream.
    pub stream_options: bool,
}

impl CompletionFacts {
    /// An engine with all of vLLM's fields.
    pub const FULL: Self = Self {
        token_ids: true,
        top_k_min_p: true,
        repeat_penalty_field: Some(RepeatPenaltyField::RepetitionPenalty),
        structured_outputs: true,
        stream_options: true,
    };

    /// OpenAI's old fields only.
    pub const PLAIN: Self = Self {
        token_ids: false,
        top_k_min_p: false,
        repeat_penalty_field: None,
        structured_outputs: false,
        stream_options: true,
    };
}

/// A piece of a streamed completion.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompletionPiece {
    /// The text; may be empty.
    pub text: String,
    /// The token ids, if the engine gives them.
    pub token_ids: Vec<u32>,
    /// The tokens' probabilities, where a server writes them.
    pub logprobs: Vec<TokenLogprob>,
}

/// A whole completion.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completion {
    /// The text, without a matched stop string.
    pub text: String,
    /// The token ids, a matched stop string's included; empty if the engine gives none.
    pub token_ids: Vec<u32>,
    /// The tokens' probabilities, where a server writes them.
    pub logprobs: Vec<TokenLogprob>,
    /// The prompt's ids, if the engine gives them.
    pub prompt_token_ids: Vec<u32>,
    /// Why it ended. A matched stop string is told where the engine tells it.
    pub stop_reason: StopReason,
    /// Tokens; all that was generated is in `response_tokens`.
    pub usage: Usage,
}
