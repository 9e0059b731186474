use super::{
    Diagnostic, DiagnosticKind, InvalidToolCall, Message, OpaqueItem, Part, Role, TokenLogprob,
    ToolCall,
};

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StopReason {
    /// The model ended its turn.
    #[default]
    EndTurn,
    /// A stop string of the caller was met.
    StopSequence(String),
    /// A token cap was met.
    Length,
    /// The turn ends in calls to carry out.
    ToolCalls,
    /// The provider withheld the output.
    ContentFilter,
    /// The caller went away.
    Cancelled,
    /// The provider gave a reason that we do not know.
    Unknown(String),
}

impl StopReason {
    /// The name on our own wires: `stop`, `length`, `tool_calls`, `content_filter`,
    /// `cancelled`, or `unknown`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::EndTurn | Self::StopSequence(_) => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
            Self::Cancelled => "cancelled",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Tokens of a turn. Totals over all passes; what a pass reused is in `cached_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens that went in, cached ones included.
    pub prompt_tokens: u64,
    /// Tokens of the private trace, without the tags that frame it.
    pub thinking_tokens: u64,
    /// Tokens of the answer, calls included.
    pub response_tokens: u64,
    /// Prompt tokens that were not computed again.
    pub cached_tokens: u64,
}

impl Usage {
    /// What several answers to one prompt took: it counts once.
    #[must_use]
    pub fn of_choices(usages: impl IntoIterator<Item = Self>) -> Self {
        usages.into_iter().fold(Self::default(), |sum, one| Self {
            prompt_tokens: sum.prompt_tokens.max(one.prompt_tokens),
            thinking_tokens: sum.thinking_tokens + one.thinking_tokens,
            response_tokens: sum.response_tokens + one.response_tokens,
            cached_tokens: sum.cached_tokens.max(one.cached_tokens),
        })
    }
}

/// What one pass did: the proof of budgets and reuse.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PassReport {
    /// `thinking` or `answer`.
    pub name: &'static str,
    /// How the pass was made to happen: `engine_rule`, `completions_exact`,
    /// `chat_prefill`, `append_message`, `native_budget`, `generate` or `single`.
    pub means: &'static str,
    /// The cap that the pass ran under, if any.
    pub max_tokens: Option<u32>,
    /// Tokens computed before the first new one.
    pub prefill_tokens: u64,
    /// Tokens that were already in the KV cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub decode_tokens: u64,
    /// Wall time.
    pub duration_ms: f64,
    /// Why it ended.
    pub stop_reason: StopReason,
}

/// A whole turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// The answer: no tags, no call markup. Empty for a turn of calls only.
    pub content: String,
    /// The tokens of `content`, if they were asked for and the backend tells them.
    pub logprobs: Vec<TokenLogprob>,
    /// The private trace; several blocks are joined by a newline.
    pub reasoning: String,
    /// The calls to carry out, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The calls that failed their checks.
    pub invalid_tool_calls: Vec<InvalidToolCall>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// True if the budget cut the trace.
    pub reasoning_truncated: bool,
    /// Tokens.
    pub usage: Usage,
    /// One entry per pass.
    pub passes: Vec<PassReport>,
    /// What was irregular.
    pub diagnostics: Vec<Diagnostic>,
    /// What only the provider can read, in order, to be kept for later requests.
    pub provider_items: Vec<OpaqueItem>,
}

impl Reply {
    /// The turn as a message of the history: answer, reasoning, calls and what only the
    /// provider can read. Calls that failed their checks are left out.
    #[must_use]
    pub fn to_message(&self) -> Message {
        Message {
            content: if self.content.is_empty() {
                Vec::new()
            } else {
                vec![Part::Text(self.content.clone())]
            },
            reasoning: (!self.reasoning.is_empty()).then(|| self.reasoning.clone()),
            tool_calls: self.tool_calls.clone(),
            provider_items: self.provider_items.clone(),
            ..Message::text(Role::Assistant, "")
        }
    }

    /// True if the turn has nothing of what was asked for: neither an answer nor a call, or
    /// no call where one was required.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        let lacks_call = |d: &Diagnostic| d.kind == DiagnosticKind::MissingToolCall;
        self.answer_missing() || self.diagnostics.iter().any(lacks_call)
    }

    /// True if the turn holds neither an answer nor a call.
    #[must_use]
    pub fn answer_missing(&self) -> bool {
        self.content.trim().is_empty() && self.tool_calls.is_empty()
    }
}
