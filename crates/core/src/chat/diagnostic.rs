use std::fmt;

/// What kind of irregularity was met. None of them stops a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// The output ended inside a think block.
    UnclosedReasoning,
    /// A closing tag came without an opening one: the text before it is reasoning.
    OrphanClose,
    /// A closing tag at the head of pass 2 was dropped.
    StrayClose,
    /// The template opens the think block itself, so no second tag was added.
    TemplateOpensThink,
    /// The turn ended inside the thought; the close was supplied.
    EndedInThought,
    /// A call's JSON was readable only by the lenient reader.
    RepairedJson,
    /// A call was rejected and dropped; it is in `invalid_tool_calls`.
    InvalidToolCall,
    /// A call was written although none was allowed.
    CallNotAllowed,
    /// `tool_choice` demanded a call and none came.
    MissingToolCall,
    /// The answer holds what reads as a call, in a format that was not looked for: it is text.
    UnreadToolCall,
    /// A limit was reached; the rest was kept as text or refused, or, before a cap, what is
    /// bound was brought to its end.
    LimitReached,
    /// Bytes that are not UTF-8 were replaced.
    InvalidUtf8,
    /// A degraded way was taken (a refused prefill).
    Degraded,
    /// Another entry answers, since the one that was asked failed before its first output.
    Fallback,
    /// A pass failed after the thought was complete.
    PassFailed,
}

impl DiagnosticKind {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::UnclosedReasoning,
        Self::OrphanClose,
        Self::StrayClose,
        Self::TemplateOpensThink,
        Self::EndedInThought,
        Self::RepairedJson,
        Self::InvalidToolCall,
        Self::CallNotAllowed,
        Self::MissingToolCall,
        Self::UnreadToolCall,
        Self::LimitReached,
        Self::InvalidUtf8,
        Self::Degraded,
        Self::Fallback,
        Self::PassFailed,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnclosedReasoning => "unclosed_reasoning",
            Self::OrphanClose => "orphan_close",
            Self::StrayClose => "stray_close",
            Self::TemplateOpensThink => "template_opens_think",
            Self::EndedInThought => "ended_in_thought",
            Self::RepairedJson => "repaired_json",
            Self::InvalidToolCall => "invalid_tool_call",
            Self::CallNotAllowed => "call_not_allowed",
            Self::MissingToolCall => "missing_tool_call",
            Self::UnreadToolCall => "unread_tool_call",
            Self::LimitReached => "limit_reached",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::Degraded => "degraded",
            Self::Fallback => "fallback",
            Self::PassFailed => "pass_failed",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// One irregularity, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind to branch on.
    pub kind: DiagnosticKind,
    /// One sentence, lower case, no full stop. Never holds prompts or bodies.
    pub message: String,
}

impl Diagnostic {
    /// A diagnostic of this kind.
    #[must_use]
    pub fn new(kind: DiagnosticKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name() {
        for (number, kind) in DiagnosticKind::ALL.into_iter().enumerate() {
            assert_eq!(DiagnosticKind::from_name(kind.as_str()), Some(kind));
            assert_eq!(kind as usize, number, "`{}`", kind.as_str());
        }
    }
}
