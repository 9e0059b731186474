//! The HTTP client: requests over kept connections.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, Entry, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use url::Url;

use super::connector::{Connector, UnknownProxy};
use crate::{ErrorKind, ProviderError};

/// Idle connections kept per host.
const MAX_IDLE_CONNECTIONS: usize = 32;
/// How long an idle connection is kept.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// How often a request is sent again that an HTTP/2 server gave back untouched.
const MAX_RESENT: usize = 2;

/// The name of this client for servers and proxies.
pub(super) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("twopass/", env!("CARGO_PKG_VERSION")));

/// Sends requests: HTTP/1.1, or HTTP/2 where a TLS server offers it, through the proxies that
/// the environment or the system names (`HTTPS_PROXY` and its kin), over connections that are
/// kept. Clones share them. Redirects are answers like others.
#[derive(Clone)]
pub struct HttpClient {
    pool: legacy::Client<Connector, Full<Bytes>>,
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
        let proxies = Arc::new(Matcher::from_system());
        let connector = Connector::new(connect, Arc::clone(&proxies))?;
        let pool = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self { pool, proxies })
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
        let mut n_sent = 0;
        loop {
            n_sent += 1;
            let error = match self.pool.request(request.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if n_sent > MAX_RESENT || !is_untouched(&error) {
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
        let connect = ProviderError::new(ErrorKind::Connect, format!("cannot connect: {cause}"));
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
