//! `/v1/chat/completions` in front of a chat service: what its clients send and read.

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::client::Reply;
use crate::service::{start, streamed, whole};

const PATH: &str = "/v1/chat/completions";

fn hi(fields: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// The events' data, the end marker left out but demanded.
fn chunks(reply: &Reply) -> Vec<Value> {
    let text = reply.text();
    let data: Vec<&str> = text
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .collect();
    let (last, chunks) = data.split_last().unwrap();
    assert_eq!(*last, "[DONE]", "{text}");
    chunks
        .iter()
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// Rows B5, B8, L3: reasoning beside the answer, real usage, what the client named.
#[tokio::test]
async fn a_whole_answer() {
    let message = json!({"role": "assistant", "content": "4", "reasoning": "2 and 2"});
    let server = start(vec![whole(message, "stop")]).await;
    let body = server.ask(PATH, &hi(json!({}))).await.json();
    let message = &body["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!("4"), &json!("2 and 2"))
    );
    assert_eq!(
        (&body["model"], &body["object"]),
        (&json!("m"), &json!("chat.completion"))
    );
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        body["usage"],
        json!({
            "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        })
    );
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
}

/// One id for all chunks, one spelling of reasoning, calls in pieces, usage only if wanted.
#[tokio::test]
async fn a_stream() {
    let deltas = [
        json!({"role": "assistant", "reasoning": "hm"}),
        json!({"content": "So"}),
        json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "t", "arguments": ""}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":1}"}}]}),
    ];
    let server = start(vec![streamed(&deltas, "tool_calls")]).await;
    let tools =
        json!([{"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}]);
    for include_usage in [true, false] {
        let body = hi(json!({
            "stream": true, "tools": tools, "stream_options": {"include_usage": include_usage},
        }));
        let chunks = chunks(&server.ask(PATH, &body).await);
        for chunk in &chunks {
            for field in ["id", "created", "model", "object"] {
                assert_eq!(chunk[field], chunks[0][field]);
            }
            assert_eq!(chunk.get("usage").is_some(), include_usage, "{chunk}");
        }
        let deltas: Vec<&Value> = chunks
            .iter()
            .filter_map(|chunk| chunk.pointer("/choices/0/delta"))
            .collect();
        assert_eq!(
            deltas,
            [
                &json!({"role": "assistant", "reasoning_content": "hm"}),
                &json!({"content": "So"}),
                &json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "t", "arguments": ""}}]}),
                &json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":1}"}}]}),
                &json!({}),
            ]
        );
        let last = chunks
            .iter()
            .rev()
            .find(|chunk| chunk["choices"] != json!([]))
            .unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
        if include_usage {
            assert_eq!(chunks.last().unwrap()["choices"], json!([]));
            assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], 14);
        }
    }
}

// Row L3: a thought in the text is held back while it streams, however it is cut.
#[tokio::test]
async fn l3_a_thought_in_the_text_is_held_back() {
    let pieces = ["<thi", "nk>sec", "ret</th", "ink>", "H", "i <b", ">"];
    let deltas = pieces.map(|piece| json!({ "content": piece }));
    let server = start(vec![streamed(&deltas, "stop")]).await;
    let chunks = chunks(&server.ask(PATH, &hi(json!({"stream": true}))).await);
    let said = |field: &str| -> String {
        let deltas = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0]["delta"][field]);
        deltas.filter_map(Value::as_str).collect()
    };
    assert_eq!(
        (said("reasoning_content"), said("content")),
        ("secret".to_owned(), "Hi <b>".to_owned())
    );
}

/// `n` answers are as many turns, and the prompt counts once.
#[tokio::test]
async fn several_answers() {
    let server = start(vec![whole(json!({"content": "4"}), "stop")]).await;
    let body = hi(json!({"n": 3, "seed": 7}));
    let answer = server.ask(PATH, &body).await.json();
    let indexes: Vec<_> = answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["index"])
        .collect();
    assert_eq!(indexes, [0, 1, 2]);
    assert_eq!(answer["usage"]["prompt_tokens"], 9);
    assert_eq!(answer["usage"]["completion_tokens"], 15);
    let mut seeds: Vec<_> = server
        .upstream
        .requests()
        .iter()
        .map(|r| r.json()["seed"].as_u64())
        .collect();
    seeds.sort_unstable();
    assert_eq!(seeds, [Some(7), Some(8), Some(9)]);
    assert_eq!(
        server.ask(PATH, &hi(json!({"n": 17}))).await.error(),
        "400 bad_request n"
    );

    let server = start(vec![streamed(&[json!({"content": "4"})], "stop")]).await;
    let chunks = chunks(&server.ask(PATH, &hi(json!({"n": 2, "stream": true}))).await);
    for choice in [0, 1] {
        let of_choice = |chunk: &&Value| chunk["choices"][0]["index"] == choice;
        let own: Vec<_> = chunks
            .iter()
            .filter(of_choice)
            .map(|c| &c["choices"][0])
            .collect();
        assert_eq!(own.len(), 2, "{chunks:?}");
        assert_eq!(own[0]["delta"]["content"], "4");
        assert_eq!(own[1]["finish_reason"], "stop");
    }
}

/// Every spelling of how much to think reaches a service in the words that it knows.
#[tokio::test]
async fn m4_the_budget_has_many_names() {
    let server = start(vec![whole(json!({"content": "4"}), "stop")]).await;
    for (fields, effort) in [
        (json!({"reasoning_effort": "high"}), json!("high")),
        (json!({"reasoning": {"effort": "low"}}), json!("low")),
        (json!({"reasoning": {"max_tokens": 2000}}), json!("medium")),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 9000}}),
            json!("high"),
        ),
        (json!({"max_thinking_tokens": 300}), json!("low")),
        (json!({"thinking": {"type": "disabled"}}), Value::Null),
        (json!({}), Value::Null),
    ] {
        assert_eq!(server.ask(PATH, &hi(fields.clone())).await.status, 200);
        let sent = server.asked();
        assert_eq!(sent["reasoning_effort"], effort, "{fields}: {sent}");
    }
}

/// A service's refusal keeps its status and its pause; a prompt that is too long is told in
/// the words that clients look for.
#[tokio::test]
async fn an_upstreams_refusal_is_passed_on() {
    let fault = |status: u16, message: &str, code: &str| {
        let error = json!({"error": {"message": message, "type": "x", "code": code}});
        Answer::json(status, &error).with_header("retry-after", "7")
    };
    for (answer, expect, retry, words) in [
        (
            fault(429, "slow down", "rate_limit_exceeded"),
            "429 rate_limit_exceeded -",
            Some("7"),
            "slow down",
        ),
        (
            fault(503, "busy", ""),
            "503 overloaded -",
            Some("7"),
            "busy",
        ),
        (
            fault(500, "oops", ""),
            "500 upstream_error -",
            Some("7"),
            "oops",
        ),
        (
            fault(422, "bad field", ""),
            "422 bad_request -",
            Some("7"),
            "bad field",
        ),
        (
            fault(401, "bad key", "invalid_api_key"),
            "502 auth -",
            Some("7"),
            "bad key",
        ),
        (
            fault(
                400,
                "This model's maximum context length is 10 tokens",
                "context_length_exceeded",
            ),
            "400 context_length_exceeded -",
            Some("7"),
            "prompt is too long",
        ),
    ] {
        let server = start(vec![answer]).await;
        for stream in [false, true] {
            let reply = server.ask(PATH, &hi(json!({"stream": stream}))).await;
            assert_eq!(reply.error(), expect);
            assert_eq!(reply.header("retry-after"), retry, "{expect}");
            assert!(reply.text().contains(words), "{}", reply.text());
        }
    }
}

/// A failure after the first event is an object in the stream, never a silent end.
#[tokio::test]
async fn a_failure_in_mid_stream_is_told() {
    let first = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
    let error = "data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\n";
    for (answer, code, words) in [
        (
            Answer::events([first, error]),
            "upstream_error",
            "engine died",
        ),
        (Answer::events([first]), "stream_truncated", ""),
    ] {
        let server = start(vec![answer]).await;
        let chunks = chunks(&server.ask(PATH, &hi(json!({"stream": true}))).await);
        assert_eq!(chunks[0]["choices"][0]["delta"]["content"], "Par");
        let error = &chunks.last().unwrap()["error"];
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!(code), &json!("server_error"))
        );
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{error}"
        );
        let finished = chunks
            .iter()
            .filter_map(|c| c.pointer("/choices/0/finish_reason"));
        assert!(finished.clone().all(Value::is_null), "{chunks:?}");
    }
}
