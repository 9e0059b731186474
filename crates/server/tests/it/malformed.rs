//! Requests that cannot be carried out: one clear error each, and the server lives
//! (row F5, section 4).

use std::time::Duration;

use twopass_server::{Limits, ServerOptions};

use crate::client::{Connection, get, post, send};
use crate::harness::{Running, native_provider, options};

const MIB: usize = 1 << 20;

/// A server whose provider is never reached: every request here fails before it.
async fn start(options: ServerOptions) -> Running {
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    Running::start(options, vec![native_provider("far", nobody)]).await
}

/// Whole bodies, and `status kind param` of their answer.
const BODIES: &[(&str, &str)] = &[
    ("", "400 invalid_json -"),
    ("{", "400 invalid_json -"),
    ("not json", "400 invalid_json -"),
    ("[]", "400 invalid_json -"),
    ("null", "400 invalid_json -"),
    (
        r#"{"messages": [{"role": "user"}]} trailing"#,
        "400 invalid_json -",
    ),
    ("{}", "400 bad_request messages"),
    (r#"{"messages": []}"#, "400 bad_request messages"),
    (r#"{"messages": "Hi"}"#, "400 bad_request messages"),
    (r#"{"messages": ["Hi"]}"#, "400 bad_request messages[0]"),
    (
        r#"{"messages": [{"content": "Hi"}]}"#,
        "400 bad_request messages[0].role",
    ),
    (
        r#"{"messages": [{"role": "boss"}]}"#,
        "400 bad_request messages[0].role",
    ),
    (
        r#"{"messages": [{"role": "user", "content": 1}]}"#,
        "400 bad_request messages[0].content",
    ),
    (
        r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#,
        "400 bad_request messages[0].content[0]",
    ),
    (
        r#"{"messages": [{"role": "tool", "content": "x"}]}"#,
        "400 bad_request messages[0].tool_call_id",
    ),
];

/// A field beside valid messages, and the parameter that its 400 names.
const FIELDS: &[(&str, &str)] = &[
    (r#""max_response_tokens": 0"#, "max_response_tokens"),
    (r#""max_response_tokens": -1"#, "max_response_tokens"),
    (r#""max_thinking_tokens": -1"#, "max_thinking_tokens"),
    (r#""max_thinking_tokens": 1.5"#, "max_thinking_tokens"),
    (r#""max_thinking_tokens": "8""#, "max_thinking_tokens"),
    (
        r#""max_thinking_tokens": 99999999999"#,
        "max_thinking_tokens",
    ),
    (r#""max_tokens": 0"#, "max_tokens"),
    (r#""think_tag": "ponder""#, "think_tag"),
    (r#""two_pass": 1"#, "two_pass"),
    (r#""stream": "yes""#, "stream"),
    (r#""temperature": -1"#, "temperature"),
    (r#""temperature": "hot""#, "temperature"),
    (r#""top_p": 2"#, "top_p"),
    (r#""seed": -1"#, "seed"),
    (r#""stop": [""]"#, "stop[0]"),
    (r#""stop": 1"#, "stop"),
    (r#""model": 1"#, "model"),
    (r#""tools": {}"#, "tools"),
    (r#""tools": [{"description": "d"}]"#, "tools[0].name"),
    (
        r#""tools": [{"name": "t", "parameters": []}]"#,
        "tools[0].parameters",
    ),
    (
        r#""tools": [{"name": "t", "parameters": {"type": "array"}}]"#,
        "tools[0].parameters",
    ),
    (
        r#""tools": [{"name": "t"}, {"name": "t"}]"#,
        "tools[1].name",
    ),
    (r#""tool_choice": "maybe""#, "tool_choice"),
    (r#""tool_choice": "required""#, "tool_choice"),
    (
        r#""tools": [{"name": "t"}], "tool_choice": {"name": "u"}"#,
        "tool_choice",
    ),
];

fn with(field: &str) -> String {
    format!(r#"{{"messages": [{{"role": "user", "content": "Hi"}}], {field}}}"#)
}

#[tokio::test]
async fn f5_bad_bodies_name_their_fault() {
    let running = start(options()).await;
    let deep = with(&format!(
        r#""tools": {}{}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    ));
    let schema = r#"{"properties":"#.repeat(5000) + "1" + &"}".repeat(5000);
    let deep_schema = with(&format!(
        r#""tools": [{{"name": "t", "parameters": {schema}}}]"#
    ));
    let bodies = BODIES
        .iter()
        .map(|(body, expect)| ((*body).to_owned(), (*expect).to_owned()));
    let fields = FIELDS
        .iter()
        .map(|(field, param)| (with(field), format!("400 bad_request {param}")));
    let more = [
        (
            with(r#""model": "nobody""#),
            "404 not_found model".to_owned(),
        ),
        (deep, "400 bad_request tools[0]".to_owned()),
        (
            deep_schema,
            "400 bad_request tools[0].parameters".to_owned(),
        ),
    ];
    for (body, expect) in bodies.chain(fields).chain(more) {
        let reply = send(running.addr, &post("/generate", &body)).await;
        let shown: String = body.chars().take(120).collect();
        assert_eq!(reply.error(), expect, "{shown}: {}", reply.text());
        assert!(reply.body.len() < 1000, "{shown}: {}", reply.body.len());
    }
    let mut not_utf8 = post("/generate", &with(r#""x": "??""#));
    let at = not_utf8.windows(2).position(|w| w == b"??").unwrap();
    not_utf8[at..at + 2].copy_from_slice(&[0xff, 0xfe]);
    assert_eq!(
        send(running.addr, &not_utf8).await.error(),
        "400 invalid_json -"
    );
    assert_eq!(get(running.addr, "/health").await.status, 200);
}

#[tokio::test]
async fn f5_wrong_paths_methods_and_types() {
    let running = start(options()).await;
    let request =
        |line: &str, rest: &str| format!("{line} HTTP/1.1\r\nhost: localhost\r\n{rest}\r\n");
    for (raw, expect, allow) in [
        (request("GET /nothing", ""), "404 not_found -", None),
        (request("GET /", ""), "404 not_found -", None),
        (request("GET /generate/more", ""), "404 not_found -", None),
        (request("GET /v1/nothing", ""), "404 not_found -", None),
        (
            request("GET /v1/messages/nothing", ""),
            "404 not_found_error -",
            None,
        ),
        (
            request("GET /v1/chat/completions", ""),
            "405 method_not_allowed -",
            Some("POST"),
        ),
        (
            request("GET /v1/models/%FF", ""),
            "400 bad_request model",
            None,
        ),
        (
            request("GET /generate", ""),
            "405 method_not_allowed -",
            Some("POST"),
        ),
        (
            request("DELETE /generate", ""),
            "405 method_not_allowed -",
            Some("POST"),
        ),
        (
            request("POST /health", "content-length: 0\r\n"),
            "405 method_not_allowed -",
            Some("GET,HEAD"),
        ),
        (
            request("PUT /v1/models", "content-length: 0\r\n"),
            "405 method_not_allowed -",
            Some("GET,HEAD"),
        ),
        (
            request("POST /generate", "content-length: 2\r\n") + "{}",
            "415 unsupported_media_type -",
            None,
        ),
        (
            request(
                "POST /generate",
                "content-type: text/plain\r\ncontent-length: 2\r\n",
            ) + "{}",
            "415 unsupported_media_type -",
            None,
        ),
        (
            request(
                "POST /generate",
                "content-type: application/json\r\ncontent-length: 0\r\n",
            ),
            "400 invalid_json -",
            None,
        ),
    ] {
        let reply = send(running.addr, raw.as_bytes()).await;
        assert_eq!(reply.error(), expect, "{raw}");
        assert_eq!(reply.header("allow"), allow, "{raw}");
    }
}

/// Section 4: bodies over 16 MB get 413; nobody needs to send one to the end first, and who
/// does still sees the answer.
#[tokio::test]
async fn s4_huge_bodies_get_413() {
    let running = start(options()).await;
    let head = |bytes: usize| {
        format!(
            "POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
        )
    };
    let chunked = "POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

    let mut announced = Connection::open(running.addr).await;
    announced.write(head(100_000 * MIB).as_bytes()).await;
    assert_eq!(announced.reply().await.error(), "413 body_too_large -");

    let mut sent = head(17 * MIB).into_bytes();
    sent.resize(sent.len() + 17 * MIB, b' ');
    assert_eq!(
        send(running.addr, &sent).await.error(),
        "413 body_too_large -"
    );

    let mut sent = chunked.as_bytes().to_vec();
    for _ in 0..17 {
        sent.extend_from_slice(format!("{MIB:x}\r\n").as_bytes());
        sent.resize(sent.len() + MIB, b' ');
        sent.extend_from_slice(b"\r\n");
    }
    sent.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(
        send(running.addr, &sent).await.error(),
        "413 body_too_large -"
    );

    // One just below the limit is read, and only then found to hold nothing.
    let mut sent = head(16 * MIB).into_bytes();
    sent.resize(sent.len() + 16 * MIB, b' ');
    assert_eq!(
        send(running.addr, &sent).await.error(),
        "400 invalid_json -"
    );
    assert_eq!(get(running.addr, "/health").await.status, 200);
}

#[tokio::test]
async fn bodies_that_do_not_arrive_get_408() {
    let limits = Limits {
        body_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let running = start(ServerOptions {
        limits,
        ..options()
    })
    .await;
    let mut slow = Connection::open(running.addr).await;
    let whole = post("/generate", &" ".repeat(100));
    slow.write(&whole[..whole.len() - 50]).await;
    let drip = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            slow.write_while_open(b" ").await;
        }
        slow.reply().await
    };
    let reply = tokio::time::timeout(Duration::from_secs(5), drip)
        .await
        .expect("an answer in time");
    assert_eq!(reply.error(), "408 request_timeout -");
}

#[tokio::test]
async fn bodies_that_break_off_leave_the_server_well() {
    let running = start(options()).await;
    let whole = post("/generate", &" ".repeat(1000));
    for cut in [0, 1, 10, 60, whole.len() - 999, whole.len() - 1] {
        let mut connection = Connection::open(running.addr).await;
        connection.write(&whole[..cut]).await;
        drop(connection);
    }
    let broken_chunk = "POST /generate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    assert_eq!(
        send(running.addr, broken_chunk.as_bytes()).await.error(),
        "400 invalid_json -"
    );
    assert_eq!(get(running.addr, "/health").await.status, 200);
}

/// Fields of the other faces that would change what is done.
#[tokio::test]
async fn f5_fields_of_other_faces_are_not_ignored() {
    let server = start(options()).await;
    let rows = [
        (
            "/v1/completions",
            r#"{"prompt": "Hi", "response_format": {"type": "json_object"}}"#,
            "response_format",
        ),
        (
            "/v1/completions",
            r#"{"prompt": "Hi", "lora": "polite"}"#,
            "lora",
        ),
        (
            "/v1/messages",
            r#"{"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "thinking": {"type": "enabled", "budget_tokens": -1}}"#,
            "thinking.budget_tokens",
        ),
        (
            "/v1/messages",
            r#"{"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], "thinking": {"type": "sometimes"}}"#,
            "thinking.type",
        ),
    ];
    for (path, body, expect) in rows {
        let reply = send(server.addr, &post(path, body)).await;
        let text = reply.text();
        assert_eq!(reply.status, 400, "{path} {body}: {text}");
        assert!(text.contains(expect), "{path} {body}: {text}");
    }
}
