//! What an answer must be: certain, as demanded, and thought of later.

use serde_json::{Value, json};
use twopass_replay::Answer;
use twopass_server::ServerOptions;

use crate::client::Reply;
use crate::harness::{options, temp_file};
use crate::service::{Before, start, start_with, streamed, whole};
use crate::{client, harness};

const CHAT: &str = "/v1/chat/completions";

fn hi(fields: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// The stream's pieces, as `content|reasoning|error code` each.
fn pieces(reply: &Reply) -> Vec<String> {
    let text = reply.text();
    let data = text
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "));
    let told = data.filter_map(|data| {
        let chunk: Value = serde_json::from_str(data).ok()?;
        let delta = chunk.pointer("/choices/0/delta");
        let told = [
            delta.and_then(|delta| delta["content"].as_str()),
            delta.and_then(|delta| delta["reasoning_content"].as_str()),
            chunk["error"]["code"].as_str(),
        ];
        told.iter()
            .any(Option::is_some)
            .then(|| told.map(Option::unwrap_or_default).join("|"))
    });
    told.collect()
}

fn texts(texts: &[&str]) -> Answer {
    let deltas: Vec<Value> = texts.iter().map(|text| json!({"content": text})).collect();
    streamed(&deltas, "stop")
}

/// Row C6: a thought that only its closing tag shows is never told as an answer, and a service
/// that was seen to write plain text is not waited for again.
#[tokio::test]
async fn c6_text_that_may_be_a_thought_waits() {
    let plain = texts(&["a", "b"]);
    let orphan = texts(&["I think", "</think>", "4"]);
    let server = start_with(
        vec![plain.clone(), orphan.clone(), orphan],
        json!({}),
        options(),
    )
    .await;
    let body = hi(json!({"stream": true}));
    let ask = || server.ask(CHAT, &body);
    assert_eq!(pieces(&ask().await), ["a||", "b||"]);
    let late = pieces(&ask().await);
    assert_eq!(late.last().unwrap(), "||reclassified", "{late:?}");
    // Now it is known how this service writes.
    assert_eq!(pieces(&ask().await), ["|I think|", "4||"]);

    let server = start_with(vec![texts(&["I think", "</think>4"])], json!({}), options()).await;
    let body = hi(json!({"stream": true, "max_tokens": 9}));
    let reply = server.ask("/v1/messages", &body);
    let events = client::events(&reply.await.text());
    let text: String = events
        .iter()
        .filter_map(|(_, data)| data["delta"]["text"].as_str())
        .collect();
    assert_eq!(text, "4");
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "t", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
    }}}])
}

fn call(arguments: &str) -> Value {
    json!({"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": arguments}}]})
}

/// Row M5: what was demanded is checked, asked for once more, and else an error.
async fn check_demanded(fields: &Value, answers: Vec<Answer>, expect: &str, n_asked: usize) {
    let server = start(answers).await;
    let reply = server.ask(CHAT, &hi(fields.clone())).await;
    let got = match reply.status {
        200 => "200".to_owned(),
        _ => reply.error(),
    };
    assert_eq!(got, expect, "{fields}: {}", reply.text());
    assert_eq!(server.upstream.requests().len(), n_asked, "{fields}");
    let body = reply.json();
    let content = body["choices"][0]["message"]["content"].as_str();
    assert!(!content.unwrap_or_default().contains("```"), "{body}");
}

fn text(text: &str) -> Answer {
    whole(json!({"content": text}), "stop")
}

#[tokio::test]
async fn m5_demanded_calls_are_enforced() {
    let required = json!({"tools": tools(), "tool_choice": "required"});
    let called = |arguments| whole(call(arguments), "tool_calls");
    let cut = whole(json!({"content": "no"}), "length");
    let violation = "502 tool_choice_violation -";
    check_demanded(&required, vec![called(r#"{"a":1}"#)], "200", 1).await;
    check_demanded(&required, vec![text("no"), called(r#"{"a":1}"#)], "200", 2).await;
    check_demanded(&required, vec![text("no")], violation, 2).await;
    check_demanded(&required, vec![called(r#"{"a":"x"}"#)], violation, 2).await;
    check_demanded(&required, vec![cut], "200", 1).await;

    let server = start(vec![text("no"), text("no")]).await;
    server.ask(CHAT, &hi(required)).await;
    let asked = server.asked();
    let last = asked["messages"].as_array().unwrap().last().unwrap();
    let told = last["content"].as_str().unwrap();
    assert!(told.contains("a tool call is required"), "{last}");
}

#[tokio::test]
async fn m5_demanded_forms_are_enforced() {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let of = |schema: &Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    let formed = of(&schema);
    let object = json!({"response_format": {"type": "json_object"}});
    let right = || text(r#"{"n": 1}"#);
    let violation = "502 schema_violation -";
    check_demanded(&formed, vec![right()], "200", 1).await;
    check_demanded(&formed, vec![text("```json\n{\"n\": 1}\n```")], "200", 1).await;
    check_demanded(&formed, vec![text("one"), right()], "200", 2).await;
    check_demanded(&formed, vec![text(r#"{"n": "one"}"#)], violation, 2).await;
    check_demanded(&object, vec![text("[]")], violation, 2).await;

    let server = start(vec![right()]).await;
    let broken = of(&json!({"$ref": "#/nowhere"}));
    let reply = server.ask(CHAT, &hi(broken)).await;
    assert_eq!(reply.error(), "400 bad_request response_format");
}

/// Row M7: a turn of nothing but invalid calls is an error, whole as streamed; beside text they
/// are listed with their reason, on every face.
#[tokio::test]
async fn m7_invalid_calls_are_never_silently_gone() {
    let free = json!({"tools": tools()});
    let invalid = || whole(call(r#"{"a":"x"}"#), "tool_calls");
    check_demanded(&free, vec![invalid()], "502 invalid_tool_call -", 1).await;

    let mut message = call(r#"{"a":"x"}"#);
    message["content"] = json!("So");
    let tool = &tools()[0]["function"];
    let named = json!({"type": "function", "name": "t", "parameters": tool["parameters"]});
    let schema = json!({"name": "t", "input_schema": tool["parameters"]});
    for (path, body, place) in [
        (CHAT, hi(free.clone()), "/choices/0/message"),
        (
            "/v1/responses",
            json!({"model": "m", "input": "hi", "tools": [named]}),
            "",
        ),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 9, "tools": [schema],
                "messages": [{"role": "user", "content": "hi"}]}),
            "",
        ),
    ] {
        let server = start(vec![whole(message.clone(), "tool_calls")]).await;
        let reply = server.ask(path, &body).await;
        let answer = reply.json();
        let call = answer.pointer(&format!("{place}/invalid_tool_calls/0"));
        let call = call.unwrap_or_else(|| panic!("{path}: {answer}"));
        assert_eq!(call["kind"], "schema_violation", "{path}: {answer}");
        assert_eq!(call["name"], "t", "{path}");
        assert!(reply.text().contains("So"), "{path}");
    }
    // What a stream announced cannot be taken back.
    let mut body = hi(free);
    body["stream"] = json!(true);
    let mut piece = call(r#"{"a":"x"}"#);
    piece["tool_calls"][0]["index"] = json!(0);
    for deltas in [vec![piece.clone()], vec![json!({"content": "So"}), piece]] {
        let server = start(vec![streamed(&deltas, "tool_calls")]).await;
        let told = pieces(&server.ask(CHAT, &body).await);
        let last = told.last().map(String::as_str);
        assert_eq!(last, Some("||invalid_tool_call"), "{told:?}");
    }
}

/// Row M5: a stream that lacks what was demanded ends with an error.
#[tokio::test]
async fn m5_streams_are_checked_at_their_end() {
    for (fields, answer, expect) in [
        (
            json!({"tools": tools(), "tool_choice": "required"}),
            texts(&["no"]),
            "||tool_choice_violation",
        ),
        (
            json!({"response_format": {"type": "json_object"}}),
            texts(&["[", "]"]),
            "||schema_violation",
        ),
        (
            json!({"tools": tools()}),
            streamed(&[call(r#"{"a":"x"}"#)], "tool_calls"),
            "||invalid_tool_call",
        ),
    ] {
        let server = start(vec![answer]).await;
        let mut body = hi(fields);
        body["stream"] = json!(true);
        let told = pieces(&server.ask(CHAT, &body).await);
        assert_eq!(told.last().map(String::as_str), Some(expect), "{told:?}");
    }
}

async fn thoughtful(options: ServerOptions) -> Before {
    let keys = json!({"preset": "deepseek", "reasoning_replay": "full"});
    let mut message = call(r#"{"a":1}"#);
    message["reasoning_content"] = json!("R1");
    let answers = vec![
        whole(message, "tool_calls"),
        whole(json!({"content": "4", "reasoning_content": "R2"}), "stop"),
        whole(json!({"content": "5"}), "stop"),
    ];
    start_with(answers, keys, options).await
}

/// The conversation goes on as most clients send it: without the reasoning.
async fn go_on(server: &Before, headers: &str) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "hi"})];
    for next in [
        Some(json!({"role": "tool", "tool_call_id": "c1", "content": "1"})),
        Some(json!({"role": "user", "content": "And?"})),
        None,
    ] {
        let body = json!({"model": "m", "messages": messages, "tools": tools()}).to_string();
        let request = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{headers}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = client::send(server.running.addr, request.as_bytes()).await;
        let mut message = reply.json()["choices"][0]["message"].clone();
        message
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !name.starts_with("reasoning"));
        messages.push(message);
        messages.extend(next);
    }
    let asked = server.asked();
    let turns = asked["messages"].as_array().unwrap().iter();
    turns
        .filter(|m| m["role"] == "assistant")
        .map(|m| m["reasoning_content"].clone())
        .collect()
}

#[tokio::test]
async fn m9_dropped_reasoning_comes_back() {
    let server = thoughtful(options()).await;
    assert_eq!(go_on(&server, "").await, ["R1", "R2"]);
    let off = ServerOptions {
        reasoning_memory: false,
        ..options()
    };
    let server = thoughtful(off).await;
    // This service wants the field beside calls, be it empty.
    assert_eq!(go_on(&server, "").await, [json!(""), Value::Null]);
}

/// Row M9: nobody gets what was kept for another key.
#[tokio::test]
async fn m9_memories_and_responses_belong_to_a_key() {
    let keys_file = Some(temp_file("two-keys", "one\ntwo\n"));
    let server = thoughtful(ServerOptions {
        keys_file,
        ..options()
    })
    .await;
    let auth = |key: &str| format!("authorization: Bearer {key}\r\n");
    assert_eq!(go_on(&server, &auth("one")).await, ["R1", "R2"]);
    let ask = |key: &str, path: &str, body: &str| {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            auth(key),
            body.len()
        );
        async move { client::send(server.running.addr, request.as_bytes()).await }
    };
    let history = json!([
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "And?"},
    ]);
    for (key, expect) in [("one", json!("R2")), ("two", Value::Null)] {
        let body = json!({"model": "m", "messages": history}).to_string();
        assert_eq!(ask(key, CHAT, &body).await.status, 200);
        assert_eq!(
            server.asked()["messages"][1]["reasoning_content"],
            expect,
            "{key}"
        );
    }
    let stored = ask("one", "/v1/responses", r#"{"model": "m", "input": "hi"}"#)
        .await
        .json();
    let path = format!("/v1/responses/{}", stored["id"].as_str().unwrap());
    assert_eq!(ask("one", &path, "").await.status, 200);
    assert_eq!(
        ask("two", &path, "").await.error(),
        "404 not_found response_id"
    );
}

/// Floats and their bytes; the embedding model may be named, or a provider.
#[tokio::test]
async fn vectors() {
    let vectors =
        json!({"data": [{"index": 0, "embedding": [0.5, -2.0]}], "usage": {"prompt_tokens": 3}});
    let upstream = twopass_replay::Server::start(
        vec![Answer::json(200, &vectors)],
        twopass_replay::Pace::Whole,
    )
    .await
    .unwrap();
    let provider = harness::configured_with(
        &upstream.url(),
        json!({"name": "m", "provider_backend": "openai", "model_name": "m"}),
        json!({"embeddings": {"model": "e"}}),
    );
    let running = harness::Running::start(options(), vec![provider]).await;
    let ask = |body: Value| {
        let request = client::post("/v1/embeddings", &body.to_string());
        let addr = running.addr;
        async move { client::send(addr, &request).await }
    };
    for (fields, expect) in [
        (json!({"model": "e"}), json!([0.5, -2.0])),
        (
            json!({"model": "m", "encoding_format": "float"}),
            json!([0.5, -2.0]),
        ),
        (
            json!({"encoding_format": "base64", "dimensions": 2}),
            json!("AAAAPwAAAMA="),
        ),
    ] {
        let mut body = json!({"input": "a"});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = ask(body).await.json();
        assert_eq!(answer["data"][0]["embedding"], expect, "{fields}");
        assert_eq!(
            (&answer["model"], &answer["usage"]["total_tokens"]),
            (&json!("e"), &json!(3))
        );
    }
    for (body, expect) in [
        (
            json!({"input": "a", "encoding_format": "int8"}),
            "400 bad_request encoding_format",
        ),
        (
            json!({"input": "a", "dimensions": 3}),
            "400 bad_request dimensions",
        ),
        (
            json!({"input": "a", "model": "x"}),
            "404 model_not_found model",
        ),
        (json!({"input": [[1, 2]]}), "400 bad_request input[0]"),
    ] {
        assert_eq!(ask(body).await.error(), expect);
    }
}
