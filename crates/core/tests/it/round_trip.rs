//! Rendering calls and reading them back, for every dialect (row E18).

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use twopass_core::chat::{Arguments, ToolCall, ToolSpec};
use twopass_core::tool_parser::{Body, DIALECTS, ToolDialect};

use crate::harness::{end, options, run, run_all};

/// Strings that models and attackers write: markers, quotes, line ends, other scripts.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<tool_call>"),
        Just("</tool_call>"),
        Just("<think>"),
        Just("</think>"),
        Just("```"),
        Just("\""),
        Just("'"),
        Just("\\"),
        Just("\n"),
        Just("{"),
        Just("]"),
        Just(", "),
        Just("天気"),
        Just("😀"),
        Just("\u{1}"),
        Just("x"),
        Just("<|im_end|>"),
        Just("True"),
        Just("007"),
        Just(" "),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(9_223_372_036_854_775_808_u64)),
        (-1_000_000_i32..1_000_000).prop_map(|n| json!(f64::from(n) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z_]{1,6}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::vec(("[a-z][a-z_]{0,7}", value()), 0..4)
        .prop_map(|members| members.into_iter().collect())
}

pub(crate) fn calls() -> impl Strategy<Value = Vec<ToolCall>> {
    proptest::collection::vec(("[a-z][a-z0-9_]{0,10}", object()), 1..4).prop_map(|calls| {
        let named = calls.into_iter().enumerate();
        named
            .map(|(idx, (name, object))| ToolCall {
                id: format!("call_{}", idx + 1),
                name: format!("{name}_{idx}"),
                arguments: Arguments::from_object(object),
            })
            .collect()
    })
}

/// A tool whose schema has the types of these arguments.
pub(crate) fn tool_of(call: &ToolCall) -> ToolSpec {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let properties: Map<String, Value> = call
        .arguments
        .as_object()
        .iter()
        .map(|(key, value)| (key.clone(), json!({"type": kind(value)})))
        .collect();
    ToolSpec {
        name: call.name.clone(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": properties}),
    }
}

/// True if the dialect's notation can say this: XML-like and token-quoted values have no
/// way to write their own markers.
fn can_say(row: &ToolDialect, calls: &[ToolCall]) -> bool {
    let forbidden: &[&str] = match row.body {
        Body::Xml(_) => &["</tool_call>", "<tool_call>"],
        _ => return true,
    };
    let written = calls
        .iter()
        .map(|call| call.arguments.as_text())
        .collect::<String>();
    !forbidden.iter().any(|marker| written.contains(marker))
}

pub(crate) fn reads_back(row: &ToolDialect, calls: &[ToolCall], every_cut: bool) {
    let options = options("none", row.name, calls.iter().map(tool_of).collect());
    let text = row.write_calls(calls);
    let end = end("stop", None);
    let run = if every_cut {
        run_all(&options, &end, &text)
    } else {
        run(&options, &end, text.as_bytes(), &[])
    };
    let invalid = &run.reply.invalid_tool_calls;
    assert!(invalid.is_empty(), "{}: {invalid:?} in {text}", row.name);
    let names = |calls: &[ToolCall]| {
        calls
            .iter()
            .map(|call| call.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&run.reply.tool_calls),
        names(calls),
        "{}: {text}",
        row.name
    );
    for (read, written) in run.reply.tool_calls.iter().zip(calls) {
        let (read, written) = (read.arguments.as_object(), written.arguments.as_object());
        assert_eq!(read, written, "{}: {text}", row.name);
    }
    assert_eq!(run.reply.content, "", "{}: {text}", row.name);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, failure_persistence: None, ..ProptestConfig::default() })]

    // Rows E9, E18.
    #[test]
    fn e18_every_dialect_reads_what_it_writes(calls in calls()) {
        for row in DIALECTS.iter().filter(|row| can_say(row, &calls)) {
            reads_back(row, &calls, false);
        }
    }
}

// Rows E18, M1.
#[test]
fn m1_every_dialect_in_every_cut() {
    let object = json!({"x": 1, "s": "a \"b\" {c}", "l": [1, {"k": null}], "b": true, "e": "", "big": 9_223_372_036_854_775_808_u64});
    let Value::Object(object) = object else {
        unreachable!()
    };
    let call = |name: &str, object: Map<String, Value>| ToolCall {
        id: String::new(),
        name: name.to_owned(),
        arguments: Arguments::from_object(object),
    };
    let calls = [call("first", object), call("second", Map::new())];
    for row in DIALECTS {
        reads_back(row, &calls, true);
    }
}
