//! `invoke` against a local `/generate` server that answers with given bytes.

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::run::Place;
use crate::served::Served;

const REPLY: &str = r#"{"thinking":"Hm.","response":"Sure.","tool_calls":[{"id":"call_1","name":"f","arguments":{"n":123456789012345678901234567890}}],"pre_tool_text":"Sure.","finish_reason":"tool_calls","usage":{"prompt_tokens":3,"thinking_tokens":1,"response_tokens":2,"cached_tokens":0}}"#;

fn config(place: &Place, address: &str) {
    let yaml = format!(
        "providers:\n  - {{name: s, provider_backend: vllm_native, model_name: m, api_config: {{base_url: '{address}'}}}}\n"
    );
    place.write("twopass.yaml", yaml);
}

#[test]
fn json_has_every_documented_field() {
    let place = Place::new();
    let served = Served::start(Answer::new(200, "application/json", REPLY));
    config(&place, &served.url());
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

    let body = served.requests()[0].json();
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
    let served = Served::start(Answer::new(200, "application/json", REPLY));
    config(&place, &served.url());
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
    let served = Served::start(Answer::new(200, "text/event-stream", events));
    config(&place, &served.url());
    let ran = place.run(&["invoke", "--stream", "Go"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, "Sure.\n", "Hm.\n")
    );

    let served = Served::start(Answer::new(200, "text/event-stream", events));
    config(&place, &served.url());
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
fn e10_refused_calls_are_shown_on_stderr() {
    let reply = r#"{"thinking":"","response":"Sure.","tool_calls":[],"invalid_tool_calls":[{"id":"call_1","name":"f","arguments":"{","kind":"malformed_arguments","path":null,"message":"no\nJSON"},{"id":"call_2","name":null,"arguments":"","kind":"unknown_tool","path":null,"message":"no name"}]}"#;
    let events =
        format!("event: text\ndata: {{\"text\":\"Sure.\"}}\n\nevent: done\ndata: {reply}\n\n");
    let rows = [
        (&["invoke", "Go"][..], "application/json", reply),
        (&["invoke", "--stream", "Go"], "text/event-stream", &events),
    ];
    for (args, kind, body) in rows {
        let place = Place::new();
        let served = Served::start(Answer::new(200, kind, body));
        config(&place, &served.url());
        let ran = place.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "Sure.\n"), "{args:?}");
        assert_eq!(
            ran.stderr,
            "invalid call: f: malformed_arguments: no JSON\ninvalid call: (no name): unknown_tool: no name\n"
        );
    }
}

#[test]
fn a_turn_without_an_answer_is_a_negative_result() {
    let place = Place::new();
    let served = Served::start(Answer::new(
        200,
        "application/json",
        r#"{"thinking":"Hm.","response":""}"#,
    ));
    config(&place, &served.url());
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
fn what_a_cap_cut_is_said() {
    let place = Place::new();
    let served = Served::start(Answer::new(
        200,
        "application/json",
        r#"{"thinking":"Hm.","response":"Half an","finish_reason":"length","thinking_truncated":true}"#,
    ));
    config(&place, &served.url());
    let ran = place.run(&["invoke", "Go"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "Half an\n"));
    let notes = "note: the thinking budget cut the thought\n\
                 note: the cap cut the answer, --max-response-tokens raises it\n";
    assert!(ran.stderr.ends_with(notes), "{}", ran.stderr);
}

#[test]
fn errors_of_the_server_are_one_line() {
    let place = Place::new();
    let served = Served::start(Answer::new(200, "application/json", "garbage"));
    config(&place, &served.url());
    let ran = place.run(&["invoke", "Go"]);
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "error: provider `s`: the reply is invalid: `body`: is not JSON: expected value at line 1 column 1\n"
    );
}
