//! What an attacker sends: a clear refusal each, soon, and the server lives. Oversized and slow
//! bodies and heads are in `malformed` and `sockets`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{get, post, send};
use crate::harness::{Running, native_provider, options};
use crate::service::{start_with, whole};

const FACES: [&str; 5] = [
    "/generate",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/completions",
];
/// Longer than any of them may take.
const SOON: Duration = Duration::from_secs(10);

/// A server whose provider is never reached: what is not refused before it is a 502.
async fn start() -> Running {
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    Running::start(options(), vec![native_provider("far", nobody)]).await
}

async fn lives(running: &Running) {
    assert_eq!(get(running.addr, "/health/live").await.status, 200);
}

fn tool(path: &str, name: &str, schema: &Value) -> Value {
    match path {
        "/v1/chat/completions" => {
            json!({"type": "function", "function": {"name": name, "parameters": schema}})
        }
        "/v1/responses" => json!({"type": "function", "name": name, "parameters": schema}),
        "/v1/messages" => json!({"name": name, "input_schema": schema}),
        _ => json!({"name": name, "parameters": schema}),
    }
}

fn asking(path: &str, tools: Vec<Value>) -> String {
    let text = if path == "/v1/responses" {
        "input"
    } else {
        "messages"
    };
    let mut body = json!({"max_tokens": 8, "tools": tools});
    body[text] = json!([{"role": "user", "content": "Hi"}]);
    body.to_string()
}

#[tokio::test]
async fn deep_bodies_and_many_tools() {
    let running = start().await;
    for path in FACES {
        let deep = format!(
            "{{\"messages\": {}{}}}",
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        let began = Instant::now();
        let reply = send(running.addr, &post(path, &deep)).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(began.elapsed() < SOON, "{path}");
        if path == "/v1/completions" {
            continue;
        }
        let tools = (0..10_000).map(|n| tool(path, &format!("t{n}"), &json!({"type": "object"})));
        let began = Instant::now();
        let reply = send(running.addr, &post(path, &asking(path, tools.collect()))).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert!(reply.text().contains("tools"), "{path}: {}", reply.text());
        assert!(began.elapsed() < SOON, "{path}");
    }
    lives(&running).await;
}

/// Two requests in one: what counts is one of them or none, never both.
#[tokio::test]
async fn smuggled_requests_are_refused() {
    let running = start().await;
    let head = "POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let hidden = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for framing in [
        "content-length: 3\r\ncontent-length: 2\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "transfer-encoding: identity, xchunked\r\n",
        "content-length: +2\r\n",
        "content-length: 0x2\r\n",
        "content-length : 2\r\n",
        "x: y\r\n content-length: 2\r\n",
    ] {
        let raw = format!("{head}{framing}\r\n{{}}{hidden}");
        let reply = send(running.addr, raw.as_bytes()).await;
        assert!((400..500).contains(&reply.status), "{framing}: {reply:?}");
    }
    lives(&running).await;
}

#[tokio::test]
async fn paths_lead_nowhere() {
    let running = start().await;
    for path in [
        "/../etc/passwd",
        "/v1/../metrics",
        "/v1/%2e%2e/metrics",
        "//v1/models",
        "/v1/models/../../metrics",
        "/v1/models/%00",
        "/v1/models/%FF",
        "/v1/responses/..%2f..%2fetc%2fpasswd",
        "/v1/responses/' OR 1=1 --",
        "/v1//models",
        "/generate%00",
    ] {
        let path = path.replace(' ', "%20");
        let reply = get(running.addr, &path).await;
        assert!((400..500).contains(&reply.status), "{path}: {reply:?}");
    }
    lives(&running).await;
}

#[tokio::test]
async fn keys_of_other_scripts_and_of_the_language_are_keys() {
    let running = start().await;
    for body in [
        // Look-alikes of known fields, and names with a meaning elsewhere.
        r#"{"mеssages": [{"role": "user", "content": "Hi"}]}"#.to_owned(),
        "{\"\\u202emessages\": []}".to_owned(),
        "{\"messages\\u0000\": []}".to_owned(),
        r#"{"__proto__": {"messages": [{"role": "user", "content": "Hi"}]}}"#.to_owned(),
        format!("{{\"{}\": 1}}", "k".repeat(1 << 20)),
    ] {
        for path in FACES {
            let reply = send(running.addr, &post(path, &body)).await;
            assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        }
    }
    lives(&running).await;
}

/// Schemas that make a checker run for ever: the answer comes soon, whatever it is.
#[tokio::test]
async fn schemas_cost_little() {
    let looped = json!({
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    });
    let doubled = (0..40).fold(json!({"type": "string"}), |inner, n| {
        let name = format!("d{n}");
        json!({"allOf": [{"$ref": format!("#/$defs/{name}")}, {"$ref": format!("#/$defs/{name}")}],
               "$defs": {name: inner}})
    });
    let pattern =
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}});
    let outside = json!({"$ref": "file:///etc/passwd"});
    let answer = json!({"a": format!("{}!", "a".repeat(5000))}).to_string();
    for schema in [looped, doubled, pattern, outside] {
        let server = start_with(
            vec![whole(json!({"content": answer}), "stop")],
            json!({"parsing_format": "direct_response"}),
            options(),
        )
        .await;
        let body = json!({
            "messages": [{"role": "user", "content": "Hi"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
        });
        let began = Instant::now();
        let reply = server.ask("/v1/chat/completions", &body).await;
        assert!(began.elapsed() < SOON, "{schema}");
        // Refused as a schema, or the answer is not of its form.
        assert!(
            reply.status == 400 || reply.error().starts_with("502 schema_violation"),
            "{schema}: {}",
            reply.text()
        );
        lives(&server.running).await;
    }
}
