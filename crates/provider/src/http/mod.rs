//! The HTTP client that remote backends share: one connection pool, our deadlines, errors
//! by kind.
//!
//! Redirects are never followed: they would carry the prompt, and a key, to an address that
//! nobody configured. Bodies are read in bounded pieces.

mod body;

use std::error::Error as _;
use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, iter};

use reqwest::{Client, Response};
use tokio::time::Instant;
use twopass_wire::fault::Fault;

pub(crate) use body::Body;

use crate::{ErrorKind, ProviderError};

/// The most bytes of an error body that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Idle connections kept per host.
const MAX_IDLE_CONNECTIONS: usize = 32;

/// Builds an HTTP client as the backends use it: this connect deadline and no other, no
/// redirects, TLS in pure Rust. Opens no connection.
///
/// # Errors
/// The TLS backend cannot start.
pub fn client(connect: Duration) -> Result<Client, ProviderError> {
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
        // A future that is always ready would be asked before the clock.
        if Instant::now() >= self.at {
            return Err(self.error());
        }
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

/// The fault of a response whose status is not a success, and its body, cut.
pub(crate) async fn status_fault(response: Response) -> Result<(Fault, Vec<u8>), ProviderError> {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut text = Vec::new();
    let mut body = Body::new(response)?;
    // A body that breaks off still has its status.
    while let Ok(Some(chunk)) = body.chunk().await {
        text.extend_from_slice(&chunk);
        if text.len() >= MAX_ERROR_BODY_BYTES {
            text.truncate(MAX_ERROR_BODY_BYTES);
            break;
        }
    }
    let headers = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0.0, |since| since.as_secs_f64());
    let mut fault = Fault::from_response(status, headers, &text, now);
    if !fault.message.starts_with("HTTP ") {
        fault.message = format!("HTTP {status}: {}", fault.message);
    }
    Ok((fault, text))
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
        let connect = ProviderError::new(ErrorKind::Connect, format!("cannot connect: {cause}"));
        return match is_untrusted(error) {
            true => connect.without_retry(),
            false => connect,
        };
    }
    if error.is_builder() {
        return ProviderError::new(
            ErrorKind::Config,
            format!("the request cannot be built: {cause}"),
        );
    }
    if is_not_http(error) {
        return ProviderError::new(
            ErrorKind::InvalidResponse,
            format!("the answer is not HTTP: {cause}"),
        );
    }
    ProviderError::new(
        ErrorKind::StreamTruncated,
        format!("the connection broke: {cause}"),
    )
}

/// True if the peer's bytes could not be read as HTTP.
fn is_not_http(error: &reqwest::Error) -> bool {
    causes(error)
        .find_map(|cause| cause.downcast_ref::<hyper::Error>())
        .is_some_and(hyper::Error::is_parse)
}

/// True if the peer is not who it should be, which no second attempt changes.
fn is_untrusted(error: &reqwest::Error) -> bool {
    causes(error)
        .find_map(tls_error)
        .is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

/// What TLS says, however many IO errors are wrapped around it.
fn tls_error<'e>(mut cause: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    while let Some(outer) = cause.downcast_ref::<io::Error>() {
        cause = outer.get_ref()?;
    }
    cause.downcast_ref()
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    iter::successors(error.source(), |&cause| cause.source())
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
