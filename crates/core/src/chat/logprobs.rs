/// Most alternatives per token that a request may ask for, as OpenAI has it.
pub const MAX_TOP_LOGPROBS: u32 = 20;

/// How likely one token of the answer was.
///
/// By the model's own distribution: before temperature, penalties, `top_p` and its kin, and
/// before any grammar. So a token that a grammar forced may be an unlikely one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenLogprob {
    /// Its bytes. A character may begin in one token and end in the next.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability, at most 0.
    pub logprob: f32,
    /// The likeliest tokens at its place, the likeliest first: as many as were asked for.
    pub top: Vec<TopLogprob>,
}

/// One of the likeliest tokens at a place.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopLogprob {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability, at most 0.
    pub logprob: f32,
}
