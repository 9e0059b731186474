//! The proxies that the environment names: what goes through them, what they are
//! told, and what they cannot see.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use twopass_core::chat::Reply;
use twopass_provider::config::{Config, Environment};
use twopass_provider::{CallOptions, ErrorKind, Provider, ProviderError};

use crate::native::hello;
use crate::tls::{SECOND_RUN, authority_folder, run_again};

/// `user:pass` as the proxy is told it.
const LOGIN: &str = "proxy-authorization: Basic dXNlcjpwYXNz";
const BODY: &str = r#"{"choices":[{"message":{"content":"Par"},"finish_reason":"stop"}]}"#;

/// The heads that a proxy saw, and the requests inside its tunnels.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn note(&self, what: &str, head: &str) {
        let line = format!("{what} {head}");
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Answers every request itself, whoever it is for, one per connection.
async fn proxy(tls: TlsAcceptor, seen: Seen) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(pass(stream, tls.clone(), seen.clone()));
        }
    });
    format!("http://user:pass@{address}")
}

async fn pass(mut stream: TcpStream, tls: TlsAcceptor, seen: Seen) {
    let head = read_head(&mut stream).await;
    seen.note("proxy:", &head);
    if !head.starts_with("CONNECT ") {
        return answer(&mut stream).await;
    }
    let _ = stream.write_all(b"HTTP/1.1 200 Go on\r\n\r\n").await;
    let Ok(mut inside) = tls.accept(stream).await else {
        return seen.note("proxy:", "no TLS");
    };
    let head = read_head(&mut inside).await;
    seen.note("service:", &head);
    answer(&mut inside).await;
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin)) {
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

async fn ask(base_url: &str) -> Result<Reply, ProviderError> {
    let yaml = format!(
        "providers:\n  - name: c\n    provider_backend: openai\n    model_name: m\n    on_error: raise\n    api_config: {{base_url: '{base_url}', max_retries: 0, auth: none}}\n"
    );
    let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap();
    let provider = Provider::from_entry(&config, None).unwrap();
    let request = provider.request(hello(), CallOptions::default()).unwrap();
    provider.generate(request).await
}

#[tokio::test]
async fn requests_go_through_the_proxies_of_the_environment() {
    let name = "proxies::requests_go_through_the_proxies_of_the_environment";
    if std::env::var_os(SECOND_RUN).is_some() {
        return requests().await;
    }
    let (folder, authority) = authority_folder();
    let seen = Seen::default();
    let tls = authority.acceptor("service.test", false, "http/1.1");
    let proxy = proxy(tls, seen.clone()).await;
    let through = [
        ("http_proxy", proxy.as_str()),
        ("https_proxy", &proxy),
        ("no_proxy", "localhost"),
        ("PROXY_KIND", "http"),
    ];
    run_again(name, folder.path(), &through).await;
    let seen = seen.take();
    let [tunnel, inside, plain] = seen.as_slice() else {
        panic!("{seen:#?}");
    };
    // In the clear, with the whole address and the login.
    assert!(plain.starts_with("proxy: POST http://service.test/v1/chat/completions HTTP/1.1"));
    assert!(
        plain.contains(LOGIN) && plain.contains("host: service.test"),
        "{plain}"
    );
    // A tunnel, whose end alone sees the request, without the proxy's login.
    assert!(tunnel.starts_with("proxy: CONNECT service.test:443 HTTP/1.1"));
    let told = tunnel.to_lowercase();
    assert!(told.contains(&LOGIN.to_lowercase()), "{tunnel}");
    assert!(told.contains("user-agent: twopass/"), "{tunnel}");
    assert!(inside.starts_with("service: POST /v1/chat/completions HTTP/1.1"));
    assert!(!inside.contains("proxy-authorization"), "{inside}");

    for (kind, proxy, no_proxy) in [
        ("socks", "socks5://127.0.0.1:9", ""),
        ("dead", "http://user:pass@127.0.0.1:9", ""),
        ("excepted", "http://127.0.0.1:9", "*"),
    ] {
        let variables = [
            ("https_proxy", proxy),
            ("no_proxy", no_proxy),
            ("PROXY_KIND", kind),
        ];
        run_again(name, folder.path(), &variables).await;
    }
}

/// What the second run asks.
async fn requests() {
    let kind = std::env::var("PROXY_KIND").unwrap();
    let told = match kind.as_str() {
        "socks" => "a proxy must be an `http` or `https` one, got `socks5`",
        "dead" => "cannot connect through the proxy 127.0.0.1:9: ",
        _ => "(127.0.0.2:9)",
    };
    if kind != "http" {
        let error = ask("https://127.0.0.2:9/v1").await.unwrap_err();
        let expect = match kind.as_str() {
            "socks" => ErrorKind::Config,
            _ => ErrorKind::Connect,
        };
        assert_eq!(error.kind(), expect, "{error:?}");
        assert!(error.message().contains(told), "{error:?}");
        assert_eq!(
            kind == "dead",
            error.message().contains("proxy 127"),
            "{error:?}"
        );
        assert!(!error.message().contains("pass"), "{error:?}");
        return;
    }
    let secret = ask("https://service.test/v1").await;
    assert_eq!(secret.unwrap().content, "Par");
    let plain = ask("http://service.test/v1").await;
    assert_eq!(plain.unwrap().content, "Par");
    // Excepted: straight to a port where nobody listens.
    let direct = ask("http://localhost:9/v1").await.unwrap_err();
    assert_eq!(direct.kind(), ErrorKind::Connect, "{direct:?}");
}
