//! The HTTP client that remote backends share: one connection pool, our deadlines, errors
//! by kind.
//!
//! Redirects are never followed: they would carry the prompt, and a key, to an address that
//! nobody configured. Bodies that we read whole are bounded.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use tokio::time::Instant;
use twopass_wire::error::ErrorBody;

use crate::{ErrorKind, ProviderError};

/// The most bytes of an error body that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// The most bytes of a whole reply that are read.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;
/// Idle connections kept per host.
const MAX_IDLE_CONNECTIONS: usize = 32;

/// Builds a client with this connect deadline and no other.
///
/// # Errors
/// The TLS backend cannot start.
pub(crate) fn client(connect: Duration) -> Result<Client, ProviderError> {
    static PROVIDER: OnceLock<()> = OnceLock::new();
    PROVIDER.get_or_init(|| {
        // Fails only if the program has chosen a provider already, which then serves us.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    Client::builder()
        .user_agent(concat!("twopass/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true)
        .connect_timeout(connect)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| {
            ProviderError::new(ErrorKind::Internal, "the HTTP client cannot start")
                .with_source(error)
        })
}

/// A moment and what passing it means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) kind: ErrorKind,
    pub(crate) limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration, kind: ErrorKind) -> Self {
        Self {
            // A limit beyond what the clock can hold is no limit: 100 years.
            at: Instant::now() + limit.min(Duration::from_secs(3_153_600_000)),
            kind,
            limit,
        }
    }

    /// The one that passes first.
    pub(crate) fn earlier(self, other: Self) -> Self {
        if other.at < self.at { other } else { self }
    }

    /// Waits for the future, but not longer than this.
    pub(crate) async fn wait<T>(self, future: impl Future<Output = T>) -> Result<T, ProviderError> {
        tokio::time::timeout_at(self.at, future)
            .await
            .map_err(|_| self.error())
    }

    fn error(self) -> ProviderError {
        let what = match self.kind {
            ErrorKind::TimeoutFirstToken => "no output came within",
            ErrorKind::TimeoutIdle => "the output stalled for",
            _ => "the turn took longer than",
        };
        ProviderError::new(self.kind, format!("{what} {} s", self.limit.as_secs_f64()))
    }
}

/// Reads a body whole.
///
/// # Errors
/// The connection broke, or the body is over 64 MiB.
pub(crate) async fn read_body(mut response: Response) -> Result<Vec<u8>, ProviderError> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| transport_error(&error))?
    {
        if body.len() + chunk.len() > MAX_REPLY_BYTES {
            return Err(ProviderError::new(
                ErrorKind::InvalidResponse,
                format!("the reply is larger than {MAX_REPLY_BYTES} bytes"),
            ));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The error of a response whose status is not a success.
pub(crate) async fn status_error(mut response: Response) -> ProviderError {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let mut body = Vec::new();
    // A body that breaks off still has its status.
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() >= MAX_ERROR_BODY_BYTES {
            break;
        }
    }
    let said = ErrorBody::from_json(&body).unwrap_or_default();
    let kind = ErrorKind::from_name(&said.kind).unwrap_or_else(|| kind_of_status(status));
    let reason = status.canonical_reason().unwrap_or("unknown status");
    let message = if said.message.is_empty() {
        format!("the server answered {} {reason}", status.as_u16())
    } else {
        format!(
            "the server answered {} {reason}: {}",
            status.as_u16(),
            said.message
        )
    };
    let error = ProviderError::new(kind, message)
        .with_status(status.as_u16())
        .with_retry_after(retry_after);
    match said.param {
        Some(param) => error.with_param(param),
        None => error,
    }
}

fn kind_of_status(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        401 | 403 => ErrorKind::Auth,
        402 => ErrorKind::QuotaExhausted,
        404 => ErrorKind::NotFound,
        408 => ErrorKind::TimeoutTotal,
        429 => ErrorKind::RateLimited,
        503 | 529 => ErrorKind::Overloaded,
        400..=499 => ErrorKind::BadRequest,
        _ => ErrorKind::UpstreamError,
    }
}

/// `Retry-After` in seconds; the date form is left to the clock's owner.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The error of an exchange that broke below HTTP. Never holds the address's query or key.
pub(crate) fn transport_error(error: &reqwest::Error) -> ProviderError {
    let cause = root_cause(error);
    if error.is_timeout() && error.is_connect() {
        return ProviderError::new(
            ErrorKind::TimeoutConnect,
            "no connection within the deadline",
        );
    }
    if error.is_connect() {
        return ProviderError::new(ErrorKind::Connect, format!("cannot connect: {cause}"));
    }
    if error.is_builder() {
        return ProviderError::new(
            ErrorKind::Config,
            format!("the request cannot be built: {cause}"),
        );
    }
    ProviderError::new(
        ErrorKind::StreamTruncated,
        format!("the connection broke: {cause}"),
    )
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    // The outermost text of reqwest holds the address; its causes do not.
    if std::ptr::addr_eq(cause, std::ptr::from_ref(error)) {
        return "no further cause is known".to_owned();
    }
    cause.to_string()
}
