/// A format of requests whose fields differ from those of every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireFormat {
    /// OpenAI's Chat Completions.
    ChatCompletions,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
    /// Ollama's `/api/chat`.
    OllamaChat,
    /// Our own `/generate`.
    Generate,
}

/// Fields of a client's request that nobody here reads (`user`, `logit_bias`). They go on to a
/// service of the same format as they stand; what we write ourselves wins over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passthrough {
    /// Where they mean something.
    pub format: WireFormat,
    /// Name and JSON text of each; never empty.
    pub fields: Vec<(String, String)>,
}

impl Passthrough {
    /// These fields, if there are any.
    #[must_use]
    pub fn of(format: WireFormat, fields: Vec<(String, String)>) -> Option<Self> {
        (!fields.is_empty()).then_some(Self { format, fields })
    }
}
