//! Fields that nobody here reads go on to a service of the same format, and only to one.

use serde_json::{Value, json};

use crate::client::{post, send};
use crate::harness::{Running, configured, options};
use crate::upstream::Upstream;

const CHAT_REPLY: &str = r#"{"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}"#;
const MESSAGES_REPLY: &str = r#"{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"}"#;

/// What reaches a service of this backend when a client posts this body to this path.
async fn forwarded(backend: &str, reply: &str, path: &str, body: &Value) -> Value {
    let upstream = Upstream::start().await;
    let provider = configured(
        &format!("http://{}/v1", upstream.addr),
        json!({"name": "m", "provider_backend": backend, "preset": "custom", "model_name": "m"}),
    );
    let running = Running::start(options(), vec![provider]).await;
    let request = post(path, &body.to_string());
    let (got, sent) = tokio::join!(send(running.addr, &request), async {
        let call = upstream.call().await;
        let sent = call.body.clone();
        let headers = "content-type: application/json\r\n";
        call.answer("200 OK", headers, reply).await;
        sent
    });
    assert_eq!(got.status, 200, "{}", got.json());
    sent
}

fn asked() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9,
           "user": "u1", "metadata": {"a": 1.50}, "logit_bias": {"5": -100}, "nothing": null})
}

#[tokio::test]
async fn unread_fields_reach_a_service_of_the_same_format() {
    let path = "/v1/chat/completions";
    let sent = forwarded("openai", CHAT_REPLY, path, &asked()).await;
    for name in ["user", "metadata", "logit_bias"] {
        assert_eq!(sent[name], asked()[name], "{name}: {sent}");
    }
    assert_eq!(sent.get("nothing"), None);
}

#[tokio::test]
async fn other_formats_do_not_get_them() {
    let path = "/v1/chat/completions";
    let sent = forwarded("anthropic", MESSAGES_REPLY, path, &asked()).await;
    for name in ["user", "metadata", "logit_bias"] {
        assert_eq!(sent.get(name), None, "{sent}");
    }
}
