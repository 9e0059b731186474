//! The same turn through every face: one model input, one outcome.

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::service::{Before, start_with, streamed, whole};
use crate::{client, harness};

const FACES: [(&str, &str); 4] = [
    ("chat", "/v1/chat/completions"),
    ("responses", "/v1/responses"),
    ("messages", "/v1/messages"),
    ("generate", "/generate"),
];

fn conversation(face: &str) -> Value {
    let text = include_str!("../../testdata/faces/conversation.json");
    serde_json::from_str::<Value>(text).unwrap()[face].clone()
}

/// A service that takes reasoning back, in a field of its own.
async fn start(answers: Vec<Answer>) -> Before {
    let keys = json!({"preset": "deepseek", "reasoning_replay": "full"});
    start_with(answers, keys, harness::options()).await
}

/// What a whole answer says, in one form for all faces.
fn outcome(face: &str, body: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parsed = |value: &Value| serde_json::from_str::<Value>(&text(value)).unwrap();
    let find = |list: &str, kind: &str| -> Vec<Value> {
        let items = body[list].as_array().into_iter().flatten();
        items.filter(|item| item["type"] == kind).cloned().collect()
    };
    let (content, reasoning, calls): (String, String, Vec<Value>) = match face {
        "chat" => {
            let message = &body["choices"][0]["message"];
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            let calls = calls.map(|call| {
                let function = &call["function"];
                json!([call["id"], function["name"], parsed(&function["arguments"])])
            });
            let reasoning = text(&message["reasoning_content"]);
            (text(&message["content"]), reasoning, calls.collect())
        }
        "responses" => {
            let message = find("output", "message").concat_texts("/content/0/text");
            let reasoning = find("output", "reasoning").concat_texts("/summary/0/text");
            let calls = find("output", "function_call").into_iter();
            let calls = calls
                .map(|call| json!([call["call_id"], call["name"], parsed(&call["arguments"])]));
            (message, reasoning, calls.collect())
        }
        "messages" => {
            let calls = find("content", "tool_use").into_iter();
            let calls = calls.map(|call| json!([call["id"], call["name"], call["input"]]));
            let reasoning = find("content", "thinking").concat_texts("/thinking");
            (
                find("content", "text").concat_texts("/text"),
                reasoning,
                calls.collect(),
            )
        }
        _ => {
            let calls = body["tool_calls"].as_array().unwrap().iter();
            let calls = calls.map(|call| json!([call["id"], call["name"], call["arguments"]]));
            (
                text(&body["response"]),
                text(&body["thinking"]),
                calls.collect(),
            )
        }
    };
    json!({"content": content, "reasoning": reasoning, "calls": calls})
}

trait ConcatTexts {
    fn concat_texts(&self, pointer: &str) -> String;
}

impl ConcatTexts for Vec<Value> {
    fn concat_texts(&self, pointer: &str) -> String {
        let texts = self
            .iter()
            .filter_map(|item| item.pointer(pointer)?.as_str());
        texts.collect()
    }
}

#[tokio::test]
async fn one_conversation_is_one_model_input_and_one_outcome() {
    let message = json!({
        "content": "One o'clock.", "reasoning_content": "An hour later.",
        "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "get_time", "arguments": "{\"tz\": \"UTC\"}"}}],
    });
    let server = start(vec![whole(message, "tool_calls")]).await;
    let mut asked = Vec::new();
    for (face, path) in FACES {
        let reply = server.ask(path, &conversation(face)).await;
        assert_eq!(reply.status, 200, "{face}: {}", reply.text());
        let expect = json!({
            "content": "One o'clock.", "reasoning": "An hour later.",
            "calls": [["c3", "get_time", {"tz": "UTC"}]],
        });
        assert_eq!(outcome(face, &reply.json()), expect, "{face}");
        asked.push(server.asked());
    }
    assert_eq!(
        asked[0]["messages"][2]["reasoning_content"],
        "A tool knows."
    );
    assert_eq!(asked[0]["messages"].as_array().unwrap().len(), 7);
    for (one, (face, _)) in asked.iter().zip(FACES) {
        assert_eq!(*one, asked[0], "{face}");
    }
}

/// Every event of the two formats whose streams have names, in order.
#[tokio::test]
async fn streams_have_every_event_in_order() {
    let deltas = [
        json!({"reasoning_content": "hm"}),
        json!({"content": "So"}),
        json!({"tool_calls": [{"index": 0, "id": "c3", "type": "function", "function": {"name": "get_time", "arguments": ""}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"tz\":\"UTC\"}"}}]}),
    ];
    let server = start(vec![streamed(&deltas, "tool_calls")]).await;
    for (face, path, expect) in [
        (
            "responses",
            "/v1/responses",
            include_str!("../../testdata/faces/responses.events"),
        ),
        (
            "messages",
            "/v1/messages",
            include_str!("../../testdata/faces/messages.events"),
        ),
    ] {
        let mut body = conversation(face);
        body["stream"] = json!(true);
        let reply = server.ask(path, &body).await;
        let events = client::events(&reply.text());
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expect.lines().collect::<Vec<_>>(), "{face}");
        for (name, data) in &events {
            assert_eq!(data["type"], *name, "{face}");
        }
        if face == "responses" {
            let numbers: Vec<u64> = events
                .iter()
                .map(|(_, data)| data["sequence_number"].as_u64().unwrap())
                .collect();
            assert!(
                numbers.iter().copied().eq(0..numbers.len() as u64),
                "{numbers:?}"
            );
            let whole = &events.last().unwrap().1["response"];
            assert_eq!(whole["usage"]["total_tokens"], 14);
            assert_eq!(
                outcome(face, whole),
                json!({"content": "So", "reasoning": "hm", "calls": [["c3", "get_time", {"tz": "UTC"}]]})
            );
        }
    }
}

/// No thinking unless it was asked for; the signature of what we wrote comes back unchecked.
#[tokio::test]
async fn messages_show_thinking_on_demand() {
    let server = start(vec![whole(
        json!({"content": "4", "reasoning_content": "2 and 2"}),
        "stop",
    )])
    .await;
    let mut body =
        json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "2+2?"}]});
    let kinds = |body: &Value| -> Vec<String> {
        let blocks = body["content"].as_array().unwrap().iter();
        blocks
            .map(|block| block["type"].as_str().unwrap().to_owned())
            .collect()
    };
    let answer = server.ask("/v1/messages", &body).await.json();
    assert_eq!(kinds(&answer), ["text"]);
    assert_eq!(answer["stop_reason"], "end_turn");
    assert_eq!(answer["usage"]["output_tokens"], 5);
    assert_eq!(
        (
            &answer["usage"]["input_tokens"],
            &answer["usage"]["cache_read_input_tokens"]
        ),
        (&json!(5), &json!(4))
    );

    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
    let answer = server.ask("/v1/messages", &body).await.json();
    assert_eq!(kinds(&answer), ["thinking", "text"]);
    assert!(
        !answer["content"][0]["signature"]
            .as_str()
            .unwrap()
            .is_empty()
    );
    let turns = body["messages"].as_array_mut().unwrap();
    turns.push(json!({"role": "assistant", "content": answer["content"]}));
    turns.push(json!({"role": "user", "content": "Sure?"}));
    assert_eq!(server.ask("/v1/messages", &body).await.status, 200);
    assert_eq!(
        server.asked()["messages"][1]["reasoning_content"],
        "2 and 2"
    );
}

/// What may be asked of a response's input items.
async fn check_pages(addr: std::net::SocketAddr, id: &str) {
    for (query, expect) in [
        ("?limit=1&order=desc", "200"),
        ("?limit=-1&order=zz", "400 bad_request limit"),
        ("?limit=101", "400 bad_request limit"),
        ("?order=zz", "400 bad_request order"),
        ("?page=2", "400 bad_request page"),
    ] {
        let path = format!("/v1/responses/{id}/input_items{query}");
        let reply = client::get(addr, &path).await;
        let got = match reply.status {
            200 => "200".to_owned(),
            _ => reply.error(),
        };
        assert_eq!(got, expect, "{query}");
    }
}

/// A response can be gone on from, read, and forgotten, by its own caller.
#[tokio::test]
async fn responses_are_stored() {
    let server = start(vec![
        whole(
            json!({"content": "4", "reasoning_content": "2 and 2"}),
            "stop",
        ),
        whole(json!({"content": "5"}), "stop"),
    ])
    .await;
    let ask = |fields: Value| {
        let mut body = json!({"model": "m", "instructions": "Count.", "metadata": {"a": "b"}});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let first = server
        .ask("/v1/responses", &ask(json!({"input": "2+2?"})))
        .await
        .json();
    let id = first["id"].as_str().unwrap();
    assert_eq!(
        (&first["metadata"], &first["instructions"]),
        (&json!({"a": "b"}), &json!("Count."))
    );
    let next = ask(json!({"input": "And one?", "previous_response_id": id, "stream": true}));
    let events = client::events(&server.ask("/v1/responses", &next).await.text());
    let second = &events.last().unwrap().1["response"];
    assert_eq!(second["previous_response_id"], id);
    let texts: Vec<_> = server.asked()["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["content"].clone())
        .collect();
    assert_eq!(texts, ["Count.", "2+2?", "4", "And one?"]);
    assert_eq!(
        server.asked()["messages"][2]["reasoning_content"],
        "2 and 2"
    );

    let addr = server.running.addr;
    let second_id = second["id"].as_str().unwrap();
    let read = client::get(addr, &format!("/v1/responses/{second_id}")).await;
    assert_eq!(read.json(), *second);
    let input = client::get(addr, &format!("/v1/responses/{second_id}/input_items")).await;
    assert_eq!(input.json()["data"][0]["content"], "And one?");
    check_pages(addr, second_id).await;
    let delete = format!("DELETE /v1/responses/{id} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let deleted = client::send(addr, delete.as_bytes()).await.json();
    assert_eq!(
        deleted,
        json!({"id": id, "object": "response", "deleted": true})
    );
    assert_eq!(
        client::get(addr, &format!("/v1/responses/{id}"))
            .await
            .error(),
        "404 not_found response_id"
    );
    let gone = ask(json!({"input": "x", "previous_response_id": id}));
    assert_eq!(
        server.ask("/v1/responses", &gone).await.error(),
        "404 not_found previous_response_id"
    );
    let unstored = ask(json!({"input": "2+2?", "store": false}));
    let unstored = server.ask("/v1/responses", &unstored).await.json();
    let path = format!("/v1/responses/{}", unstored["id"].as_str().unwrap());
    assert_eq!(client::get(addr, &path).await.status, 404);
}
