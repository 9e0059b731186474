//! TLS and HTTP/2: what goes wrong there is a typed error too (rows A7, B14, L11).
//!
//! What is trusted comes from `SSL_CERT_FILE`, which only a new process can be given: the test
//! runs itself once more with it set.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;
use twopass_core::chat::Reply;
use twopass_provider::config::{Config, Environment};
use twopass_provider::{CallOptions, ErrorKind, Provider, ProviderError};

use crate::native::hello;

/// Set in the second run: the folder of the certificates.
pub(crate) const SECOND_RUN: &str = "TWOPASS_TEST_TLS";
const PIECE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn b14_faults_of_tls_and_http2_are_typed() {
    if std::env::var_os(SECOND_RUN).is_some() {
        return faults().await;
    }
    let (folder, _authority) = authority_folder();
    let name = "tls::b14_faults_of_tls_and_http2_are_typed";
    run_again(name, folder.path(), &[]).await;
}

/// A new authority and a folder with its key and certificate.
pub(crate) fn authority_folder() -> (TempDir, Authority) {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    let authority = Authority::with_key(key);
    std::fs::write(folder.path().join("authority.pem"), &authority.pem).unwrap();
    (folder, authority)
}

/// Runs this test in a process that trusts the folder's authority, with these variables.
pub(crate) async fn run_again(name: &str, folder: &Path, variables: &[(&str, &str)]) {
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        // The test's own proxies only.
        .env_remove("REQUEST_METHOD")
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .env_remove("ALL_PROXY")
        .env_remove("NO_PROXY")
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .env_remove("all_proxy")
        .env_remove("no_proxy")
        .env(SECOND_RUN, folder)
        .env("SSL_CERT_FILE", folder.join("authority.pem"))
        .envs(variables.iter().copied())
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Who signs certificates.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn new() -> Self {
        Self::with_key(KeyPair::generate().unwrap())
    }

    fn with_key(key: KeyPair) -> Self {
        let pem = Self::params().self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(Self::params(), key);
        Self { pem, issuer }
    }

    /// The listener's side of TLS for a certificate of this name.
    pub(crate) fn acceptor(&self, name: &str, expired: bool, protocol: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Serves one connection.
async fn listen<F: Future<Output = ()> + Send + 'static>(
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream).await;
    });
    address
}

async fn ask(address: SocketAddr) -> Result<Reply, ProviderError> {
    let yaml = format!(
        "providers:\n  - name: c\n    provider_backend: openai\n    model_name: m\n    on_error: raise\n    api_config:\n      base_url: https://localhost:{}/v1\n      timeout_s: {{connect: 0.5, first_token: 1, idle: 1, total: 5}}\n      max_retries: 0\n",
        address.port()
    );
    let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap();
    let provider = Provider::from_entry(&config, None).unwrap();
    let request = provider.request(hello(), CallOptions::default()).unwrap();
    provider.generate(request).await
}

/// The kind, whether the caller may try again, and the text that came before.
fn assert_fault(
    name: &str,
    got: Result<Reply, ProviderError>,
    (kind, retryable, text): (ErrorKind, bool, &str),
) {
    let error = got.expect_err(name);
    let partial = error.partial().map_or("", |reply| reply.content.as_str());
    assert_eq!(
        (error.kind(), error.is_retryable(), partial),
        (kind, retryable, text),
        "{name}: {error:?}"
    );
}

async fn faults() {
    let folder = std::path::PathBuf::from(std::env::var_os(SECOND_RUN).unwrap());
    let key = std::fs::read_to_string(folder.join("key.pem")).unwrap();
    // The same name and key as the trusted authority: signatures match it.
    let trusted = Authority::with_key(KeyPair::from_pem(&key).unwrap());
    handshakes(&trusted).await;
    http1_inside(&trusted).await;
    http2_inside(&trusted).await;
    http2_goes_away(&trusted).await;
}

async fn handshakes(trusted: &Authority) {
    let rows = [
        (
            "signed by a stranger",
            Authority::new().acceptor("localhost", false, "http/1.1"),
        ),
        (
            "another name",
            trusted.acceptor("other.example", false, "http/1.1"),
        ),
        ("expired", trusted.acceptor("localhost", true, "http/1.1")),
    ];
    for (name, acceptor) in rows {
        let address = listen(async move |stream| drop(acceptor.accept(stream).await)).await;
        assert_fault(name, ask(address).await, (ErrorKind::Connect, false, ""));
    }
    let plain = listen(async |mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let got = ask(plain.await).await;
    assert_fault("no TLS at all", got, (ErrorKind::Connect, true, ""));
    let closed = listen(async |stream| drop(stream)).await;
    let got = ask(closed).await;
    assert_fault(
        "closed in the handshake",
        got,
        (ErrorKind::Connect, true, ""),
    );
    let silent = listen(async |stream| {
        tokio::time::sleep(Duration::from_secs(9)).await;
        drop(stream);
    });
    let started = Instant::now();
    let got = ask(silent.await).await;
    assert_fault(
        "a silent handshake",
        got,
        (ErrorKind::TimeoutConnect, true, ""),
    );
    assert!(started.elapsed() < Duration::from_secs(4));
}

/// Reads the head, then writes these chunks; `close` says goodbye as TLS wants it.
async fn play(acceptor: TlsAcceptor, chunks: &'static [&'static str], close: bool) -> SocketAddr {
    listen(async move |stream| {
        let mut tls: TlsStream<TcpStream> = acceptor.accept(stream).await.unwrap();
        let mut seen = [0; 4096];
        assert!(tls.read(&mut seen).await.unwrap() > 0);
        tls.write_all(HEAD.as_bytes()).await.unwrap();
        for text in chunks {
            let chunk = format!("{:x}\r\n{text}\r\n", text.len());
            tls.write_all(chunk.as_bytes()).await.unwrap();
        }
        tls.flush().await.unwrap();
        if close {
            tls.write_all(b"0\r\n\r\n").await.unwrap();
            tls.shutdown().await.unwrap();
        }
    })
    .await
}

async fn http1_inside(trusted: &Authority) {
    let acceptor = || trusted.acceptor("localhost", false, "http/1.1");
    let whole = play(acceptor(), &[PIECE, END], true).await;
    assert_eq!(ask(whole).await.unwrap().content, "Par");
    let cut = play(acceptor(), &[PIECE], false).await;
    let expect = (ErrorKind::StreamTruncated, false, "Par");
    assert_fault("cut without a goodbye", ask(cut).await, expect);
    let early = play(acceptor(), &[PIECE], true).await;
    assert_fault("ended early", ask(early).await, expect);
}

/// Answers one request over HTTP/2.
async fn http2<F: Future<Output = ()> + Send + 'static>(
    trusted: &Authority,
    answer: impl FnOnce(SendResponse<Bytes>) -> F + Send + 'static,
) -> SocketAddr {
    let acceptor = trusted.acceptor("localhost", false, "h2");
    listen(async move |stream| {
        let tls = acceptor.accept(stream).await.unwrap();
        let mut connection = h2::server::handshake(tls).await.unwrap();
        let (_, respond) = connection.accept().await.unwrap().unwrap();
        tokio::select! {
            () = answer(respond) => {}
            _ = connection.accept() => {}
        }
        // What was written goes out before the connection ends.
        let rest = async { while connection.accept().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_millis(200), rest).await;
    })
    .await
}

fn begin(respond: &mut SendResponse<Bytes>) -> SendStream<Bytes> {
    let head = http::Response::builder().header("content-type", "text/event-stream");
    let mut body = respond
        .send_response(head.body(()).unwrap(), false)
        .unwrap();
    body.send_data(Bytes::from_static(PIECE.as_bytes()), false)
        .unwrap();
    body
}

/// Time for what was sent to be read.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn http2_inside(trusted: &Authority) {
    let whole = http2(trusted, async |mut respond| {
        let mut body = begin(&mut respond);
        body.send_data(Bytes::from_static(END.as_bytes()), true)
            .unwrap();
        pause().await;
    });
    assert_eq!(ask(whole.await).await.unwrap().content, "Par");
    let reset = http2(trusted, async |mut respond| {
        let mut body = begin(&mut respond);
        pause().await;
        body.send_reset(Reason::INTERNAL_ERROR);
    });
    let cut = (ErrorKind::StreamTruncated, false, "Par");
    assert_fault("a reset stream", ask(reset.await).await, cut);
    let ended = http2(trusted, async |mut respond| {
        let mut body = begin(&mut respond);
        body.send_data(Bytes::new(), true).unwrap();
        pause().await;
    });
    assert_fault("an early end", ask(ended.await).await, cut);
    let stalled = http2(trusted, async |mut respond| {
        let _body = begin(&mut respond);
        tokio::time::sleep(Duration::from_secs(9)).await;
    });
    let idle = (ErrorKind::TimeoutIdle, false, "Par");
    assert_fault("a stalled stream", ask(stalled.await).await, idle);
    let limited = http2(trusted, async |mut respond| {
        let head = http::Response::builder()
            .status(429)
            .header("retry-after", "7");
        let mut body = respond
            .send_response(head.body(()).unwrap(), false)
            .unwrap();
        let text = Bytes::from_static(b"{\"error\":{\"message\":\"slow\"}}");
        body.send_data(text, true).unwrap();
        pause().await;
    });
    let got = ask(limited.await).await;
    let after = got.as_ref().err().and_then(ProviderError::retry_after);
    assert_eq!(after, Some(Duration::from_secs(7)));
    assert_fault("too often", got, (ErrorKind::RateLimited, true, ""));
    for n_refused in [2, 3] {
        let acceptor = trusted.acceptor("localhost", false, "h2");
        let refused = listen(async move |stream| {
            let tls = acceptor.accept(stream).await.unwrap();
            let mut connection = h2::server::handshake(tls).await.unwrap();
            for _ in 0..n_refused {
                let (_, mut respond) = connection.accept().await.unwrap().unwrap();
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            if let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut body = begin(&mut respond);
                let end = Bytes::from_static(END.as_bytes());
                body.send_data(end, true).unwrap();
                while connection.accept().await.is_some() {}
            }
        });
        let got = ask(refused.await).await;
        if n_refused == 2 {
            assert_eq!(got.unwrap().content, "Par");
        } else {
            let expect = (ErrorKind::StreamTruncated, true, "");
            assert_fault("a stream refused each time", got, expect);
        }
    }
}

/// A server that goes away before it looked at the request gets it on a new connection.
async fn http2_goes_away(trusted: &Authority) {
    let acceptor = trusted.acceptor("localhost", false, "h2");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for goes_away in [true, false] {
            let (stream, _) = listener.accept().await.unwrap();
            let tls = acceptor.accept(stream).await.unwrap();
            let mut connection = h2::server::handshake(tls).await.unwrap();
            if goes_away {
                connection.abrupt_shutdown(Reason::NO_ERROR);
            }
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut body = begin(&mut respond);
                let end = Bytes::from_static(END.as_bytes());
                body.send_data(end, true).unwrap();
            }
        }
    });
    assert_eq!(ask(address).await.unwrap().content, "Par");
}
