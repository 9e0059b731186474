//! What goes wrong between a client and a chat service: each a typed error in bounded time
//! and memory. Rows A7, B14, L11, L12.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use twopass_core::chat::Reply;
use twopass_provider::config::{Config, Environment};
use twopass_provider::{CallOptions, Delivery, ErrorKind, Provider, ProviderError};
use twopass_replay::{Answer, End, Framing, Server, Step};

use crate::chat::provider;
use crate::native::hello;
use crate::play;

pub(crate) const PIECE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
pub(crate) const END: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

pub(crate) fn whole() -> Answer {
    Answer::json(
        200,
        &json!({"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}),
    )
}

pub(crate) fn error(status: u16, message: &str) -> Answer {
    Answer::json(status, &json!({"error": {"message": message}}))
}

async fn ask(provider: &Provider, delivery: Delivery) -> Result<Reply, ProviderError> {
    let options = CallOptions {
        delivery,
        ..CallOptions::default()
    };
    let request = provider.request(hello(), options).unwrap();
    provider.generate(request).await
}

/// The error, its kind, whether the caller may try again, and the text that came before it.
#[tokio::test]
async fn b14_faults_are_typed() {
    let wait = Step::Wait(Duration::from_secs(9));
    let abrupt = Answer {
        end: End::Abrupt,
        ..Answer::events([PIECE])
    };
    let cut = Answer {
        cut_after: Some(40),
        ..whole()
    };
    let unpackable = Answer::new(200, "text/event-stream", "no gzip at all")
        .with_header("content-encoding", "gzip");
    let rows = [
        (error(401, "no"), ErrorKind::Auth, false, ""),
        (error(404, "no model"), ErrorKind::NotFound, false, ""),
        (error(413, "large"), ErrorKind::BadRequest, false, ""),
        (error(429, "slow"), ErrorKind::RateLimited, true, ""),
        (error(500, "boom"), ErrorKind::UpstreamError, true, ""),
        (error(503, "later"), ErrorKind::Overloaded, true, ""),
        (error(407, "proxy"), ErrorKind::Auth, false, ""),
        (
            error(503, "packed").with_header("content-encoding", "br"),
            ErrorKind::Overloaded,
            true,
            "",
        ),
        (
            Answer::new(503, "text/plain", "slow").then(wait.clone()),
            ErrorKind::Overloaded,
            true,
            "",
        ),
        (
            Answer::events([""; 0]).then(wait.clone()),
            ErrorKind::TimeoutFirstToken,
            true,
            "",
        ),
        (
            Answer::events([": ping\n\n"]).then(wait.clone()),
            ErrorKind::TimeoutFirstToken,
            true,
            "",
        ),
        (
            Answer::events([PIECE]).then(wait),
            ErrorKind::TimeoutIdle,
            false,
            "Par",
        ),
        (abrupt, ErrorKind::StreamTruncated, false, "Par"),
        (
            Answer::events([PIECE]),
            ErrorKind::StreamTruncated,
            false,
            "Par",
        ),
        (cut, ErrorKind::StreamTruncated, true, ""),
        (
            Answer::events([PIECE, "data: {\"error\":{\"message\":\"boom\"}}\n\n"]),
            ErrorKind::UpstreamError,
            false,
            "Par",
        ),
        (
            Answer::events([PIECE, "data: \u{1}garbage\n\n"]),
            ErrorKind::InvalidResponse,
            false,
            "Par",
        ),
        (
            Answer::new(200, "text/html", "<!DOCTYPE html><p>portal</p>"),
            ErrorKind::InvalidResponse,
            false,
            "",
        ),
        (
            Answer::new(200, "application/json", ""),
            ErrorKind::InvalidResponse,
            false,
            "",
        ),
        (unpackable, ErrorKind::InvalidResponse, false, ""),
        (
            whole().with_header("content-encoding", "br"),
            ErrorKind::InvalidResponse,
            false,
            "",
        ),
    ];
    for (answer, kind, retryable, text) in rows {
        let shown = format!("{answer:?}");
        let server = play(vec![answer]).await;
        let started = Instant::now();
        let error = ask(&provider(&server, "openai", ""), Delivery::Stream)
            .await
            .unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(4), "{shown}");
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (kind, retryable),
            "{error} {shown}"
        );
        let partial = error
            .partial()
            .map_or("", |partial| partial.content.as_str());
        assert_eq!(partial, text, "{shown}");
        assert!(!error.to_string().contains("sk-chat"), "{error}");
    }
}

// A 100 MB line, and a packed one: refused at the limit, not read into memory.
#[tokio::test]
async fn lines_over_the_limit_are_refused() {
    let line = || {
        let mut answer = Answer::events(["data: "]);
        answer.steps.push(Step::Repeat(vec![b'x'; 1 << 20], 100));
        answer
    };
    let packed = Answer {
        gzip: true,
        ..line()
    };
    for answer in [line(), packed] {
        let server = play(vec![answer]).await;
        let error = ask(&provider(&server, "openai", ""), Delivery::Stream)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EventTooLarge, "{error}");
    }
}

#[tokio::test]
async fn packed_foreign_and_oddly_framed_replies_are_read() {
    let stream = || Answer::events([PIECE, END]);
    let packed = Answer {
        gzip: true,
        ..stream()
    };
    let latin = b"{\"choices\":[{\"index\":0,\"message\":{\"content\":\"Par \xe9\"},\"finish_reason\":\"stop\"}]}".to_vec();
    let after_end = Answer {
        end: End::Abrupt,
        ..Answer::events([PIECE, END])
    };
    let rows = [
        (packed, "Par"),
        (stream().framed(Framing::Close), "Par"),
        (
            Answer::new(200, "application/json; charset=iso-8859-1", latin),
            "Par é",
        ),
        // A stream that names itself wrongly is known by its first character.
        (
            Answer::new(200, "text/plain", format!("{PIECE}{END}")),
            "Par",
        ),
        // Case rule 16: the finish reason came, so the turn is complete.
        (after_end, "Par"),
    ];
    for (answer, content) in rows {
        let shown = format!("{answer:?}");
        let server = play(vec![answer]).await;
        let reply = ask(&provider(&server, "openai", ""), Delivery::Stream).await;
        assert_eq!(reply.unwrap().content, content, "{shown}");
    }
}

fn retrying(server: &Server, retries: u32) -> Provider {
    let mut config = provider(server, "openai", "").config().clone();
    config.api.max_retries = retries;
    let backend = twopass_provider::backend::Chat::new(&config).unwrap();
    Provider::new(config, Arc::new(backend))
}

// Row L11: retryable kinds only, as long as the service says, never after output, never
// beyond the total.
#[tokio::test]
async fn l11_retries() {
    let slow = || error(429, "slow").with_header("retry-after", "1");
    let late = || error(503, "later").with_header("retry-after", "60");
    let rows = [
        (vec![slow(), whole()], 2, None, 900),
        (vec![error(500, "a"), error(502, "b"), whole()], 3, None, 0),
        (vec![error(500, "a"), whole()], 2, None, 0),
        (vec![error(401, "no")], 1, Some(ErrorKind::Auth), 0),
        (vec![late(), whole()], 1, Some(ErrorKind::Overloaded), 0),
        (vec![error(500, "a")], 3, Some(ErrorKind::UpstreamError), 0),
        (
            vec![Answer::events([PIECE]), whole()],
            1,
            Some(ErrorKind::StreamTruncated),
            0,
        ),
        // Nothing came before it broke.
        (vec![Answer::events([": ping\n\n"]), whole()], 2, None, 0),
    ];
    for (answers, n_asked, kind, least_ms) in rows {
        let server = play(answers).await;
        let started = Instant::now();
        let reply = ask(&retrying(&server, 2), Delivery::Stream).await;
        assert_eq!(reply.as_ref().err().map(ProviderError::kind), kind);
        assert_eq!(server.requests().len(), n_asked);
        assert!(started.elapsed() >= Duration::from_millis(least_ms));
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}

// Both forms of Retry-After; the date is meant by the sender's clock.
#[tokio::test]
async fn l11_retry_after_in_seconds_and_as_a_date() {
    let rows = [
        (error(429, "a").with_header("retry-after", "7"), 7),
        (
            error(429, "a")
                .with_header("date", "Wed, 21 Oct 2026 07:28:00 GMT")
                .with_header("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT"),
            30,
        ),
    ];
    for (answer, seconds) in rows {
        let server = play(vec![answer]).await;
        let error = ask(&provider(&server, "openai", ""), Delivery::Whole)
            .await
            .unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(seconds)));
    }
}

// Row L12: a redirect is refused, so that neither key nor prompt reach its target.
#[tokio::test]
async fn l12_redirects_are_not_followed() {
    let target = play(vec![whole()]).await;
    for status in [301, 302, 303, 307, 308] {
        let answer = Answer::new(status, "text/plain", "").with_header("location", &target.url());
        let server = play(vec![answer]).await;
        let error = ask(&retrying(&server, 2), Delivery::Whole)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidResponse);
        assert!(!error.is_retryable());
        assert_eq!(server.requests().len(), 1);
    }
    assert_eq!(target.requests().len(), 0);
}

// Row L12: keys and secret headers are in no error, no debug text and no shown setting, and
// a service that repeats its key in an error does not get it into ours.
#[tokio::test]
async fn l12_keys_stay_out_of_texts() {
    const SECRETS: [&str; 2] = ["sk-chat", "gateway-secret"];
    let server = play(vec![error(401, "bad key sk-chat for Bearer sk-chat")]).await;
    let yaml = format!(
        "providers:\n  - name: c\n    provider_backend: openai\n    model_name: m\n    on_error: raise\n    api_config:\n      base_url: {}\n      api_key_env: K\n      headers: {{X-Gateway: gateway-secret}}\n",
        server.url()
    );
    let environment = Environment::of_pairs([("K", "sk-chat"), ("OPENAI_API_KEY", "sk-other")]);
    let config = Config::parse(&yaml, "t.yaml", environment).unwrap();
    let provider = Provider::from_entry(&config, None).unwrap();
    let error = ask(&provider, Delivery::Stream).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    let settings = format!("{:?}", config.settings());
    let texts = format!(
        "{error} {error:?} {config:?} {provider:?} {settings} {:?}",
        std::error::Error::source(&error)
    );
    for secret in SECRETS.into_iter().chain(["sk-other"]) {
        assert!(!texts.contains(secret), "{secret} in {texts}");
    }
    let asked = server.requests().remove(0);
    assert_eq!(asked.header("authorization"), Some("Bearer sk-chat"));
    assert_eq!(asked.header("x-gateway"), Some("gateway-secret"));
    let sent = format!("{asked:?}");
    assert!(!sent.contains("sk-other"), "another host's key was sent");
}

// No such host, and a peer that speaks no TLS.
#[tokio::test]
async fn b14_no_connection() {
    let server = play(vec![whole()]).await;
    let plain = server.url().replace("http://", "https://");
    for base_url in ["http://no-such-host.invalid/v1", &plain] {
        let yaml = format!(
            "providers:\n  - {{name: c, provider_backend: openai, model_name: m, api_config: {{base_url: '{base_url}', auth: none, max_retries: 0, timeout_s: {{connect: 2}}}}}}\n"
        );
        let config = Config::parse(&yaml, "t.yaml", Environment::default()).unwrap();
        let provider = Provider::from_entry(&config, None).unwrap();
        let started = Instant::now();
        let error = ask(&provider, Delivery::Stream).await.unwrap_err();
        let kinds = [ErrorKind::Connect, ErrorKind::TimeoutConnect];
        assert!(kinds.contains(&error.kind()), "{error:?}");
        assert!(error.is_retryable());
        assert!(started.elapsed() < Duration::from_secs(4));
    }
}

/// What the first connection of a server does with its second request.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    /// It was closed while it was idle.
    Closed,
    /// It is reset, as what forgot the connection on the way does.
    Forgotten,
}

/// A kept connection that is of no use any more costs the next turn nothing.
#[tokio::test]
async fn b14_kept_connections_that_are_gone_cost_no_turn() {
    for kept in [Kept::Closed, Kept::Forgotten] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent_again = Arc::new(AtomicBool::new(false));
        let again = Arc::clone(&sent_again);
        tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            read_request(&mut first).await;
            answer(&mut first).await;
            if kept == Kept::Forgotten {
                read_request(&mut first).await;
                first.set_zero_linger().unwrap();
            }
            drop(first);
            let (mut second, _) = listener.accept().await.unwrap();
            read_request(&mut second).await;
            answer(&mut second).await;
            // The third connection's first request is not sent again.
            drop(second);
            let (mut third, _) = listener.accept().await.unwrap();
            read_request(&mut third).await;
            third.set_zero_linger().unwrap();
            drop(third);
            let _ = listener.accept().await;
            again.store(true, Ordering::Relaxed);
        });
        let yaml = format!(
            "providers:\n  - name: c\n    provider_backend: openai\n    model_name: m\n    on_error: raise\n    api_config: {{base_url: 'http://{address}/v1', max_retries: 0}}\n"
        );
        let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap();
        let provider = Provider::from_entry(&config, None).unwrap();
        for _ in 0..2 {
            let reply = ask(&provider, Delivery::Whole).await.unwrap();
            assert_eq!(reply.content, "Hi");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let error = ask(&provider, Delivery::Whole).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StreamTruncated, "{error:?}");
        assert!(!sent_again.load(Ordering::Relaxed));
    }
}

async fn read_request(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    // The body's last bytes.
    while !seen.ends_with(b"}") {
        assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
    }
}

async fn answer(stream: &mut TcpStream) {
    let body = whole().body();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let head = format!("{head}content-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
}

/// A stream that never ends is ended: by what it holds, packed or not, or by the deadline
/// although there is always something to read.
#[tokio::test]
async fn b14_endless_streams_are_bounded() {
    use std::io::Write as _;

    let text = "y".repeat(4 << 20);
    let piece = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let piece = format!("data: {piece}\n\n");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(piece.as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    let plain = Answer::events(vec![piece; 6]);
    let packed = Answer::events(vec![packed; 6]).with_header("content-encoding", "GZip");
    for answer in [plain, packed] {
        let server = play(vec![answer]).await;
        let error = ask(&provider(&server, "openai", ""), Delivery::Stream).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EventTooLarge, "{error}");
    }
}

/// An error of nothing but brackets is no cause to recurse.
#[tokio::test]
async fn b14_deep_errors_are_errors() {
    let deep = "[".repeat(30_000) + &"]".repeat(30_000);
    for backend in [
        "openai",
        "openai_responses",
        "anthropic",
        "ollama",
        "vllm_native",
    ] {
        let server = play(vec![Answer::new(500, "application/json", deep.clone())]).await;
        let error = ask(&provider(&server, backend, ""), Delivery::Stream).await;
        assert_eq!(
            error.unwrap_err().kind(),
            ErrorKind::UpstreamError,
            "{backend}"
        );
    }
}

/// Row L12: not even the beginning of a key that a cut text ends in.
#[tokio::test]
async fn l12_a_cut_text_shows_no_part_of_the_key() {
    let yaml = |url: &str| {
        format!(
            "providers:\n  - {{name: c, provider_backend: openai, model_name: m, on_error: raise, api_config: {{base_url: '{url}', api_key_env: K, max_retries: 0}}}}\n"
        )
    };
    let body = "y".repeat(60) + "sk-SECRETKEYabcdef1234567890";
    let server = play(vec![Answer::new(200, "application/json", body)]).await;
    let key = [("K", "sk-SECRETKEYabcdef1234567890")];
    let config = Config::parse(&yaml(&server.url()), "t.yaml", Environment::of_pairs(key)).unwrap();
    let provider = Provider::from_entry(&config, None).unwrap();
    let error = ask(&provider, Delivery::Whole)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("yyy***") && !error.contains("sk-SEC"),
        "{error}"
    );
}
