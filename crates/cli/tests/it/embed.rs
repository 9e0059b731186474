//! `embed` against a local server. Rows J1, J10.

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::run::Place;
use crate::served::Served;

fn place(served: &Served) -> Place {
    let place = Place::new();
    let url = served.url();
    place.write(
        "twopass.yaml",
        format!(
            "providers:\n  - {{name: s, provider_backend: openai, model_name: m, api_config: {{base_url: '{url}', max_retries: 0}}}}\nembeddings: {{model: e}}\n"
        ),
    );
    place
}

#[test]
fn vectors_of_lines_as_json_lines() {
    let body = json!({"model": "e-1", "data": [
        {"index": 1, "embedding": [2, 3.5]}, {"index": 0, "embedding": [0.1, -1]},
    ]});
    let served = Served::start(Answer::json(200, &body));
    let place = place(&served);
    let ran = place.run_with(&["embed"], "one\nzwölf\n".as_bytes());
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, "[0.1,-1.0]\n[2.0,3.5]\n", "")
    );
    let ran = place.run_with(&["embed", "--json", "--model", "other"], b"one\ntwo");
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines[1],
        json!({"index": 1, "model": "e-1", "fallback_used": false, "embedding": [2.0, 3.5]})
    );
    let asked: Vec<Value> = served.requests().iter().map(|r| r.json()).collect();
    assert_eq!(
        (&asked[0]["model"], &asked[0]["input"]),
        (&json!("e"), &json!(["one", "zwölf"]))
    );
    assert_eq!(asked[1]["model"], "other");
    let empty = place.run_with(&["embed"], b"");
    assert_eq!((empty.code, empty.stdout.as_str()), (0, ""));
}

#[test]
fn what_cannot_be_is_one_line() {
    let served = Served::start(Answer::json(404, &json!({"error": {"message": "no"}})));
    let place = place(&served);
    let rows: [(&[&str], &str, &str); 2] = [
        (&["embed"], "a\n\nb", "line 2 of stdin is empty"),
        (&["embed"], "a", "HTTP 404: no"),
    ];
    for (args, stdin, expect) in rows {
        let ran = place.run_with(args, stdin.as_bytes());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.contains(expect), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
}

/// The default of a machine without configuration: a table in this process.
#[test]
fn j1_without_configuration() {
    let model = std::env::var("TWOPASS_TEST_MODEL").expect("`cargo xtask test` sets it");
    let folder = std::path::Path::new(&model).parent().unwrap().to_owned();
    let place = Place::new();
    let mut command = place.command(&["embed", "--json"]);
    command.env("TWOPASS_MODELS_DIR", folder);
    let ran = place.ran_with(command, b"Paris");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let line: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(line["model"], "wordllama-256");
    assert_eq!(line["embedding"].as_array().map(Vec::len), Some(256));
}
