//! `logprobs` of Chat Completions and Completions, whole and streamed, on a real model.

use serde_json::{Value, json};

use crate::client::{post, send};
use crate::harness::{Running, configured, embedded_provider, options, smollm2};
use crate::model::{TURN, engine, start};
use crate::upstream::Upstream;

/// The data of a stream's events.
fn chunks(text: &str) -> Vec<Value> {
    let data = text
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "));
    let json = data.filter(|data| *data != "[DONE]");
    json.map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

fn body(more: &Value) -> Value {
    let mut body = json!({
        "model": "local",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 16,
        "temperature": 0,
        "logprobs": true,
        "top_logprobs": 2,
    });
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

async fn chat(server: &Running, more: Value) -> (u16, String) {
    let body = body(&more).to_string();
    let reply = send(server.addr, &post("/v1/chat/completions", &body)).await;
    (reply.status, reply.text())
}

/// Text of the content, and of its tokens.
fn content_of(choice: &Value) -> (String, String) {
    let message = choice.get("message").unwrap_or(&choice["delta"]);
    let content = message["content"].as_str().unwrap_or_default().to_owned();
    let tokens = choice["logprobs"]["content"].as_array();
    let mut bytes = Vec::new();
    for token in tokens.into_iter().flatten() {
        let own: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&own),
            token["token"].as_str().unwrap()
        );
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        assert_eq!(top[0]["logprob"], token["logprob"], "greedy: {token}");
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        bytes.extend(own);
    }
    (content, String::from_utf8(bytes).unwrap())
}

/// The tokens of the answer and of nothing else, whole and streamed alike.
#[tokio::test]
async fn chat_tells_the_tokens_of_its_content() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&smollm2(), engine(1, 4), false);
    let server = start(&provider).await;
    for more in [json!({}), json!({"max_thinking_tokens": 8})] {
        let (status, text) = chat(&server, more.clone()).await;
        assert_eq!(status, 200, "{text}");
        let whole: Value = serde_json::from_str(&text).unwrap();
        let choice = &whole["choices"][0];
        let (content, tokens) = content_of(choice);
        assert!(!content.is_empty());
        assert_eq!(content, tokens.trim());
        assert_eq!(choice["logprobs"]["refusal"], Value::Null);
        let mut streamed = more;
        streamed["stream"] = true.into();
        let (_, text) = chat(&server, streamed).await;
        let (mut content, mut tokens) = (String::new(), String::new());
        for chunk in chunks(&text) {
            let (text, own) = content_of(&chunk["choices"][0]);
            content += &text;
            tokens += &own;
        }
        assert_eq!(content.trim(), tokens.trim());
        assert_eq!(
            content.trim(),
            choice["message"]["content"].as_str().unwrap()
        );
    }
    let (_, text) = chat(&server, json!({"logprobs": false, "top_logprobs": 0})).await;
    let whole: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(whole["choices"][0]["logprobs"], Value::Null);
}

#[tokio::test]
async fn wrong_numbers_are_refused_by_name() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&smollm2(), engine(1, 4), false);
    let server = Running::start(options(), vec![provider]).await;
    for (more, expect) in [
        (json!({"top_logprobs": 21}), "from 0 to 20, got `21`"),
        (json!({"logprobs": false}), "needs `logprobs: true`"),
        (json!({"logprobs": 3}), "must be true or false, got `3`"),
    ] {
        let (status, text) = chat(&server, more).await;
        assert_eq!(status, 400, "{text}");
        assert!(text.contains(expect), "{text}");
    }
}

/// The old form: parallel lists.
#[tokio::test]
async fn completions_tell_lists() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&smollm2(), engine(1, 4), false);
    let server = start(&provider).await;
    let body = json!({
        "model": "local", "prompt": "One, two, three,", "max_tokens": 8,
        "temperature": 0, "logprobs": 2,
    });
    let reply = send(server.addr, &post("/v1/completions", &body.to_string())).await;
    let text = reply.text();
    assert_eq!(reply.status, 200, "{text}");
    let whole: Value = serde_json::from_str(&text).unwrap();
    let choice = &whole["choices"][0];
    let logprobs = &choice["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    let text: String = tokens.iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(choice["text"], text);
    let mut offset = 0;
    for (idx, token) in tokens.iter().enumerate() {
        let token = token.as_str().unwrap();
        assert_eq!(logprobs["text_offset"][idx], offset);
        assert_eq!(
            logprobs["top_logprobs"][idx][token],
            logprobs["token_logprobs"][idx]
        );
        offset += token.chars().count();
    }
    let mut streamed = body;
    streamed["stream"] = true.into();
    let reply = send(server.addr, &post("/v1/completions", &streamed.to_string())).await;
    let text = reply.text();
    let mut all = json!({"tokens": [], "text_offset": []});
    for chunk in chunks(&text) {
        for name in ["tokens", "text_offset"] {
            let more = chunk["choices"][0]["logprobs"][name].as_array().cloned();
            all[name]
                .as_array_mut()
                .unwrap()
                .extend(more.unwrap_or_default());
        }
    }
    assert_eq!(all["tokens"], logprobs["tokens"]);
    assert_eq!(all["text_offset"], logprobs["text_offset"]);
}

/// What a service tells of its tokens is passed on for the answer, not for the thought.
#[tokio::test]
async fn a_services_thought_stays_private() {
    let upstream = Upstream::start().await;
    let provider = configured(
        &format!("http://{}/v1", upstream.addr),
        json!({"name": "m", "provider_backend": "openai", "preset": "custom", "model_name": "m"}),
    );
    let running = Running::start(options(), vec![provider]).await;
    let tokens = ["<think>", "secret", "</think>", "\n\n", "It", " is", " 4"];
    let content = tokens.map(|token| {
        json!({"token": token, "logprob": -0.5, "bytes": null,
               "top_logprobs": [{"token": token, "logprob": -0.5, "bytes": token.as_bytes()}]})
    });
    let reply = json!({"choices": [{
        "message": {"role": "assistant", "content": tokens.concat()},
        "logprobs": {"content": content},
        "finish_reason": "stop",
    }]});
    let request = post(
        "/v1/chat/completions",
        &body(&json!({"model": "m"})).to_string(),
    );
    let (got, sent) = tokio::join!(send(running.addr, &request), async {
        let call = upstream.call().await;
        let sent = call.body.clone();
        let headers = "content-type: application/json\r\n";
        call.answer("200 OK", headers, &reply.to_string()).await;
        sent
    });
    assert_eq!(
        (&sent["logprobs"], &sent["top_logprobs"]),
        (&json!(true), &json!(2))
    );
    let choice = &got.json()["choices"][0];
    assert_eq!(choice["message"]["content"], "It is 4");
    let shown = choice["logprobs"]["content"].as_array().unwrap();
    let shown: Vec<_> = shown
        .iter()
        .map(|token| token["token"].as_str().unwrap())
        .collect();
    assert_eq!(shown, ["It", " is", " 4"]);
}
