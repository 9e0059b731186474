//! Turns as data: `testdata/turns/*.jsonl`, one case per line.
//!
//! `{name, rows, reasoning?, tools?, opened?, off?, form?, choice?, stop?, stop_string?, taken?,
//! limits?, input, expect}`; only the keys of `expect` that are present are checked. The
//! tools of all cases are `f(x: integer, s: string, b: boolean, l: array, o: object)`,
//! `get(city: string, required)` and `none()`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use twopass_core::chat::{ToolChoice, ToolSpec};
use twopass_core::control::AnswerForm;

use crate::harness::{end, options, outcome, run_all};

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, parameters: Value| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters,
    };
    vec![
        tool(
            "f",
            json!({"type": "object", "properties": {
                "x": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"},
                "l": {"type": "array"}, "o": {"type": "object"},
            }}),
        ),
        tool(
            "get",
            json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
        ),
        tool("none", json!({"type": "object", "properties": {}})),
    ]
}

fn check(case: &Value) {
    let text = |key: &str| case[key].as_str();
    let mut options = options(
        text("reasoning").unwrap_or("think_tags"),
        text("tools").unwrap_or("hermes"),
        tools(),
    );
    options.prompt_opened = match case.get("opened") {
        None => Some(false),
        Some(opened) => opened.as_bool(),
    };
    options.thinking_off = case["off"] == true;
    options.answer_form = match text("form") {
        None => AnswerForm::Free,
        Some("asked") => AnswerForm::Asked,
        Some("bound") => AnswerForm::Bound,
        Some(other) => panic!("unknown form `{other}`"),
    };
    options.calls.choice = match &case["choice"] {
        Value::String(word) if word == "none" => ToolChoice::None,
        Value::String(word) if word == "required" => ToolChoice::Required,
        Value::Object(named) => ToolChoice::Named(named["name"].as_str().unwrap().to_owned()),
        _ => ToolChoice::Auto,
    };
    if let Some(taken) = case["taken"].as_array() {
        options.calls.taken_ids = taken
            .iter()
            .map(|id| id.as_str().unwrap().to_owned())
            .collect();
    }
    let limit = |key: &str| {
        case["limits"][key]
            .as_u64()
            .map(|n| usize::try_from(n).unwrap())
    };
    let limits = &mut options.calls.limits;
    limits.max_block_bytes = limit("block").unwrap_or(limits.max_block_bytes);
    limits.arguments.max_bytes = limit("arguments").unwrap_or(limits.arguments.max_bytes);
    limits.arguments.max_depth = limit("depth").unwrap_or(limits.arguments.max_depth);
    limits.max_calls = limit("calls").unwrap_or(limits.max_calls);
    let end = end(text("stop").unwrap_or("stop"), text("stop_string"));
    let run = run_all(&options, &end, text("input").unwrap());
    let actual = outcome(&run);
    for (key, wanted) in case["expect"].as_object().unwrap() {
        let name = &case["name"];
        assert!(
            matches(wanted, &actual[key]),
            "{name}: {key}: wanted {wanted}, got {actual}"
        );
    }
}

/// Objects match if the wanted keys do; lists in order and number.
fn matches(wanted: &Value, got: &Value) -> bool {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(got)) => wanted
            .iter()
            .all(|(key, wanted)| got.get(key).is_some_and(|got| matches(wanted, got))),
        (Value::Array(wanted), Value::Array(got)) => {
            wanted.len() == got.len()
                && wanted
                    .iter()
                    .zip(got)
                    .all(|(wanted, got)| matches(wanted, got))
        }
        _ => wanted == got,
    }
}

fn check_file(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/turns")
        .join(name);
    let text = fs::read_to_string(&path).unwrap();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        check(&case);
    }
}

// Rows C1, C2, C4, C5, C6, C7, A3.
#[test]
fn c1_to_c7_reasoning() {
    check_file("reasoning.jsonl");
}

// Rows E5, E6, E7, E8, E9, E10, E11, E12, E13, E14, E15, E16, A4, I8, M6, M7.
#[test]
fn e5_to_e16_hermes() {
    check_file("hermes.jsonl");
}

// Rows I5, I6, I7, M1.
#[test]
fn i5_to_i7_other_dialects() {
    check_file("dialects.jsonl");
}
