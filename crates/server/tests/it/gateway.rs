//! `/generate` in front of another `/generate` server (rows F1-F7): exact bytes, errors,
//! clients that go away, the end of the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use twopass_core::chat::{Event, Request};
use twopass_provider::config::BackendKind;
use twopass_provider::{Backend, Provider, ProviderError, TurnItem, TurnStream};
use twopass_server::{Limits, ServerOptions};

use crate::client::{Connection, events, get, post, send};
use crate::harness::{Running, entry, native_provider, options};
use crate::upstream::Upstream;

/// What an upstream says first.
const FIRST_EVENT: &str = "event: text\ndata: {\"text\":\"a\"}\n\n";

const ASK: &str = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
const ASK_STREAM: &str = r#"{"stream": true, "messages": [{"role": "user", "content": "Hi"}]}"#;
/// A client that goes away frees its slot within this time.
const GONE_MS: u128 = 250;

async fn gateway(options: ServerOptions) -> (Upstream, Running) {
    let upstream = Upstream::start().await;
    let provider = native_provider("far", upstream.addr);
    let running = Running::start(options, vec![provider]).await;
    (upstream, running)
}

/// Rows F2-F4, X21: the documented reply passes field for field, others are added.
#[tokio::test]
async fn f4_the_documented_reply_passes() {
    let documented = r#"{"thinking": "...", "response": "I'll update memory.", "tool_calls": [{"id":"call_1","name":"overwrite_memory","arguments":{"new_memory":"..."}}], "pre_tool_text": "I'll update memory."}"#;
    let (upstream, running) = gateway(options()).await;
    let request = post(
        "/generate",
        r#"{"messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "overwrite_memory", "description": "d", "parameters": {"type": "object"}}]}"#,
    );
    let (reply, ()) = tokio::join!(send(running.addr, &request), async {
        upstream
            .call()
            .await
            .answer("200 OK", "content-type: application/json\r\n", documented)
            .await;
    });
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json"))
    );
    let (got, expect) = (
        reply.json(),
        serde_json::from_str::<Value>(documented).unwrap(),
    );
    for (name, value) in expect.as_object().unwrap() {
        assert_eq!(&got[name], value, "{name}");
    }
    assert_eq!(got["finish_reason"], "tool_calls");
    for name in [
        "usage",
        "thinking_truncated",
        "invalid_tool_calls",
        "diagnostics",
        "passes",
    ] {
        assert!(!got[name].is_null(), "{name} is missing: {got}");
    }
}

/// Row F1: what the caller says reaches the engine; what it leaves out comes from the
/// configuration.
#[tokio::test]
async fn f1_the_request_reaches_the_engine() {
    let (upstream, running) = gateway(options()).await;
    let asked = json!({
        "model": "far/far-model", "temperature": 0.5, "two_pass": true, "think_tag": "thinking",
        "max_thinking_tokens": 7, "max_response_tokens": 9, "seed": 3, "top_p": 0.25, "stop": ["END"],
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "tools": [{"name": "t", "description": "d", "parameters": {"type": "object", "properties": {}}}],
        "tool_choice": {"name": "t"},
    });
    let request = post("/generate", &asked.to_string());
    let (_, got) = tokio::join!(send(running.addr, &request), async {
        let call = upstream.call().await;
        let body = call.body.clone();
        call.answer("200 OK", "", r#"{"response": "ok"}"#).await;
        body
    });
    for (name, value) in asked.as_object().unwrap() {
        if name != "model" {
            assert_eq!(&got[name], value, "{name}");
        }
    }
}

/// Section 4: events thinking, text, tool_call, done; done is the non-stream body.
#[tokio::test]
async fn s4_streams_pass_event_by_event() {
    let (upstream, running) = gateway(options()).await;
    let done = r#"{"thinking":"hm","response":"Yes.","tool_calls":[{"id":"call_1","name":"t","arguments":{"big":12345678901234567890123}}],"pre_tool_text":"Yes.","finish_reason":"tool_calls"}"#;
    let mut client = Connection::open(running.addr).await;
    client
        .post("/generate", r#"{"stream": true, "messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "t", "parameters": {}}]}"#)
        .await;
    let mut call = upstream.call().await;
    assert_eq!(call.body["stream"], true);
    call.begin_stream().await;
    call.write("event: thinking\ndata: {\"text\":\"hm\"}\n\n")
        .await;
    let head = client.head().await;
    assert_eq!(
        (head.status, head.header("content-type")),
        (200, Some("text/event-stream; charset=utf-8"))
    );
    // Each event arrives before the next one was sent: nothing buffers.
    let first = client.chunk(&head).await.unwrap();
    assert_eq!(
        String::from_utf8(first).unwrap(),
        "event: thinking\ndata: {\"text\":\"hm\"}\n\n"
    );
    call.write("event: text\ndata: {\"text\":\"Yes.\"}\n\n")
        .await;
    let second = client.chunk(&head).await.unwrap();
    assert_eq!(
        String::from_utf8(second).unwrap(),
        "event: text\ndata: {\"text\":\"Yes.\"}\n\n"
    );
    call.write("event: tool_call\ndata: {\"id\":\"call_1\",\"name\":\"t\",\"arguments\":{\"big\":12345678901234567890123}}\n\n").await;
    call.write(&format!("event: done\ndata: {done}\n\n")).await;
    call.end().await;
    let mut rest = Vec::new();
    while let Some(chunk) = client.chunk(&head).await {
        rest.extend(chunk);
    }
    let rest = String::from_utf8(rest).unwrap();
    assert!(
        rest.contains(r#""arguments":{"big":12345678901234567890123}"#),
        "{rest}"
    );
    let events = events(&rest);
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tool_call", "done"]);
    assert_eq!(events[1].1["response"], "Yes.");
    assert_eq!(events[1].1["thinking"], "hm");
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_the_last_event() {
    let (upstream, running) = gateway(options()).await;
    for (tail, kind) in [
        (
            "event: error\ndata: {\"error\":{\"kind\":\"overloaded\",\"message\":\"busy\",\"param\":null}}\n\n",
            "overloaded",
        ),
        ("", "stream_truncated"),
        ("event: text\ndata: nonsense\n\n", "invalid_response"),
    ] {
        let mut client = Connection::open(running.addr).await;
        client.post("/generate", ASK_STREAM).await;
        let mut call = upstream.call().await;
        call.begin_stream().await;
        call.write("event: text\ndata: {\"text\":\"Y\"}\n\n").await;
        let head = client.head().await;
        assert_eq!(head.status, 200);
        assert_eq!(
            client.chunk(&head).await.unwrap(),
            b"event: text\ndata: {\"text\":\"Y\"}\n\n"
        );
        call.write(tail).await;
        call.end().await;
        let rest = client.chunk(&head).await.unwrap();
        assert_eq!(client.chunk(&head).await, None, "{tail:?}");
        let events = events(&String::from_utf8(rest).unwrap());
        assert_eq!(events.len(), 1, "{tail:?}: {events:?}");
        let (name, error) = &events[0];
        assert_eq!(
            (name.as_str(), error["error"]["kind"].as_str()),
            ("error", Some(kind)),
            "{tail:?}: {error}"
        );
        assert!(error["error"]["param"].is_null());
    }
}

/// Row F5: a failure before the first event is a status, streamed or not.
#[tokio::test]
async fn f5_upstream_failures_have_their_status() {
    let (upstream, running) = gateway(options()).await;
    let ours =
        |kind: &str| format!(r#"{{"error":{{"kind":"{kind}","message":"m","param":null}}}}"#);
    for (status, headers, body, expect) in [
        (
            "400 Bad Request",
            "",
            ours("bad_request"),
            "400 bad_request -",
        ),
        (
            "400 Bad Request",
            "",
            ours("context_length"),
            "400 context_length -",
        ),
        ("401 Unauthorized", "", "{}".to_owned(), "502 auth -"),
        (
            "429 Too Many Requests",
            "retry-after: 7\r\n",
            ours("queue_full"),
            "429 queue_full -",
        ),
        (
            "500 Internal Server Error",
            "",
            "oops".to_owned(),
            "500 upstream_error -",
        ),
        ("200 OK", "", "no json".to_owned(), "502 invalid_response -"),
    ] {
        for ask in [ASK, ASK_STREAM] {
            let request = post("/generate", ask);
            let (reply, ()) = tokio::join!(send(running.addr, &request), async {
                upstream.call().await.answer(status, headers, &body).await;
            });
            assert_eq!(reply.error(), expect, "{status} {ask}");
            let retry = (!headers.is_empty()).then_some("7");
            assert_eq!(reply.header("retry-after"), retry, "{status}");
        }
    }
    drop(upstream);
    assert_eq!(
        send(running.addr, &post("/generate", ASK)).await.error(),
        "502 connect -"
    );
}

/// Section 4: a client that goes away stops its generation within 250 ms, streamed or not,
/// whatever else it had sent: a stray line end, a next request, noise. (Of more than the
/// receive window holds, TCP does not tell the end before somebody reads it.)
#[tokio::test]
async fn s4_a_client_that_goes_away_stops_its_turn() {
    let (upstream, running) = gateway(options()).await;
    let more = [
        Vec::new(),
        b"\r\n".to_vec(),
        post("/generate", ASK),
        vec![b' '; 30_000],
    ];
    for (ask, more) in [ASK, ASK_STREAM]
        .into_iter()
        .flat_map(|ask| more.iter().map(move |m| (ask, m)))
    {
        let mut client = Connection::open(running.addr).await;
        client.post("/generate", ask).await;
        let mut call = upstream.call().await;
        client.write(more).await;
        if ask == ASK_STREAM {
            call.begin_stream().await;
            call.write("event: text\ndata: {\"text\":\"Y\"}\n\n").await;
            let head = client.head().await;
            client.chunk(&head).await.unwrap();
        }
        let gone = Instant::now();
        drop(client);
        let closed = tokio::time::timeout(Duration::from_secs(10), call.closed()).await;
        assert!(
            closed.is_ok(),
            "{ask} and {} bytes: the turn goes on",
            more.len()
        );
        let took = gone.elapsed().as_millis();
        assert!(took < GONE_MS, "{ask} and {} bytes: {took} ms", more.len());
    }
}

#[tokio::test]
async fn a_drain_lets_running_turns_end_and_takes_no_new_ones() {
    let (upstream, running) = gateway(options()).await;
    let mut whole = Connection::open(running.addr).await;
    whole.post("/generate", ASK).await;
    let whole_call = upstream.call().await;
    let mut streamed = Connection::open(running.addr).await;
    streamed.post("/generate", ASK_STREAM).await;
    let mut stream_call = upstream.call().await;
    stream_call.begin_stream().await;
    stream_call.write(FIRST_EVENT).await;
    let head = streamed.head().await;
    // Not waited for.
    let mut half = tokio::net::TcpStream::connect(running.addr).await.unwrap();
    half.write_all(b"POST /generate HTTP/1.1\r\nhost: ")
        .await
        .unwrap();

    running.shutdown.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(
        tokio::net::TcpStream::connect(running.addr).await.is_err(),
        "still accepts"
    );
    assert!(!running.task.is_finished());
    whole_call
        .answer("200 OK", "", r#"{"response": "late"}"#)
        .await;
    assert_eq!(whole.reply().await.json()["response"], "late");
    stream_call
        .write("event: done\ndata: {\"response\":\"a\"}\n\n")
        .await;
    stream_call.end().await;
    let mut text = Vec::new();
    while let Some(chunk) = streamed.chunk(&head).await {
        text.extend(chunk);
    }
    assert_eq!(
        events(&String::from_utf8(text).unwrap())[1].1["response"],
        "a"
    );
    tokio::time::timeout(Duration::from_secs(2), running.task)
        .await
        .expect("it ends")
        .unwrap();
}

#[tokio::test]
async fn after_the_drain_time_turns_are_cut_with_an_error() {
    let limits = Limits {
        drain: Duration::from_millis(100),
        ..Limits::default()
    };
    let (upstream, running) = gateway(ServerOptions {
        limits,
        ..options()
    })
    .await;
    let mut whole = Connection::open(running.addr).await;
    whole.post("/generate", ASK).await;
    let whole_call = upstream.call().await;
    let mut streamed = Connection::open(running.addr).await;
    streamed.post("/generate", ASK_STREAM).await;
    let mut stream_call = upstream.call().await;
    stream_call.begin_stream().await;
    stream_call.write(FIRST_EVENT).await;
    let head = streamed.head().await;

    running.shutdown.stop();
    let cut = whole.reply().await;
    assert_eq!(cut.error(), "503 shutting_down -");
    assert_eq!(cut.header("retry-after"), Some("5"));
    let mut text = Vec::new();
    while let Some(chunk) = streamed.chunk(&head).await {
        text.extend(chunk);
    }
    let events = events(&String::from_utf8(text).unwrap());
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(
        (events[1].0.as_str(), events[1].1["error"]["kind"].as_str()),
        ("error", Some("shutting_down"))
    );
    tokio::time::timeout(Duration::from_secs(2), running.task)
        .await
        .expect("it ends")
        .unwrap();
    whole_call.closed().await;
    stream_call.closed().await;
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let (upstream, running) = gateway(options()).await;
    let mut client = Connection::open(running.addr).await;
    client.post("/generate", ASK).await;
    let call = upstream.call().await;
    running.shutdown.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!running.task.is_finished());
    let start = Instant::now();
    running.shutdown.stop();
    tokio::time::timeout(Duration::from_secs(2), running.task)
        .await
        .expect("it ends")
        .unwrap();
    call.closed().await;
    assert!(start.elapsed() < Duration::from_millis(500));
}

#[tokio::test]
async fn a_silent_stream_sends_comments() {
    let limits = Limits {
        heartbeat: Duration::from_millis(40),
        ..Limits::default()
    };
    let (upstream, running) = gateway(ServerOptions {
        limits,
        ..options()
    })
    .await;
    let mut client = Connection::open(running.addr).await;
    client.post("/generate", ASK_STREAM).await;
    let mut call = upstream.call().await;
    call.begin_stream().await;
    // The turn has said nothing: the reply begins all the same.
    let head = client.head().await;
    for _ in 0..3 {
        assert_eq!(client.chunk(&head).await.unwrap(), b": keep-alive\n\n");
    }
}

/// A client that reads nothing holds its turn for `write_stall` at most.
#[tokio::test]
async fn a_client_that_reads_nothing_is_dropped() {
    let limits = Limits {
        write_stall: Duration::from_millis(300),
        ..Limits::default()
    };
    let (upstream, running) = gateway(ServerOptions {
        limits,
        ..options()
    })
    .await;
    let mut client = Connection::open(running.addr).await;
    client.post("/generate", ASK_STREAM).await;
    let mut call = upstream.call().await;
    call.begin_stream().await;
    let event = format!(
        "event: text\ndata: {{\"text\":\"{}\"}}\n\n",
        "x".repeat(60_000)
    );
    let start = Instant::now();
    let flood = async {
        while start.elapsed() < Duration::from_secs(20) {
            if !call.write_while_open(&event).await {
                return true;
            }
        }
        false
    };
    let dropped = tokio::time::timeout(Duration::from_secs(20), flood).await;
    assert!(matches!(dropped, Ok(true)), "the stalled stream goes on");
    drop(client);
}

/// Panics before the first event, or after it.
struct Faulty {
    late: bool,
}

impl Backend for Faulty {
    fn open(&self, _: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        assert!(self.late, "on purpose");
        let event = Ok(TurnItem::Event(Event::TextDelta("Y".to_owned())));
        let items = stream::iter([event]).chain(stream::once(async { panic!("on purpose") }));
        async { Ok(TurnStream::new(items)) }.boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { Ok(()) }.boxed()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_bug_is_a_500_and_the_server_lives() {
    let provider = |name: &str, late| {
        Provider::new(
            entry(name, BackendKind::Embedded, "m"),
            Arc::new(Faulty { late }),
        )
    };
    let running = Running::start(
        options(),
        vec![provider("early", false), provider("late", true)],
    )
    .await;
    let ask = |model: &str, stream: bool| {
        let body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]});
        post("/generate", &body.to_string())
    };
    for request in [ask("early", false), ask("early", true), ask("late", false)] {
        let reply = send(running.addr, &request).await;
        assert_eq!(reply.error(), "500 internal -");
        assert!(!reply.text().contains("purpose"), "{}", reply.text());
    }
    let events = events(&send(running.addr, &ask("late", true)).await.text());
    assert_eq!(events[0], ("text".to_owned(), json!({"text": "Y"})));
    assert_eq!(
        (events[1].0.as_str(), events[1].1["error"]["kind"].as_str()),
        ("error", Some("internal"))
    );
    assert_eq!(get(running.addr, "/health").await.status, 200);
}

/// Section 4: the list holds exactly what can be called; the name picks the provider.
#[tokio::test]
async fn s4_models_are_what_can_be_called() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let providers = vec![
        native_provider("one", one.addr),
        native_provider("two", two.addr),
    ];
    let default_provider = Some("two".to_owned());
    let running = Running::start(
        ServerOptions {
            default_provider,
            ..options()
        },
        providers,
    )
    .await;

    let list = get(running.addr, "/v1/models").await.json();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["one", "one/far-model", "two", "two/far-model"]);
    let mut asked: Vec<_> = ids
        .iter()
        .map(|id| (format!(r#""model": "{id}", "#), id.starts_with("one")))
        .collect();
    asked.push((String::new(), false));
    asked.push((r#""model": null, "#.to_owned(), false));
    for (model, is_one) in asked {
        let request = post(
            "/generate",
            &format!(r#"{{{model}"messages": [{{"role": "user", "content": "Hi"}}]}}"#),
        );
        let upstream = if is_one { &one } else { &two };
        let (reply, ()) = tokio::join!(send(running.addr, &request), async {
            upstream
                .call()
                .await
                .answer("200 OK", "", r#"{"response": "ok"}"#)
                .await;
        });
        assert_eq!(reply.status, 200, "{model}");
    }
    for id in ids {
        let found = get(running.addr, &format!("/v1/models/{id}")).await;
        assert_eq!(
            (found.status, found.json()["id"].as_str().unwrap()),
            (200, id)
        );
    }
    for id in ["three", "one/other", "far-model", "one/"] {
        let request = post(
            "/generate",
            &format!(r#"{{"model": "{id}", "messages": [{{"role": "user", "content": "Hi"}}]}}"#),
        );
        let reply = send(running.addr, &request).await;
        assert_eq!(reply.error(), "404 not_found model", "{id}");
        assert!(reply.text().contains("`two/far-model`"), "{}", reply.text());
        assert_eq!(
            get(running.addr, &format!("/v1/models/{id}")).await.error(),
            "404 model_not_found model"
        );
    }
}

/// Row F7.
#[tokio::test]
async fn f7_health_tells_status_and_model() {
    let default_provider = Some("two".to_owned());
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let providers = vec![
        native_provider("one", nobody),
        native_provider("two", nobody),
    ];
    let running = Running::start(
        ServerOptions {
            default_provider,
            ..options()
        },
        providers,
    )
    .await;
    let health = get(running.addr, "/health").await;
    assert_eq!(health.status, 200);
    let health = health.json();
    assert_eq!(
        [
            &health["status"],
            &health["model"],
            &health["ready"],
            &health["provider"]
        ],
        [
            &json!("ok"),
            &json!("far-model"),
            &json!(true),
            &json!("two")
        ]
    );
}
