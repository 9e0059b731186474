//! The HTTP client: requests over kept connections.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, Entry, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::http::Extensions;
use hyper::http::uri::Scheme;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use url::Url;

use super::connector::{Answered, Connector, ProxyError, UnknownProxy};
use crate::{ErrorKind, ProviderError};

/// Idle connections kept per host.
const MAX_IDLE_CONNECTIONS: usize = 32;
/// How long an idle connection is kept.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// How often a request is sent again that no server has read, as far as can be known.
const MAX_RESENT: usize = 2;
/// Unread bytes of all answers of an HTTP/2 connection: far more than those of its streams (2 MiB
/// each), or a few callers that do not read would hold up the others.
const HTTP2_WINDOW_BYTES: u32 = 1 << 30;

/// The name of this client for servers and proxies.
pub(super) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("twopass/", env!("CARGO_PKG_VERSION")));

/// Sends requests: HTTP/1.1, or HTTP/2 where a TLS server offers it, through the proxies that
/// the environment or the system names (`HTTPS_PROXY` and its kin), over connections that are
/// kept. Clones share them. Redirects are answers like others.
#[derive(Clone)]
pub struct HttpClient {
    pool: legacy::Client<Connector, Full<Bytes>>,
    /// A new connection for each request.
    fresh: legacy::Client<Connector, Full<Bytes>>,
    proxies: Arc<Matcher>,
}

impl std::fmt::Debug for HttpClient {
    /// The proxies' addresses may hold passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

impl HttpClient {
    /// A client that gives up a connection which does not stand after `connect`; it has no
    /// other deadline. Opens no connection. The certificates that are trusted are read once
    /// in a process, the proxies each time.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Internal`]: the TLS backend cannot start.
    pub fn new(connect: Duration) -> Result<Self, ProviderError> {
        let proxies = Arc::new(proxies());
        let connector = Connector::new(connect, Arc::clone(&proxies))?;
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .http2_initial_connection_window_size(HTTP2_WINDOW_BYTES);
        let fresh = builder.pool_max_idle_per_host(0).build(connector.clone());
        let pool = builder.pool_max_idle_per_host(MAX_IDLE_CONNECTIONS);
        Ok(Self {
            pool: pool.build(connector),
            fresh,
            proxies,
        })
    }

    /// Sends a request to its absolute address and waits for the head of the answer. Dropping
    /// the answer's body gives its connection back if it was read to its end; otherwise it
    /// closes it (HTTP/1.1) or resets its stream (HTTP/2).
    ///
    /// # Errors
    /// Kinds [`ErrorKind::Config`] (the address is none of a server, or its proxy none that is
    /// known), [`ErrorKind::Connect`], [`ErrorKind::TimeoutConnect`],
    /// [`ErrorKind::InvalidResponse`] (what came is not HTTP) and
    /// [`ErrorKind::StreamTruncated`]. None repeats the address.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ProviderError> {
        check(request.uri())?;
        self.add_headers(&mut request);
        let mut connections = &self.pool;
        let mut n_sent = 0;
        loop {
            n_sent += 1;
            let error = match connections.request(request.clone()).await {
                Ok(response) => {
                    if let Some(answered) = response.extensions().get::<Answered>() {
                        answered.set();
                    }
                    return Ok(response);
                }
                Err(error) => error,
            };
            if n_sent <= MAX_RESENT && was_kept_too_long(&error) {
                connections = &self.fresh;
            } else if n_sent > MAX_RESENT || !is_untouched(&error) {
                return Err(transport_error(&error));
            }
        }
    }

    fn add_headers(&self, request: &mut Request<Full<Bytes>>) {
        // Behind a tunnel the proxy sees the head of the tunnel only.
        let proxy = match request.uri().scheme() == Some(&Scheme::HTTP) {
            true => self.proxies.intercept(request.uri()),
            false => None,
        };
        let login = proxy.as_ref().and_then(Intercept::basic_auth).cloned();
        let headers = request.headers_mut();
        for (name, value) in [
            (ACCEPT, Some(HeaderValue::from_static("*/*"))),
            (USER_AGENT, Some(AGENT)),
            (PROXY_AUTHORIZATION, login),
        ] {
            if let (Entry::Vacant(place), Some(value)) = (headers.entry(name), value) {
                place.insert(value);
            }
        }
    }
}

/// # Errors
/// Kind [`ErrorKind::Config`]: nothing can be sent there.
fn check(to: &Uri) -> Result<(), ProviderError> {
    let wrong = |what| Err(ProviderError::new(ErrorKind::Config, what));
    if !matches!(to.scheme_str(), Some("http" | "https")) || to.host().is_none_or(str::is_empty) {
        return wrong("the address of the service must be an http or https one");
    }
    if to.authority().is_some_and(|at| at.as_str().contains('@')) {
        return wrong("the address of the service must not hold a user or password");
    }
    Ok(())
}

/// The proxies of the environment, else the system's.
fn proxies() -> Matcher {
    // The matcher would except names only, not addresses.
    let no_proxy = ["NO_PROXY", "no_proxy"].map(std::env::var);
    match no_proxy.iter().flatten().any(|value| value.trim() == "*") {
        true => Matcher::builder().build(),
        false => Matcher::from_system(),
    }
}

/// True if the connection had served others before, and broke before a byte of this answer:
/// the server, or what stands between, had most likely dropped it unseen (RFC 9112 section
/// 9.3.1).
fn was_kept_too_long(error: &legacy::Error) -> bool {
    let mut about = Extensions::new();
    if let Some(connection) = error.connect_info() {
        connection.get_extras(&mut about);
    }
    about.get().is_some_and(Answered::get) && causes(error).any(is_lost)
}

fn is_lost(cause: &(dyn Error + 'static)) -> bool {
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    }
    let io = cause.downcast_ref::<io::Error>();
    io.is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::NotConnected
                | io::ErrorKind::UnexpectedEof
        )
    })
}

/// True if an HTTP/2 server says that it has done nothing about the request: it is going
/// away, or has too much to do (RFC 9113 sections 6.8 and 8.7).
fn is_untouched(error: &legacy::Error) -> bool {
    causes(error)
        .find_map(|cause| cause.downcast_ref::<h2::Error>())
        .filter(|error| error.is_remote())
        .is_some_and(|error| match error.reason() {
            Some(h2::Reason::NO_ERROR) => error.is_go_away(),
            Some(h2::Reason::REFUSED_STREAM) => error.is_reset(),
            _ => false,
        })
}

/// An address as requests carry it.
///
/// # Errors
/// Kind [`ErrorKind::Config`]: it holds what no request can.
pub(crate) fn uri(url: &Url) -> Result<Uri, ProviderError> {
    url.as_str().parse().map_err(|error| {
        let message = format!("the address of the service cannot be sent: {error}");
        ProviderError::new(ErrorKind::Config, message)
    })
}

/// The error of an exchange that broke below HTTP. Never holds the address.
pub(crate) fn transport_error(error: &(dyn Error + 'static)) -> ProviderError {
    let cause = causes(error).last().unwrap_or(error);
    if causes(error).any(|cause| cause.is::<UnknownProxy>()) {
        return ProviderError::new(ErrorKind::Config, cause.to_string());
    }
    let client = error.downcast_ref::<legacy::Error>();
    if client.is_some_and(legacy::Error::is_connect) {
        if causes(error).any(is_timeout) {
            let message = "no connection within the deadline";
            return ProviderError::new(ErrorKind::TimeoutConnect, message);
        }
        let proxy = causes(error).find_map(|cause| cause.downcast_ref::<ProxyError>());
        let through = proxy.map(|proxy| format!(" through the proxy {}", proxy.at));
        let through = through.unwrap_or_default();
        let message = format!("cannot connect{through}: {cause}");
        let connect = ProviderError::new(ErrorKind::Connect, message);
        return match causes(error).any(is_untrusted) {
            true => connect.without_retry(),
            false => connect,
        };
    }
    let is_not_http = causes(error)
        .find_map(|cause| cause.downcast_ref::<hyper::Error>())
        .is_some_and(hyper::Error::is_parse);
    match is_not_http {
        true => ProviderError::new(
            ErrorKind::InvalidResponse,
            format!("the answer is not HTTP: {cause}"),
        ),
        false => ProviderError::new(
            ErrorKind::StreamTruncated,
            format!("the connection broke: {cause}"),
        ),
    }
}

/// The error and what caused it, outermost first.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |&cause| cause.source())
}

fn is_timeout(cause: &(dyn Error + 'static)) -> bool {
    let io = cause.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// True if the peer is not who it should be, which no second attempt changes.
fn is_untrusted(mut cause: &(dyn Error + 'static)) -> bool {
    // IO errors may be wrapped around what TLS says.
    while let Some(outer) = cause.downcast_ref::<io::Error>() {
        let Some(inner) = outer.get_ref() else {
            return false;
        };
        cause = inner;
    }
    let tls = cause.downcast_ref::<rustls::Error>();
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}
