use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use twopass_core::chat::{BadRequest, Reply};
use twopass_wire::error::ErrorBody;
use twopass_wire::fault::{Fault, FaultKind, Refused};

/// Who must act, and on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration is wrong: the person who wrote it must act.
    Config,
    /// The backend is planned but not built yet.
    NotBuilt,
    /// The request is wrong: the caller must act.
    BadRequest,
    /// The prompt does not fit the model's context: the caller must act.
    ContextLength,
    /// The key is missing, wrong or not allowed: the operator must act.
    Auth,
    /// The model, file or address does not exist.
    NotFound,
    /// The model's file cannot be used: missing, damaged, or of an unknown kind.
    Model,
    /// A downloaded file is not the one that was expected.
    Checksum,
    /// The account's quota is used up: the operator must act.
    QuotaExhausted,
    /// Too many requests; retry later.
    RateLimited,
    /// The backend's queue is full; retry later.
    QueueFull,
    /// The backend is overloaded; retry later.
    Overloaded,
    /// No connection: refused, no such host, TLS.
    Connect,
    /// No connection within its deadline.
    TimeoutConnect,
    /// No output within its deadline.
    TimeoutFirstToken,
    /// The output stalled.
    TimeoutIdle,
    /// The turn took longer than allowed.
    TimeoutTotal,
    /// The backend failed.
    UpstreamError,
    /// The backend's answer cannot be read.
    InvalidResponse,
    /// The backend's stream ended before its end.
    StreamTruncated,
    /// One event of the backend's stream, or a whole reply, is over the limit.
    EventTooLarge,
    /// A last assistant message is not continued by the backend.
    PrefillUnsupported,
    /// Vectors of another size than was asked for.
    DimensionMismatch,
    /// The turn was cancelled.
    Cancelled,
    /// A file or pipe of this machine failed.
    Io,
    /// A fault of ours.
    Internal,
}

impl ErrorKind {
    /// Every kind, for tables and for reading names back.
    pub const ALL: [Self; 26] = [
        Self::Config,
        Self::NotBuilt,
        Self::BadRequest,
        Self::ContextLength,
        Self::Auth,
        Self::NotFound,
        Self::Model,
        Self::Checksum,
        Self::QuotaExhausted,
        Self::RateLimited,
        Self::QueueFull,
        Self::Overloaded,
        Self::Connect,
        Self::TimeoutConnect,
        Self::TimeoutFirstToken,
        Self::TimeoutIdle,
        Self::TimeoutTotal,
        Self::UpstreamError,
        Self::InvalidResponse,
        Self::StreamTruncated,
        Self::EventTooLarge,
        Self::PrefillUnsupported,
        Self::DimensionMismatch,
        Self::Cancelled,
        Self::Io,
        Self::Internal,
    ];

    /// The name on our wires.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::NotBuilt => "not_built",
            Self::BadRequest => "bad_request",
            Self::ContextLength => "context_length",
            Self::Auth => "auth",
            Self::NotFound => "not_found",
            Self::Model => "model",
            Self::Checksum => "checksum",
            Self::QuotaExhausted => "quota_exhausted",
            Self::RateLimited => "rate_limited",
            Self::QueueFull => "queue_full",
            Self::Overloaded => "overloaded",
            Self::Connect => "connect",
            Self::TimeoutConnect => "timeout_connect",
            Self::TimeoutFirstToken => "timeout_first_token",
            Self::TimeoutIdle => "timeout_idle",
            Self::TimeoutTotal => "timeout_total",
            Self::UpstreamError => "upstream_error",
            Self::InvalidResponse => "invalid_response",
            Self::StreamTruncated => "stream_truncated",
            Self::EventTooLarge => "event_too_large",
            Self::PrefillUnsupported => "prefill_unsupported",
            Self::DimensionMismatch => "dimension_mismatch",
            Self::Cancelled => "cancelled",
            Self::Io => "io",
            Self::Internal => "internal",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// True if the same request may succeed a little later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::QueueFull
                | Self::Overloaded
                | Self::Connect
                | Self::TimeoutConnect
                | Self::TimeoutFirstToken
                | Self::TimeoutIdle
                | Self::UpstreamError
                | Self::StreamTruncated
        )
    }
}

/// What went wrong between a request and its reply, or before any request.
///
/// `Display` is one line for people that never holds a key, a prompt or a body.
pub struct ProviderError(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    message: String,
    param: Option<String>,
    provider: Option<String>,
    status: Option<u16>,
    retry_after: Option<Duration>,
    after_output: bool,
    no_retry: bool,
    refused: Option<Refused>,
    partial: Option<Reply>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl ProviderError {
    /// An error of this kind. The message is one line, lower case, no full stop.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Repr {
            kind,
            message: message.into(),
            param: None,
            provider: None,
            status: None,
            retry_after: None,
            after_output: false,
            no_retry: false,
            refused: None,
            partial: None,
            source: None,
        }))
    }

    /// What to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What is wrong, without the provider's name.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The parameter or key at fault.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.0.param.as_deref()
    }

    /// The configured entry that failed.
    #[must_use]
    pub fn provider(&self) -> Option<&str> {
        self.0.provider.as_deref()
    }

    /// The HTTP status that the backend answered with.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// How long the backend asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// True if the same request may be sent again: a transient kind, nothing of the reply was
    /// handed out yet, and the peer was not found untrusted.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_transient() && !self.0.after_output && !self.0.no_retry
    }

    /// What of the reply was received before the failure; no calls, since none is complete
    /// before the end.
    #[must_use]
    pub fn partial(&self) -> Option<&Reply> {
        self.0.partial.as_ref()
    }

    /// What the backend cannot do, if that is why it refused.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.0.refused
    }

    /// Names the parameter or key at fault.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.0.param = Some(param.into());
        self
    }

    /// The same without these secrets, which some services repeat in their errors.
    pub(crate) fn without(mut self, secrets: &[SecretString]) -> Self {
        for secret in secrets {
            let secret = secret.expose_secret();
            self.0.message = masked(&self.0.message, secret);
            self.0.param = self.0.param.map(|param| masked(&param, secret));
        }
        self
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Names the configured entry that failed, unless one is named already.
    #[must_use]
    pub fn with_provider(mut self, provider: &str) -> Self {
        self.0.provider.get_or_insert_with(|| provider.to_owned());
        self
    }

    /// Notes the HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }

    /// Notes how long to wait.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.0.retry_after = wait;
        self
    }

    /// Notes that part of the reply was handed out before the failure.
    #[must_use]
    pub fn with_output_sent(mut self, sent: bool) -> Self {
        self.0.after_output |= sent;
        self
    }

    /// Says where it happened.
    pub(crate) fn located(mut self, place: &str) -> Self {
        self.0.message = format!("{} ({place})", self.0.message);
        self
    }

    /// Notes that the same request fails again, whatever the kind.
    pub(crate) fn without_retry(mut self) -> Self {
        self.0.no_retry = true;
        self
    }

    /// Says more at the end of the message.
    pub(crate) fn with_note(mut self, note: &str) -> Self {
        self.0.message.push_str(note);
        self
    }

    /// Keeps what was received before the failure.
    #[must_use]
    pub fn with_partial(mut self, partial: Reply) -> Self {
        self.0.partial = Some(partial);
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The error as it goes out in a body.
    #[must_use]
    pub fn to_body(&self) -> ErrorBody {
        ErrorBody {
            kind: self.kind().as_str().to_owned(),
            message: self.to_string(),
            param: self.0.param.clone(),
            ..ErrorBody::default()
        }
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(provider) = &self.0.provider {
            write!(f, "provider `{provider}`: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderError")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("param", &self.0.param)
            .field("provider", &self.0.provider)
            .field("status", &self.0.status)
            .finish_non_exhaustive()
    }
}

impl StdError for ProviderError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<BadRequest> for ProviderError {
    fn from(fault: BadRequest) -> Self {
        Self::new(ErrorKind::BadRequest, fault.to_string()).with_param(fault.param)
    }
}

impl From<Fault> for ProviderError {
    fn from(fault: Fault) -> Self {
        let kind = match fault.kind {
            FaultKind::Auth => ErrorKind::Auth,
            FaultKind::BadRequest => ErrorKind::BadRequest,
            FaultKind::NotFound => ErrorKind::NotFound,
            FaultKind::ContextLength => ErrorKind::ContextLength,
            FaultKind::RateLimited => ErrorKind::RateLimited,
            FaultKind::QuotaExhausted => ErrorKind::QuotaExhausted,
            FaultKind::Overloaded => ErrorKind::Overloaded,
            FaultKind::InvalidResponse => ErrorKind::InvalidResponse,
            FaultKind::StreamTruncated => ErrorKind::StreamTruncated,
            FaultKind::PrefillUnsupported => ErrorKind::PrefillUnsupported,
            FaultKind::DimensionMismatch => ErrorKind::DimensionMismatch,
            _ => ErrorKind::UpstreamError,
        };
        let wait = fault.retry_after_s;
        let mut error = Self::new(kind, fault.message)
            .with_retry_after(wait.and_then(|s| Duration::try_from_secs_f64(s).ok()));
        error.0.status = fault.status;
        error.0.param = fault.param;
        error.0.refused = fault.refused;
        error
    }
}

/// The text without the secret, nor a beginning of it: texts of others are cut somewhere.
fn masked(text: &str, secret: &str) -> String {
    const TELLING_CHARS: usize = 6;
    let end = secret.char_indices().nth(TELLING_CHARS);
    let head = &secret[..end.map_or(secret.len(), |(at, _)| at)];
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(head).filter(|_| !head.is_empty()) {
        let pairs = rest[at..].chars().zip(secret.chars());
        let n_bytes: usize = pairs
            .take_while(|(a, b)| a == b)
            .map(|(a, _)| a.len_utf8())
            .sum();
        out.push_str(&rest[..at]);
        out.push_str("***");
        rest = &rest[at + n_bytes..];
    }
    out.push_str(rest);
    out
}
