//! What is told of requests beside the numbers: the access log, and traces at a collector.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twopass_provider::config::TracesConfig;
use twopass_replay::{Answer, Pace, Server as Upstream};
use twopass_server::{AccessLog, ServerOptions};

use crate::client::{get, post, send};
use crate::harness::{Running, native_provider, options, temp_file};

const QUESTION: &str = "the secret question";
const THOUGHT: &str = "the secret thought";
const ANSWER: &str = "the secret answer";

/// An upstream that answers once in two passes, then is busy.
async fn upstream() -> Upstream {
    let pass = |name: &str, n_tokens: u32, milliseconds: f64| {
        json!({"name": name, "means": "engine_rule", "max_tokens": 64, "prefill_tokens": 5,
               "cached_tokens": 2, "decode_tokens": n_tokens, "duration_ms": milliseconds,
               "stop_reason": "stop"})
    };
    let reply = json!({
        "response": ANSWER,
        "thinking": THOUGHT,
        "usage": {"prompt_tokens": 7, "thinking_tokens": 3, "response_tokens": 4, "cached_tokens": 2},
        "finish_reason": "stop",
        "passes": [pass("thinking", 3, 20.0), pass("answer", 4, 10.0)],
    });
    let busy = Answer::json(
        503,
        &json!({"error": {"kind": "overloaded", "message": "busy"}}),
    );
    let answers = vec![Answer::json(200, &reply), busy];
    Upstream::start(answers, Pace::Whole).await.unwrap()
}

fn question(headers: &str) -> Vec<u8> {
    let body = json!({"messages": [{"role": "user", "content": QUESTION}]}).to_string();
    let request = String::from_utf8(post("/generate", &body)).unwrap();
    request
        .replacen("\r\n", &format!("\r\n{headers}"), 1)
        .into_bytes()
}

/// Waits until `done` gives something.
async fn until<T>(done: impl Fn() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(Instant::now() < limit, "it did not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A log that a test can read.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) async fn first(&self, n_lines: usize) -> Vec<Value> {
        let text = until(|| Some(self.text()).filter(|text| text.matches('\n').count() >= n_lines));
        let text = text.await;
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[tokio::test]
async fn each_request_is_one_line_without_secrets() {
    let upstream = upstream().await;
    let log = Lines::default();
    let options = ServerOptions {
        keys_file: Some(temp_file("access-log-keys", "the-secret-key\n")),
        access_log: Some(AccessLog::to(log.clone()).unwrap()),
        ..options()
    };
    let running = Running::start(options, vec![native_provider("far", upstream.address())]).await;
    let key = "authorization: Bearer the-secret-key\r\n";
    assert_eq!(send(running.addr, &question(key)).await.status, 200);
    assert_eq!(send(running.addr, &question(key)).await.status, 503);
    assert_eq!(send(running.addr, &question("")).await.status, 401);
    let unknown = b"BREW /the-secret-path HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    send(running.addr, unknown).await;

    let lines = log.first(4).await;
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let fields = ["method", "route", "status", "outcome", "provider", "model"];
            Value::from(fields.map(|field| line[field].clone()).to_vec())
        })
        .collect();
    assert_eq!(
        seen,
        [
            json!(["POST", "/generate", 200, "ok", "far", "far-model"]),
            json!(["POST", "/generate", 503, "overloaded", "far", "far-model"]),
            json!(["POST", "/generate", 401, "unauthorized", null, null]),
            json!(["other", "unknown", 401, "unauthorized", null, null]),
        ]
    );
    let tokens = [
        "prompt_tokens",
        "cached_tokens",
        "thinking_tokens",
        "response_tokens",
    ];
    assert_eq!(tokens.map(|name| lines[0][name].clone()), [7, 2, 3, 4]);
    for line in &lines {
        assert!(
            line["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0),
            "{line}"
        );
        let time = line["time"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
    assert!(!log.text().contains("secret"), "{}", log.text());
}

/// A collector, and a server that sends to it.
async fn traced(content: bool) -> (Upstream, Upstream, Running) {
    let collector = vec![Answer::json(503, &json!({})), Answer::json(200, &json!({}))];
    let collector = Upstream::start(collector, Pace::Whole).await.unwrap();
    let upstream = upstream().await;
    let options = ServerOptions {
        traces: Some(TracesConfig {
            endpoint: collector.url().parse().unwrap(),
            headers: vec![("x-collector-key".to_owned(), "k".into())],
            content,
        }),
        ..options()
    };
    let running = Running::start(options, vec![native_provider("far", upstream.address())]).await;
    (collector, upstream, running)
}

/// All spans that the collector took, by name.
fn spans(collector: &Upstream) -> Vec<Value> {
    // The first message was refused and came again.
    let taken = collector.requests().into_iter().skip(1);
    let spans = taken.flat_map(|request| {
        assert_eq!(request.path, "/v1/traces");
        assert_eq!(request.header("x-collector-key"), Some("k"));
        let scope = &request.json()["resourceSpans"][0]["scopeSpans"][0];
        scope["spans"].as_array().unwrap().clone()
    });
    let mut spans: Vec<_> = spans.collect();
    spans.sort_by_key(|span| span["name"].to_string());
    spans
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |found| {
        let value = found["value"].as_object().unwrap();
        value.values().next().unwrap()
    })
}

fn nanos(span: &Value, field: &str) -> u128 {
    span[field].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_request_and_its_passes_are_spans() {
    let (collector, _upstream, running) = traced(false).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = "b7ad6b7169203331";
    let named = |flags: &str| question(&format!("traceparent: 00-{trace}-{parent}-{flags}\r\n"));
    assert_eq!(send(running.addr, &named("01")).await.status, 200);
    assert_eq!(
        send(running.addr, &named("00")).await.status,
        503,
        "not to be recorded"
    );
    assert_eq!(send(running.addr, &question("")).await.status, 503);
    assert_eq!(get(running.addr, "/health").await.status, 200);
    // What is left goes out when the server ends.
    running.shutdown.stop();
    running.task.await.unwrap();

    let spans = spans(&collector);
    let names: Vec<_> = spans
        .iter()
        .map(|span| span["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "GET /health",
            "chat far-model",
            "chat far-model",
            "pass answer",
            "pass thinking"
        ]
    );
    let is_failed = |span: &&Value| span["status"]["code"] == 2;
    let failed: Vec<_> = spans.iter().filter(is_failed).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(attribute(failed[0], "error.type"), "overloaded");
    assert_ne!(failed[0]["traceId"], trace, "a trace of its own");

    let request = spans
        .iter()
        .find(|span| span["parentSpanId"] == parent)
        .unwrap();
    for (key, expect) in [
        ("http.request.method", json!("POST")),
        ("http.route", json!("/generate")),
        ("http.response.status_code", json!("200")),
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("far")),
        ("gen_ai.request.model", json!("far-model")),
        ("gen_ai.usage.input_tokens", json!("7")),
        ("gen_ai.usage.output_tokens", json!("7")),
        ("gen_ai.input.messages", Value::Null),
    ] {
        assert_eq!(attribute(request, key), &expect, "{key}");
    }
    let (answer, thinking) = (&spans[3], &spans[4]);
    for (span, n_tokens, milliseconds) in [(thinking, "3", 20), (answer, "4", 10)] {
        assert_eq!(span["traceId"], trace);
        assert_eq!(span["parentSpanId"], request["spanId"]);
        assert_eq!(attribute(span, "gen_ai.usage.output_tokens"), n_tokens);
        // Not longer than it was, nor than the request of a fast test's upstream.
        let took = nanos(span, "endTimeUnixNano") - nanos(span, "startTimeUnixNano");
        assert!(took <= milliseconds * 1_000_000, "{took}");
    }
    assert_eq!(
        nanos(thinking, "endTimeUnixNano"),
        nanos(answer, "startTimeUnixNano")
    );
    let sent: Vec<_> = collector
        .requests()
        .into_iter()
        .map(|request| request.body)
        .collect();
    assert!(!String::from_utf8_lossy(&sent.concat()).contains("secret"));
}

#[tokio::test]
async fn content_is_traced_where_it_is_wished() {
    let (collector, _upstream, running) = traced(true).await;
    assert_eq!(send(running.addr, &question("")).await.status, 200);
    running.shutdown.stop();
    running.task.await.unwrap();
    let spans = spans(&collector);
    let read = |key: &str| {
        let text = attribute(&spans[0], key).as_str().unwrap();
        serde_json::from_str::<Value>(text).unwrap()
    };
    assert_eq!(
        read("gen_ai.input.messages"),
        json!([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}])
    );
    assert_eq!(
        read("gen_ai.output.messages"),
        json!([{"role": "assistant", "finish_reason": "stop", "parts": [
            {"type": "reasoning", "content": THOUGHT},
            {"type": "text", "content": ANSWER},
        ]}])
    );
}

/// A collector that is not there holds nothing up and is told in the numbers.
#[tokio::test]
async fn a_collector_that_is_gone_costs_nothing() {
    let (collector, _upstream, running) = traced(false).await;
    drop(collector);
    assert_eq!(send(running.addr, &question("")).await.status, 200);
    let addr = running.addr;
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let text = get(addr, "/metrics").await.text();
        let lost = text
            .lines()
            .find_map(|line| line.strip_prefix("twopass_traces_lost_total "));
        if lost.is_some_and(|lost| lost != "0") {
            break;
        }
        assert!(Instant::now() < limit, "{text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let stopping = Instant::now();
    running.shutdown.stop();
    running.task.await.unwrap();
    assert!(stopping.elapsed() < Duration::from_secs(5));
}
