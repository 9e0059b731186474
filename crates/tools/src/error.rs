use std::error::Error as StdError;
use std::fmt;

/// Who must act on a [`ToolError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No tool of this name; the model hears which there are.
    UnknownTool,
    /// The arguments do not fit the schema; the model hears where.
    InvalidArguments,
    /// The policy or a person refused the call; the model hears it.
    Refused,
    /// The path leaves the workspace; the model hears it.
    OutsideWorkspace,
    /// The file, folder or item does not exist; the model hears it.
    NotFound,
    /// A file, argument or answer is over its limit; the model hears the limit.
    TooLarge,
    /// The call took longer than allowed; the model hears the limit.
    Timeout,
    /// The tool could not do what it was asked; the model hears why.
    Failed,
    /// A tool of this name is registered already, or the name is no name: the program must act.
    BadName,
    /// The tool's schema cannot be used: its author must act.
    BadSchema,
    /// The workspace, a database or a tool server cannot be used: the operator must act.
    Unavailable,
    /// A fault of ours: the tool panicked.
    Internal,
}

impl ErrorKind {
    /// The name in JSON and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::Refused => "refused",
            Self::OutsideWorkspace => "outside_workspace",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::BadName => "bad_name",
            Self::BadSchema => "bad_schema",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

/// Why a tool gave no answer, or could not be registered.
///
/// Its `Display` is written for the model as much as for people: it says what was tried,
/// with which value, and what is allowed.
pub struct ToolError(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl ToolError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Repr {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// The tool could not do what it was asked.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolError")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for ToolError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
