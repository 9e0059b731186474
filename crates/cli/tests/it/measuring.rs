//! `sweep` and `bench` against a service that answers by a script, and their mistakes.

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::run::Place;
use crate::served::Served;

const QUESTIONS: &str =
    "{\"prompt\": \"2+2?\", \"answer\": 4}\n{\"prompt\": \"3+3?\", \"answer\": 6}\n";

/// A configuration whose provider is this service.
fn place(served: &Served) -> Place {
    let place = Place::new();
    let config = json!({"providers": [{
        "name": "service", "provider_backend": "openai", "preset": "custom", "model_name": "m",
        "api_config": {"base_url": format!("{}/v1", served.url()), "max_retries": 0},
    }]});
    place.write("twopass.yaml", config.to_string());
    place.write("questions.jsonl", QUESTIONS);
    place
}

fn says(content: &str) -> Answer {
    Answer::chat_turn(&json!({ "content": content }))
}

#[test]
fn a_sweep_prints_draws_and_goes_on() {
    let served = Served::start_all(vec![says("4"), says("5")]);
    let place = place(&served);
    let args = [
        "sweep",
        "--dataset",
        "questions.jsonl",
        "--budgets",
        "0",
        "--records",
        "r.jsonl",
        "--svg",
        "s.svg",
    ];
    let ran = place.run(&args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(ran.stdout.contains("50.0% ["), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("standard error of it: budget 0"),
        "{}",
        ran.stdout
    );
    let picture = std::fs::read_to_string(place.path().join("s.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert_eq!(served.requests().len(), 2);
    // A picture takes the place of a picture, and of nothing else.
    for taken in ["questions.jsonl", "r.jsonl"] {
        let ran = place.run(&[&args[..args.len() - 1], &[taken]].concat());
        assert_eq!(ran.code, 2);
        assert!(
            ran.stderr.contains("is there and is no SVG picture"),
            "{}",
            ran.stderr
        );
    }
    // All turns are known: nothing is asked, the report is the same.
    let again = place.run(&[&args[..], &["--json"]].concat());
    assert_eq!(served.requests().len(), 2);
    let report: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(report["smallest_within_one_error"], 0);
    assert_eq!(report["budgets"][0]["accuracy"]["value"], 0.5);
}

#[test]
fn a_turn_that_fails_is_a_negative_result() {
    let failure = Answer::chat_turn(&json!({"error": {"kind": "overloaded", "message": "no"}}));
    let served = Served::start_all(vec![failure, says("6")]);
    let place = place(&served);
    let ran = place.run(&["sweep", "--dataset", "questions.jsonl", "--budgets", "0"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with("note: a turn failed: "),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stdout.contains("note: 1 turns failed"),
        "{}",
        ran.stdout
    );
}

#[test]
fn mistakes_are_told_before_anything_is_asked() {
    let served = Served::start(says("4"));
    let place = place(&served);
    place.write("bad.jsonl", "{\"prompt\": \"2+2?\"}\n");
    place.write("letter.txt", "Dear reader\n");
    for (args, expect) in [
        (
            &["--dataset", "bad.jsonl"][..],
            "error: bad.jsonl:1: needs `answer`",
        ),
        (
            &["--dataset", "none.jsonl"][..],
            "error: --dataset: none.jsonl cannot be read",
        ),
        (
            &["--dataset", "questions.jsonl", "--budgets", "0,-1"][..],
            "error: invalid value '-1'",
        ),
        (
            &["--dataset", "questions.jsonl", "--repeats", "0"][..],
            "error: invalid value '0'",
        ),
        (
            &["--dataset", "questions.jsonl", "--records", "letter.txt"][..],
            "error: letter.txt:1: holds no records of a sweep",
        ),
    ] {
        let ran = place.run(&[&["sweep"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.starts_with(expect), "{args:?}: {}", ran.stderr);
    }
    assert!(served.requests().is_empty());
}

#[test]
fn a_bench_has_a_row_per_work() {
    let served = Served::start(says("Once upon a time"));
    let place = place(&served);
    let args = [
        "bench",
        "--json",
        "--concurrency",
        "1,2",
        "--requests",
        "2",
        "--budgets",
        "0",
        "--long-words",
        "40",
        "--seed",
        "3",
    ];
    let ran = place.run(&args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let rows = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let rows: Vec<Value> = rows.collect();
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["work"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "1 at a time",
            "2 at a time",
            "long prompt",
            "shared beginning, cold",
            "shared beginning, warm",
            "free text",
            "JSON by a schema",
            "budget 0"
        ]
    );
    assert!(
        rows.iter()
            .all(|row| row["first_ms"]["value"].as_f64() > Some(0.0))
    );
    // One to warm up, and two each but for the one that is cold.
    assert_eq!(served.requests().len(), 1 + 7 * 2 + 1);
}
