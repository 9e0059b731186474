//! `agent`, and `chat` line by line, over scripted models. Rows I9, I10, L4, L8.

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::run::{Place, shape_of};
use crate::served::Served;
use crate::serving::Serving;

/// A model that thinks, creates a file, reads it and answers.
fn model() -> Served {
    let call = |id: &str, name: &str, arguments: Value| {
        json!({
            "thinking": format!("I need {name}."), "finish_reason": "tool_calls",
            "tool_calls": [{"id": id, "name": name, "arguments": arguments}],
        })
    };
    let turns = [
        call(
            "c1",
            "create_file",
            json!({"file_path": "a.txt", "content": "alpha\n"}),
        ),
        call("c2", "read_file", json!({"file_path": "a.txt"})),
        json!({"thinking": "Done.", "content": "It says alpha."}),
    ];
    Served::start_all(turns.iter().map(Answer::chat_turn).collect())
}

fn place(served: &Served) -> Place {
    let place = Place::new();
    let config = format!(
        "providers:\n- name: far\n  provider_backend: openai\n  model_name: m\n  api_config: {{base_url: {}, max_retries: 0}}\nagent: {{memory: session}}\n",
        served.url()
    );
    place.write("twopass.yaml", config);
    place
}

/// The lines of a trace without what differs from run to run: ids, times, counts, names of
/// models.
fn shape(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path().join("t.jsonl")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    shape_of(&lines, &["response", "stop_reason", "answer", "tools"])
}

const RUN: [&str; 5] = ["agent", "--trace", "t.jsonl", "--approve", "auto"];

#[test]
fn i9_a_task_runs_to_its_answer() {
    let served = model();
    let place = place(&served);
    let ran = place.run(&[&RUN[..], &["Make a.txt"]].concat());
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "It says alpha.\n"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("> create_file") && ran.stderr.contains("< "),
        "{}",
        ran.stderr
    );
    assert_eq!(
        std::fs::read(place.path().join("a.txt")).unwrap(),
        b"alpha\n"
    );
    let shape = shape(&place);
    let events: Vec<&str> = shape
        .iter()
        .filter_map(|line| line["event"].as_str())
        .collect();
    let step = ["step", "turn", "tool_call", "tool_result"];
    let expected = [&["start"][..], &step, &step, &["step", "turn", "end"]].concat();
    assert_eq!(events, expected);
    assert_eq!(shape[2]["thinking"], "I need create_file.");
    assert!(shape[0]["tools"].to_string().contains("recall_memory"));
}

// Row I10: the same over a server of ours, which has neither the tools nor the files.
#[test]
fn i10_a_remote_model_leaves_the_same_trace() {
    let served = model();
    let local = place(&served);
    assert_eq!(local.run(&[&RUN[..], &["Make a.txt"]].concat()).code, 0);

    let upstream = model();
    let far = place(&upstream);
    let serving = Serving::start(&far);
    let near = Place::new();
    let url = serving.url();
    let remote = ["--server", url.as_str(), "Make a.txt"];
    let ran = near.run(&[&RUN[..], &remote].concat());
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "It says alpha.\n"),
        "{}",
        ran.stderr
    );
    assert!(near.path().join("a.txt").exists(), "tools run here");
    assert!(!far.path().join("a.txt").exists(), "and not there");
    assert_eq!(shape(&near), shape(&local));
    // Results went back with the ids of their calls.
    let last = upstream.requests().last().unwrap().json();
    let ids = |key: &str| -> Vec<Value> {
        let messages = last["messages"].as_array().unwrap().iter();
        messages
            .map(|message| message[key].clone())
            .filter(|id| !id.is_null())
            .collect()
    };
    let called: Vec<Value> = ids("tool_calls")
        .iter()
        .map(|calls| calls[0]["id"].clone())
        .collect();
    assert_eq!(called, ids("tool_call_id"));
    assert_eq!(called.len(), 2);
}

#[test]
fn what_needs_consent_is_refused_where_nobody_is() {
    let served = model();
    let place = place(&served);
    let ran = place.run(&["agent", "--json", "Make a.txt"]);
    assert!(ran.stderr.contains("consent"), "{}", ran.stderr);
    assert!(!place.path().join("a.txt").exists());
    let end: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &end["stop_reason"]), (0, &json!("answer")));
}

#[test]
fn faults_of_flags_and_servers_are_errors() {
    let served = model();
    let place = place(&served);
    let table: [(&[&str], &str); 8] = [
        (
            &["agent", "--tools", "read_file,nothing", "x"],
            "no tool is called `nothing`",
        ),
        (&["agent", "--kind", "other", "x"], "other"),
        (
            &["agent", "--kind", "private-cot", "x"],
            "reasoning_replay: full",
        ),
        (
            &["agent", "--server", "http://127.0.0.1:9", "x"],
            "cannot connect",
        ),
        (&["agent", "--server", "nonsense", "x"], "--server"),
        (&["agent", "--trace", "no/such/folder", "x"], "the trace"),
        (
            &["agent", "--require", "nothing", "x"],
            "no tool is called `nothing`",
        ),
        (&["chat", "--resume"], "there is no session"),
    ];
    for (args, expected) in table {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

// Row L8: without a terminal the chat is lines, and goes on where it was.
#[test]
fn l8_a_chat_of_lines_goes_on_later() {
    let turns = ["one", "two", "three"].map(|text| Answer::chat_turn(&json!({"content": text})));
    let served = Served::start_all(turns.into());
    let place = place(&served);
    let ran = place.run_with(
        &["chat"],
        b"/model\nfirst\nsecond\n/nothing\n/quit\nnever\n",
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "one\n\ntwo\n"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("far/m") && ran.stderr.contains("no command /nothing"));
    let ran = place.run_with(&["chat", "--resume"], b"third\n");
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "three\n"),
        "{}",
        ran.stderr
    );
    let last = served.requests().last().unwrap().json();
    let texts: Vec<&str> = last["messages"].as_array().unwrap()[1..]
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert_eq!(texts, ["first", "one", "second", "two", "third"]);
}
