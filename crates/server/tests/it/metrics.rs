//! `/metrics`: every request is accounted for, whatever became of it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Connection, get, post, send};
use crate::harness::{Running, native_provider, options};
use crate::upstream::Upstream;

const ASK: &str = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
const ASK_STREAM: &str = r#"{"stream": true, "messages": [{"role": "user", "content": "Hi"}]}"#;

async fn text(running: &Running) -> String {
    let reply = get(running.addr, "/metrics").await;
    assert_eq!(reply.status, 200);
    let kind = reply.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let text = reply.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}

/// The lines of a metric, sorted.
fn lines<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let mut lines: Vec<_> = text.lines().filter(|line| line.starts_with(name)).collect();
    lines.sort_unstable();
    lines
}

/// The numbers once no request but this one runs.
async fn settled(running: &Running) -> String {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let text = text(running).await;
        if lines(&text, "twopass_requests_active") == ["twopass_requests_active 1"] {
            return text;
        }
        assert!(Instant::now() < limit, "{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn every_outcome_is_counted_once() {
    let upstream = Upstream::start().await;
    let provider = native_provider("far", upstream.addr);
    let running = Running::start(options(), vec![provider]).await;

    let request = post("/generate", ASK);
    let usage = r#"{"response": "ok", "usage": {"prompt_tokens": 7, "thinking_tokens": 2, "response_tokens": 3, "cached_tokens": 0}}"#;
    let (reply, ()) = tokio::join!(send(running.addr, &request), async {
        upstream.call().await.answer("200 OK", "", usage).await;
    });
    assert_eq!(reply.status, 200);
    let (reply, ()) = tokio::join!(send(running.addr, &request), async {
        let call = upstream.call().await;
        call.answer("503 Service Unavailable", "", "busy").await;
    });
    assert_eq!(reply.status, 503);
    assert_eq!(
        send(running.addr, &post("/generate", "{")).await.status,
        400
    );
    assert_eq!(get(running.addr, "/no/such/path").await.status, 404);

    // A stream that breaks off upstream, and one whose client goes away.
    for leaves in [false, true] {
        let mut client = Connection::open(running.addr).await;
        client.post("/generate", ASK_STREAM).await;
        let mut call = upstream.call().await;
        call.begin_stream().await;
        call.write("event: text\ndata: {\"text\":\"Y\"}\n\n").await;
        let head = client.head().await;
        client.chunk(&head).await.unwrap();
        if leaves {
            drop(client);
            call.closed().await;
        } else {
            call.end().await;
            while client.chunk(&head).await.is_some() {}
        }
    }

    let text = settled(&running).await;
    let counted: Vec<_> = lines(&text, "twopass_requests_total")
        .into_iter()
        .filter(|line| !line.contains("/metrics"))
        .collect();
    let line = |route: &str, outcome: &str| {
        format!("twopass_requests_total{{route=\"{route}\",outcome=\"{outcome}\"}} 1")
    };
    let expect = [
        line("/generate", "client_gone"),
        line("/generate", "invalid_json"),
        line("/generate", "ok"),
        line("/generate", "overloaded"),
        line("/generate", "stream_truncated"),
        line("unknown", "not_found"),
    ];
    assert_eq!(counted, expect);
    let labels = "gen_ai_provider_name=\"far\",gen_ai_request_model=\"far-model\"";
    for (token_type, n_tokens) in [("input", "7.0"), ("output", "5.0")] {
        let line = format!(
            "gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"{token_type}\"}} {n_tokens}"
        );
        assert!(text.contains(&line), "{line}\n{text}");
    }
    let first = format!("gen_ai_server_time_to_first_token_seconds_count{{{labels}}} 2");
    assert!(text.contains(&first), "{first}\n{text}");
    let duration = "gen_ai_server_request_duration_seconds_count";
    assert_eq!(lines(&text, duration).len(), 4, "{text}");
}

/// A text from outside is never a label.
#[tokio::test]
async fn labels_are_ours() {
    let upstream = Upstream::start().await;
    let running = Running::start(options(), vec![native_provider("far", upstream.addr)]).await;
    let request = post(
        "/generate",
        &json!({"model": "s3cret", "messages": [{"role": "user", "content": "Hi"}]}).to_string(),
    );
    assert_eq!(send(running.addr, &request).await.status, 404);
    assert_eq!(get(running.addr, "/s3cret").await.status, 404);
    assert!(!text(&running).await.contains("s3cret"));
}
