//! Opens connections: straight to the service or through a proxy, with TLS where the address
//! asks for it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::header::{HeaderMap, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::http::uri::{Authority, Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::time::timeout;
use tower::Service;

use super::client::AGENT;
use crate::{ErrorKind, ProviderError};

/// A peer that is silent for so long is asked whether it is there, and again after each so long.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// A peer that answers none of so many questions is gone.
const KEEPALIVE_PROBES: u32 = 3;
/// A peer that confirms none of our bytes for so long is gone.
#[cfg(target_os = "linux")]
const UNCONFIRMED: Duration = Duration::from_secs(30);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens a connection to an address.
#[derive(Clone)]
pub(super) struct Connector {
    /// Straight to an address; TLS for `https`.
    direct: HttpsConnector<HttpConnector>,
    /// To a proxy, with which HTTP/1.1 is spoken.
    to_proxy: HttpsConnector<HttpConnector>,
    tls: Arc<ClientConfig>,
    proxies: Arc<Matcher>,
    limit: Duration,
}

impl Connector {
    pub(super) fn new(limit: Duration, proxies: Arc<Matcher>) -> Result<Self, ProviderError> {
        let tls = tls()?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Divided among the addresses of the host.
        tcp.set_connect_timeout(Some(limit));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNCONFIRMED));
        let mut tls_to_proxy = ClientConfig::clone(&tls);
        tls_to_proxy.alpn_protocols.clear();
        Ok(Self {
            direct: HttpsConnector::from((tcp.clone(), Arc::clone(&tls))),
            to_proxy: HttpsConnector::from((tcp, tls_to_proxy)),
            tls,
            proxies,
            limit,
        })
    }

    async fn connect(mut self, to: Uri) -> Result<Stream, BoxError> {
        let Some(proxy) = self.proxies.intercept(&to) else {
            return Ok(Stream::new(self.direct.call(to).await?));
        };
        let at = proxy.uri().authority().map(Authority::as_str);
        let at = at.unwrap_or_default().to_owned();
        let connected = self.through(proxy, to).await;
        connected.map_err(|source| ProxyError { at, source }.into())
    }

    async fn through(mut self, proxy: Intercept, to: Uri) -> Result<Stream, BoxError> {
        if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) {
            let scheme = proxy.uri().scheme_str().unwrap_or_default().to_owned();
            return Err(UnknownProxy { scheme }.into());
        }
        if to.scheme() == Some(&Scheme::HTTPS) {
            let mut head = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
            let login = proxy.basic_auth();
            head.extend(login.map(|login| (PROXY_AUTHORIZATION, login.clone())));
            let tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy).with_headers(head);
            let mut through = HttpsConnector::from((tunnel, self.tls));
            return Ok(Stream::new(through.call(to).await?));
        }
        let mut stream = Stream::new(self.to_proxy.call(proxy.uri().clone()).await?);
        stream.is_proxied = true;
        Ok(stream)
    }
}

/// The proxy for an address is of a kind that we do not speak with.
#[derive(Debug)]
pub(super) struct UnknownProxy {
    scheme: String,
}

impl fmt::Display for UnknownProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme } = self;
        write!(
            f,
            "a proxy must be an `http` or `https` one, got `{scheme}`"
        )
    }
}

impl std::error::Error for UnknownProxy {}

/// There is no way through the proxy for an address.
#[derive(Debug)]
pub(super) struct ProxyError {
    /// Its host and port.
    pub(super) at: String,
    source: BoxError,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {} is no way", self.at)
    }
}

impl std::error::Error for ProxyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// One for the process: it holds the system's certificates.
fn tls() -> Result<Arc<ClientConfig>, ProviderError> {
    static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(tls) = TLS.get() {
        return Ok(Arc::clone(tls));
    }
    // Fails only if the program has chosen a provider already, which then serves us.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut tls = ClientConfig::with_platform_verifier().map_err(|error| {
        ProviderError::new(ErrorKind::Internal, "the HTTP client cannot start").with_source(error)
    })?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::clone(TLS.get_or_init(|| Arc::new(tls))))
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    /// Those inside are always ready too.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let limit = self.limit;
        let connecting = self.clone().connect(to);
        Box::pin(async move {
            let connected = timeout(limit, connecting).await;
            connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        })
    }
}

/// A connection, through whatever it goes.
pub(super) struct Stream {
    io: Pin<Box<dyn Io>>,
    /// It goes to a proxy that is to send the request on.
    is_proxied: bool,
    answered: Answered,
}

/// Whether an answer has come over a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Answered(Arc<AtomicBool>);

impl Answered {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

trait Io: Read + Write + Connection + Send {}

impl<T: Read + Write + Connection + Send> Io for T {}

impl Stream {
    fn new(io: impl Io + 'static) -> Self {
        Self {
            io: Box::pin(io),
            is_proxied: false,
            answered: Answered::default(),
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = self.io.connected().proxy(self.is_proxied);
        connected.extra(self.answered.clone())
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_shutdown(cx)
    }
}
