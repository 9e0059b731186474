//! The `/generate` client against a real local server. Rows B12, B13, B14, D6, L12.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twopass_core::chat::{DiagnosticKind, Event, Message, Role, StopReason, ToolChoice, ToolSpec};
use twopass_provider::config::{Config, Environment};
use twopass_provider::plan::Thinking;
use twopass_provider::{CallOptions, ErrorKind, Provider, ProviderError, TurnItem};
use twopass_replay::{Answer, Pace, Server, Step};

use crate::play;

const DOCUMENTED: &str = r#"{"thinking": "...", "response": "I'll update memory.", "tool_calls": [{"id":"call_1","name":"overwrite_memory","arguments":{"new_memory":"..."}}], "pre_tool_text": "I'll update memory."}"#;

pub(crate) fn provider(server: &Server, lines: &str) -> Provider {
    let yaml = format!(
        "providers:\n  - name: n\n    provider_backend: vllm_native\n    model_name: org/m.1\n    api_config:\n      base_url: {}/v1\n      api_key_env: K\n      timeout_s: {{connect: 2, first_token: 0.4, idle: 0.4, total: 2}}\n      max_retries: 0\n{lines}",
        server.url()
    );
    let config =
        Config::parse(&yaml, "t.yaml", Environment::of_pairs([("K", "sk-native")])).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

fn documented() -> Answer {
    Answer::new(200, "application/json", DOCUMENTED)
}

pub(crate) fn hello() -> Vec<Message> {
    vec![Message::text(Role::User, "Hi")]
}

fn memory_tool() -> ToolSpec {
    ToolSpec {
        name: "overwrite_memory".to_owned(),
        description: "Replaces the memory.".to_owned(),
        parameters: json!({"type": "object", "properties": {"new_memory": {"type": "string"}}}),
    }
}

// Rows B12, D6: messages, both caps, tools, choice and parser leave; the key is a header.
#[tokio::test]
async fn b12_request_on_the_wire() {
    let server = play(vec![documented()]).await;
    let provider = provider(
        &server,
        "    generation_config: {max_thinking_tokens: 16, temperature: 0.3}\n",
    );
    let client = provider
        .client()
        .bind_tools(vec![memory_tool()], ToolChoice::Auto);
    client.invoke(hello()).await.unwrap();
    let asked = server.requests().remove(0);
    assert_eq!(
        (asked.method.as_str(), asked.path.as_str()),
        ("POST", "/generate")
    );
    assert_eq!(asked.header("authorization"), Some("Bearer sk-native"));
    assert_eq!(
        asked.json(),
        json!({
            "messages": [{"role": "user", "content": "Hi"}],
            "model": "org/m.1", "temperature": 0.3, "two_pass": true, "think_tag": "think",
            "max_thinking_tokens": 16, "max_response_tokens": 1024,
            "tools": [{"name": "overwrite_memory", "description": "Replaces the memory.",
                       "parameters": {"type": "object", "properties": {"new_memory": {"type": "string"}}}}],
            "tool_choice": "auto", "tool_parser": "hermes", "stream": true,
        })
    );
}

// Row B12: whether a demanded call may be several is said, for the server to follow.
#[tokio::test]
async fn b12_several_demanded_calls_are_asked_for() {
    let rows = [
        (ToolChoice::Required, Some(true), json!(true)),
        (ToolChoice::Required, None, json!(false)),
        (ToolChoice::Auto, None, Value::Null),
        (ToolChoice::Auto, Some(false), json!(false)),
    ];
    for (choice, parallel, sent) in rows {
        let server = play(vec![documented()]).await;
        let options = CallOptions {
            tools: vec![memory_tool()],
            tool_choice: choice.clone(),
            parallel_tool_calls: parallel,
            ..CallOptions::default()
        };
        let client = provider(&server, "").client().with_options(options);
        client.invoke(hello()).await.unwrap();
        let asked = server.requests().remove(0).json();
        assert_eq!(
            asked["parallel_tool_calls"], sent,
            "{choice:?}, {parallel:?}"
        );
    }
}

// Row A4: what the server says of a call that it did not read is not said again.
#[tokio::test]
async fn a4_an_unread_call_is_told_once() {
    let call = "{\"name\": \"overwrite_memory\", \"arguments\": {\"new_memory\": \"x\"}}";
    let mut notes = Vec::new();
    for _ in 0..2 {
        let body = json!({"thinking": "", "response": call, "diagnostics": notes});
        let server = play(vec![Answer::json(200, &body)]).await;
        let client = provider(&server, "").client();
        let client = client.bind_tools(vec![memory_tool()], ToolChoice::Auto);
        let message = client.invoke(hello()).await.unwrap();
        let told = &message.reply.diagnostics;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].kind, DiagnosticKind::UnreadToolCall);
        notes = vec![json!({"kind": told[0].kind.as_str(), "message": told[0].message})];
    }
}

// Rows B5, B6, B13, X2, X10: the documented reply as the client's message; there is always a
// client, and `content_mode` says whether its text keeps the thought.
#[tokio::test]
async fn b13_documented_reply_becomes_the_documented_message() {
    let server = play(vec![documented()]).await;
    let message = provider(&server, "")
        .client()
        .invoke(hello())
        .await
        .unwrap();
    assert_eq!(message.content, "<think>...</think>\nI'll update memory.");
    assert_eq!(message.thinking, "...");
    assert_eq!(message.tool_calls.len(), 1);
    assert_eq!(
        (
            message.tool_calls[0].id.as_str(),
            message.tool_calls[0].name.as_str()
        ),
        ("call_1", "overwrite_memory")
    );
    assert_eq!(
        message.tool_calls[0].arguments.as_object()["new_memory"],
        "..."
    );
    let clean = provider(&server, "    content_mode: clean\n")
        .client()
        .invoke(hello())
        .await
        .unwrap();
    assert_eq!(clean.content, "I'll update memory.");
}

fn turn() -> String {
    "event: thinking\ndata: {\"text\":\"Hm.\"}\n\n: ping\n\nevent: text\ndata: {\"text\":\"Gr\"}\n\nevent: text\ndata: {\"text\":\"üß\"}\n\nevent: done\ndata: {\"thinking\":\"Hm.\",\"response\":\"Grüß\",\"tool_calls\":[],\"finish_reason\":\"stop\"}\n\n".to_owned()
}

#[tokio::test]
async fn m1_streams_read_alike_whole_and_byte_by_byte() {
    for pace in [Pace::Whole, Pace::OneByte] {
        let answers = vec![Answer::events([turn()])];
        let server = Server::start(answers, pace).await.unwrap();
        let provider = provider(&server, "");
        let request = provider.request(hello(), CallOptions::default()).unwrap();
        let mut stream = provider.stream(request).await.unwrap();
        let mut items = Vec::new();
        while let Some(item) = stream.next().await {
            items.push(item.unwrap());
        }
        assert_eq!(items.len(), 4);
        assert_eq!(
            items[0],
            TurnItem::Event(Event::ReasoningDelta("Hm.".to_owned()))
        );
        assert_eq!(items[2], TurnItem::Event(Event::TextDelta("üß".to_owned())));
        let TurnItem::Done(reply) = items.remove(3) else {
            panic!("no end")
        };
        assert_eq!(
            (reply.content.as_str(), reply.stop_reason),
            ("Grüß", StopReason::EndTurn)
        );
    }
}

async fn fails(answer: Answer) -> ProviderError {
    let server = play(vec![answer]).await;
    let provider = provider(&server, "");
    let request = provider.request(hello(), CallOptions::default()).unwrap();
    let started = Instant::now();
    let error = provider.generate(request).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(4), "bounded time");
    let texts = format!("{error} {error:?}");
    assert!(
        !texts.contains("sk-native") && !texts.contains("Hi\""),
        "{texts}"
    );
    error
}

// Row B14: every failure is a typed error with a clear text, in bounded time.
#[tokio::test]
async fn b14_failures_are_typed() {
    let json = "application/json";
    let text_event = b"event: text\ndata: {\"text\":\"a\"}\n\n".to_vec();
    let long = Duration::from_secs(9);
    let refusal =
        r#"{"error":{"kind":"bad_request","message":"`stop[0]`: empty","param":"stop[0]"}}"#;
    let rows: Vec<(Answer, ErrorKind, Option<u16>, bool, &str)> = vec![
        (
            Answer::new(400, json, refusal),
            ErrorKind::BadRequest,
            Some(400),
            false,
            "provider `n`: HTTP 400: `stop[0]`: empty",
        ),
        (
            Answer::new(401, "text/plain", "no"),
            ErrorKind::Auth,
            Some(401),
            false,
            "provider `n`: HTTP 401: no",
        ),
        (
            Answer::new(404, json, r#"{"detail":"Not Found"}"#),
            ErrorKind::NotFound,
            Some(404),
            false,
            "provider `n`: HTTP 404: Not Found",
        ),
        (
            Answer::new(
                429,
                json,
                r#"{"error":{"kind":"queue_full","message":"busy"}}"#,
            )
            .with_header("retry-after", "2"),
            ErrorKind::QueueFull,
            Some(429),
            true,
            "provider `n`: HTTP 429: busy",
        ),
        (
            Answer::new(500, "text/html", "<html>"),
            ErrorKind::UpstreamError,
            Some(500),
            true,
            "provider `n`: HTTP 500 with an HTML page: ",
        ),
        (
            Answer::new(302, "text/plain", "").with_header("location", "http://127.0.0.1:1/"),
            ErrorKind::InvalidResponse,
            Some(302),
            false,
            "provider `n`: HTTP 302 without a body",
        ),
        (
            Answer::new(200, json, "garbage"),
            ErrorKind::InvalidResponse,
            None,
            false,
            "provider `n`: the reply is invalid: `body`: is not JSON: expected value at line 1 column 1",
        ),
        (
            Answer::new(
                200,
                json,
                r#"{"error":{"kind":"overloaded","message":"later"}}"#,
            ),
            ErrorKind::Overloaded,
            None,
            true,
            "provider `n`: the server reports: later",
        ),
        (
            Answer::raw("").then(Step::Wait(long)),
            ErrorKind::TimeoutFirstToken,
            None,
            true,
            "provider `n`: no output came within 0.4 s",
        ),
        (
            Answer::events([b": ping\n\n".to_vec()]).then(Step::Wait(long)),
            ErrorKind::TimeoutFirstToken,
            None,
            true,
            "provider `n`: no output came within 0.4 s",
        ),
        (
            Answer::events([text_event.clone()]).then(Step::Wait(long)),
            ErrorKind::TimeoutIdle,
            None,
            false,
            "provider `n`: the output stalled for 0.4 s",
        ),
        (
            Answer::events([text_event.clone()]),
            ErrorKind::StreamTruncated,
            None,
            false,
            "provider `n`: the server's stream ended before its `done` event",
        ),
        (
            Answer::events([b"event: text\ndata: {\n\n".to_vec()]),
            ErrorKind::InvalidResponse,
            None,
            false,
            "provider `n`: a delta event is invalid: `delta`: is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            Answer::events([text_event, b"data: {\"error\":\"boom\"}\n\n".to_vec()]),
            ErrorKind::UpstreamError,
            None,
            false,
            "provider `n`: the server reports: boom",
        ),
        (
            Answer::events([vec![b'x'; 9 << 20]]),
            ErrorKind::EventTooLarge,
            None,
            false,
            "provider `n`: an event of the stream is larger than 8388608 bytes",
        ),
        (
            Answer::raw(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
            ),
            ErrorKind::StreamTruncated,
            None,
            true,
            "",
        ),
    ];
    for (answer, kind, status, retryable, text) in rows {
        let error = fails(answer).await;
        assert_eq!((error.kind(), error.status()), (kind, status), "{error}");
        assert_eq!(error.is_retryable(), retryable, "{error}");
        if !text.is_empty() {
            assert_eq!(error.to_string(), text);
        }
    }
    let busy = Answer::new(429, json, "{}").with_header("retry-after", "2");
    assert_eq!(
        fails(busy).await.retry_after(),
        Some(Duration::from_secs(2))
    );
}

#[tokio::test]
async fn b14_nobody_listens() {
    let server = play(vec![documented()]).await;
    let provider = provider(&server, "    on_error: raise\n");
    let address = server.address().to_string();
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = provider.client().invoke(hello()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let answer = Answer::events(["event: text\ndata: {\"text\":\"a\"}\n\n"])
        .then(Step::Wait(Duration::from_secs(9)));
    let server = play(vec![answer]).await;
    let provider = provider(&server, "");
    let request = provider.request(hello(), CallOptions::default()).unwrap();
    let mut stream = provider.stream(request).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    let gone = async {
        while server.n_ended() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_millis(250), gone)
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn b2_one_pass_sends_one_cap() {
    let server = play(vec![documented()]).await;
    let provider = provider(&server, "");
    let options = CallOptions {
        thinking: Thinking::Off,
        max_tokens: Some(7),
        ..CallOptions::default()
    };
    provider.invoke_with(hello(), options).await.unwrap();
    let body = server.requests()[0].json();
    assert_eq!(
        (&body["two_pass"], &body["max_tokens"]),
        (&json!(false), &json!(7))
    );
    assert_eq!(
        (
            &body["max_response_tokens"],
            body.get("max_thinking_tokens")
        ),
        (&json!(7), None)
    );
}

/// A server that is not ours, or that was attacked: what it says is judged like a model's
/// own text (rows C1-C4, E5, E10, M7; case rules 12 to 14).
#[tokio::test]
async fn m7_what_a_server_says_is_not_trusted() {
    let call = |name: &str, id: &str, arguments: Value| json!({"id": id, "name": name, "arguments": arguments});
    let good = |id: &str| call("get_time", id, json!({"tz": "UTC"}));
    let rows = [
        (
            json!({"response": "<think>SECRET plan</think>Answer"}),
            "Answer",
            0,
            0,
            StopReason::EndTurn,
        ),
        (
            json!({"response": "<think>SECRET plan"}),
            "",
            0,
            0,
            StopReason::EndTurn,
        ),
        (
            json!({"response": "a", "tool_calls": [call("rm_rf", "c", json!({}))]}),
            "a",
            0,
            1,
            StopReason::EndTurn,
        ),
        (
            json!({"response": "a", "tool_calls": [call("get_time", "c", json!({}))]}),
            "a",
            0,
            1,
            StopReason::EndTurn,
        ),
        (
            json!({"response": "a", "finish_reason": "tool_calls"}),
            "a",
            0,
            0,
            StopReason::EndTurn,
        ),
        (
            json!({"response": "a", "finish_reason": "stop", "tool_calls": [good("c")]}),
            "a",
            1,
            0,
            StopReason::ToolCalls,
        ),
        (
            json!({"response": "a", "tool_calls": [good("c"), good("c")]}),
            "a",
            2,
            0,
            StopReason::ToolCalls,
        ),
    ];
    for (body, content, n_calls, n_invalid, stop) in rows {
        let server = play(vec![Answer::json(200, &body)]).await;
        let client = crate::chat::provider(&server, "vllm_native", "").client();
        let client = client.bind_tools(vec![crate::chat::time_tool()], ToolChoice::Auto);
        let reply = client.invoke(hello()).await.unwrap().reply;
        assert_eq!(reply.content, content, "{body}");
        assert_eq!(reply.tool_calls.len(), n_calls, "{body}");
        assert_eq!(reply.invalid_tool_calls.len(), n_invalid, "{body}");
        assert_eq!(reply.stop_reason, stop, "{body}");
        let mut ids: Vec<_> = reply.tool_calls.iter().map(|call| &call.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), n_calls, "{body}");
    }
}
