//! `invoke` against a local `/generate` server that answers with given bytes.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::run::Place;

const REPLY: &str = r#"{"thinking":"Hm.","response":"Sure.","tool_calls":[{"id":"call_1","name":"f","arguments":{"n":123456789012345678901234567890}}],"pre_tool_text":"Sure.","finish_reason":"tool_calls","usage":{"prompt_tokens":3,"thinking_tokens":1,"response_tokens":2,"cached_tokens":0}}"#;

/// A server of one answer, and what it was asked.
fn server(content_type: &str, body: &str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        let mut buffer = [0; 4096];
        while !ends(&asked) {
            let n = stream.read(&mut buffer).unwrap();
            asked.extend_from_slice(&buffer[..n]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(asked).unwrap()
    });
    (address, thread)
}

/// True if head and body of a request are complete.
fn ends(asked: &[u8]) -> bool {
    let text = String::from_utf8_lossy(asked).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

fn config(place: &Place, address: &str) {
    let yaml = format!(
        "providers:\n  - {{name: s, provider_backend: vllm_native, model_name: m, api_config: {{base_url: '{address}'}}}}\n"
    );
    place.write("twopass.yaml", yaml);
}

#[test]
fn json_has_every_documented_field() {
    let place = Place::new();
    let (address, asked) = server("application/json", REPLY);
    config(&place, &address);
    place.write(
        "tools.json",
        r#"{"tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}]}"#,
    );
    place.write(
        "messages.json",
        r#"[{"role": "system", "content": "Be brief."}]"#,
    );
    let ran = place.run(&[
        "invoke",
        "--json",
        "--messages",
        "messages.json",
        "--tools",
        "tools.json",
        "--tool-choice",
        "f",
        "--thinking",
        "--max-thinking-tokens",
        "0",
        "--max-response-tokens=9",
        "--seed",
        "7",
        "Go",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let turn: Value = serde_json::from_str(&ran.stdout).unwrap();
    let expect = [
        "content",
        "response",
        "thinking",
        "tool_calls",
        "invalid_tool_calls",
        "finish_reason",
        "usage",
        "passes",
        "diagnostics",
    ];
    assert!(expect.iter().all(|name| turn.get(name).is_some()), "{turn}");
    assert_eq!(
        (&turn["content"], &turn["response"]),
        (&json!("<think>Hm.</think>\nSure."), &json!("Sure."))
    );
    assert!(
        ran.stdout.contains("123456789012345678901234567890"),
        "big integers survive"
    );

    let asked = asked.join().unwrap();
    let body: Value = serde_json::from_str(asked.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(
        body["messages"],
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go"}])
    );
    assert_eq!(
        (
            &body["max_thinking_tokens"],
            &body["max_response_tokens"],
            &body["seed"]
        ),
        (&json!(0), &json!(9), &json!(7))
    );
    assert_eq!(
        body["tool_choice"],
        json!({"type": "function", "function": {"name": "f"}})
    );
}

#[test]
fn plain_output_is_the_answer_on_stdout_and_the_thought_on_stderr() {
    let place = Place::new();
    let (address, _asked) = server("application/json", REPLY);
    config(&place, &address);
    let ran = place.run_with(&["invoke"], b"Go\n");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "Hm.\n"));
    assert_eq!(
        ran.stdout,
        "Sure.\ncall_1 f {\"n\":123456789012345678901234567890}\n"
    );
}

#[test]
fn streams_are_printed_as_they_come() {
    let events = "event: thinking\ndata: {\"text\":\"Hm.\"}\n\nevent: text\ndata: {\"text\":\"Su\"}\n\nevent: text\ndata: {\"text\":\"re.\"}\n\nevent: done\ndata: {\"thinking\":\"Hm.\",\"response\":\"Sure.\",\"tool_calls\":[]}\n\n";
    let place = Place::new();
    let (address, _asked) = server("text/event-stream", events);
    config(&place, &address);
    let ran = place.run(&["invoke", "--stream", "Go"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, "Sure.\n", "Hm.\n")
    );

    let (address, _asked) = server("text/event-stream", events);
    config(&place, &address);
    let ran = place.run(&["invoke", "--stream", "--json", "Go"]);
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0], json!({"event": "thinking", "text": "Hm."}));
    assert_eq!(
        (&lines[3]["event"], &lines[3]["content"]),
        (&json!("done"), &json!("<think>Hm.</think>\nSure."))
    );
}

#[test]
fn a_turn_without_an_answer_is_a_negative_result() {
    let place = Place::new();
    let (address, _asked) = server("application/json", r#"{"thinking":"Hm.","response":""}"#);
    config(&place, &address);
    let ran = place.run(&["invoke", "Go"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr
            .ends_with("note: the turn ended without an answer\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn errors_of_the_server_are_one_line() {
    let place = Place::new();
    let (address, _asked) = server("application/json", "garbage");
    config(&place, &address);
    let ran = place.run(&["invoke", "Go"]);
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "error: provider `s`: the reply is invalid: `body`: is not JSON: expected value at line 1 column 1\n"
    );
}
