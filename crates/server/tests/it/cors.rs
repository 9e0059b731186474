//! Web pages of other origins.

use twopass_server::{Server, ServerOptions};

use crate::client::{Reply, post, send};
use crate::harness::{Running, native_provider, options, temp_file};

const OURS: &str = "https://app.example";

async fn server(origins: &[&str], keys: Option<&str>) -> Running {
    let options = ServerOptions {
        cors_origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
        keys_file: keys.map(|keys| temp_file("cors-keys", keys)),
        ..options()
    };
    Running::start(
        options,
        vec![native_provider("far", "127.0.0.1:1".parse().unwrap())],
    )
    .await
}

async fn preflight(running: &Running, origin: &str) -> Reply {
    let request = format!(
        "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n\
         access-control-request-method: POST\r\n\
         access-control-request-headers: authorization,content-type,x-stainless-os\r\n\r\n"
    );
    send(running.addr, request.as_bytes()).await
}

fn cors(reply: &Reply) -> Vec<&str> {
    let names = reply.headers.iter().map(|(name, _)| name.as_str());
    names
        .filter(|name| name.starts_with("access-control"))
        .collect()
}

/// Off by default: nothing is sent, and a preflight is a request like any other.
#[tokio::test]
async fn no_page_is_let_in_by_default() {
    let running = server(&[], None).await;
    let asked = preflight(&running, OURS).await;
    assert_eq!(asked.error(), "405 method_not_allowed -");
    assert!(cors(&asked).is_empty(), "{asked:?}");
    let head = format!("origin: {OURS}\r\nhost:");
    let request = String::from_utf8(post("/generate", "{")).unwrap();
    let reply = send(running.addr, request.replacen("host:", &head, 1).as_bytes()).await;
    assert_eq!(reply.status, 400);
    assert!(cors(&reply).is_empty(), "{reply:?}");
}

/// A browser asks without a key; then the page sends one.
#[tokio::test]
async fn named_origins_are_let_in() {
    let running = server(&[OURS, "http://localhost:3000"], Some("the-key\n")).await;
    for (origin, is_in) in [
        (OURS, true),
        ("http://localhost:3000", true),
        ("https://app.example:444", false),
        ("https://evil.example", false),
        ("null", false),
    ] {
        let asked = preflight(&running, origin).await;
        assert_eq!(asked.status, 200, "{origin}");
        let allowed = asked.header("access-control-allow-origin");
        assert_eq!(allowed, is_in.then_some(origin), "{asked:?}");
        assert_eq!(
            asked.header("access-control-allow-methods"),
            Some("GET,POST,DELETE")
        );
        assert_eq!(
            asked.header("access-control-allow-headers"),
            Some("authorization,content-type,x-stainless-os")
        );
        assert_eq!(asked.header("access-control-allow-credentials"), None);

        // Refusals can be read too.
        for (key, status) in [("the-key", 404), ("no-key", 401)] {
            let request = format!(
                "GET /v1/models/none HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\nx-api-key: {key}\r\n\r\n"
            );
            let reply = send(running.addr, request.as_bytes()).await;
            assert_eq!(reply.status, status, "{reply:?}");
            let allowed = reply.header("access-control-allow-origin");
            assert_eq!(allowed, is_in.then_some(origin), "{reply:?}");
            let exposed = reply.header("access-control-expose-headers").unwrap();
            assert!(
                exposed.contains("x-ratelimit-remaining-tokens"),
                "{exposed}"
            );
        }
    }
}

/// All pages, where each needs a key.
#[tokio::test]
async fn all_origins_need_keys() {
    let running = server(&["*"], Some("the-key\n")).await;
    let asked = preflight(&running, "https://any.example").await;
    assert_eq!(asked.header("access-control-allow-origin"), Some("*"));
    assert_eq!(asked.header("access-control-allow-credentials"), None);
    let options = ServerOptions {
        cors_origins: vec!["*".to_owned()],
        ..options()
    };
    let error = options.check().unwrap_err().to_string();
    let expect = "cors_origins `*` lets every web page in: set `keys_file`, or name the origins";
    assert_eq!(error, expect);
    let provider = native_provider("far", "127.0.0.1:1".parse().unwrap());
    let error = Server::bind(options, vec![provider]).await.unwrap_err();
    assert_eq!(error.to_string(), expect);
}
