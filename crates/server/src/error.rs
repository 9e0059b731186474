//! Why a server did not start or had to end. Errors of single requests are [`crate::api_error`].

use std::error::Error as StdError;
use std::fmt;

use twopass_provider::ProviderError;

/// Who must act on an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option is wrong: the host, the keys file, the default provider.
    Config,
    /// The model of the default provider does not load.
    Provider,
    /// The system refused: the port is taken, the address is not ours.
    Io,
}

/// A server that cannot run, and why.
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self(Box::new(Repr {
            kind: ErrorKind::Config,
            message: message.into(),
            source: None,
        }))
    }

    /// The message ends with the system's reason, since most readers see nothing else.
    pub(crate) fn io(message: impl Into<String>, source: std::io::Error) -> Self {
        Self(Box::new(Repr {
            kind: ErrorKind::Io,
            message: format!("{}: {source}", message.into()),
            source: Some(Box::new(source)),
        }))
    }

    pub(crate) fn provider(source: ProviderError) -> Self {
        Self(Box::new(Repr {
            kind: ErrorKind::Provider,
            message: source.to_string(),
            source: source.source().map(|cause| cause.to_string().into()),
        }))
    }

    /// The kind to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}
