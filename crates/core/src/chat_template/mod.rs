//! Chat templates: messages in, a prompt out, ending at the assistant boundary.

/// One run of prompt text, with how it may be tokenised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text of the template, or text that holds no control token: tokenised with control
    /// tokens recognised.
    Markup(String),
    /// Text from a user, a tool or a file that spells a control token: tokenised as plain
    /// characters, so that it can never act as one (row M6).
    Literal(String),
}

/// A rendered prompt, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    /// The runs.
    pub segments: Vec<Segment>,
}
