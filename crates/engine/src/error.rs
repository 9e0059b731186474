use std::fmt;
use std::sync::Arc;

/// Why the engine refused or gave up. One sentence for people, [`Error::kind`] for programs.
///
/// Never holds prompts or generated text.
#[derive(Debug, Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    param: Option<&'static str>,
    source: Option<std::io::Error>,
}

/// What went wrong, to branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The model file is missing, unreadable, damaged, no GGUF, or not for text generation.
    BadModel,
    /// This processor lacks instructions that the engine was compiled for.
    UnsupportedCpu,
    /// An engine option is out of range.
    BadOption,
    /// A parameter of a request is wrong; see [`Error::param`].
    BadRequest,
    /// The prompt leaves no room for an answer.
    PromptTooLong {
        /// Its length; of one far too long, whose text says so, a lower bound of it.
        prompt_tokens: u32,
        /// The longest prompt that this request could have had.
        limit_tokens: u32,
    },
    /// Too many requests wait already. Try again later.
    QueueFull,
    /// The grammar does not compile, or cannot go on.
    BadGrammar,
    /// The grammar is longer than any that is taken.
    GrammarTooLarge,
    /// The KV cache has no room left for this stream although nothing else uses it.
    ContextFull,
    /// The engine was dropped or its thread ended.
    Stopped,
    /// A fault of the engine or of llama.cpp.
    Internal,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::build(kind, message.into(), None, None)
    }

    pub(crate) fn bad_request(param: &'static str, message: impl Into<String>) -> Self {
        Self::build(ErrorKind::BadRequest, message.into(), Some(param), None)
    }

    pub(crate) fn bad_option(param: &'static str, message: impl Into<String>) -> Self {
        Self::build(ErrorKind::BadOption, message.into(), Some(param), None)
    }

    pub(crate) fn with_source(kind: ErrorKind, message: String, source: std::io::Error) -> Self {
        Self::build(kind, message, None, Some(source))
    }

    fn build(
        kind: ErrorKind,
        message: String,
        param: Option<&'static str>,
        source: Option<std::io::Error>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                message,
                param,
                source,
            }),
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The option or request parameter at fault, by its field name.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.inner.param
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner.param {
            Some(param) => write!(f, "`{param}`: {}", self.inner.message),
            None => f.write_str(&self.inner.message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner
            .source
            .as_ref()
            .map(|e| e as &(dyn std::error::Error + 'static))
    }
}
