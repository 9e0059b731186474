//! Examples of model formats.

use serde_json::{Value, json};
use twopass_core::control::{AnswerForm, TurnParserOptions, TurnSyntax};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::tool_parser::{self, CallRules, ToolSyntax};

use crate::Verdict;
use crate::case::{end_of, tools_of};
use crate::expect::squash;
use crate::matchers::{same, shorten};
use crate::ops::{Parsed, run_cuttings};

/// Runs a line `{id, format, kind, tools, start_in_thinking, input, expect, note}`.
pub(crate) fn run(case: &Value) -> Verdict {
    let format = case["format"].as_str().unwrap_or_default();
    let kind = case["kind"].as_str().unwrap_or_default();
    let (reasoning, tools) = match (format.split_once('+'), kind) {
        (Some((reasoning, tools)), _) => (reasoning, tools),
        (None, "reasoning") => (format, "none"),
        (None, "tool") => ("auto", format),
        (None, _) => (format, format),
    };
    // What the models of a tool dialect write around their answers is read as well.
    let partner = tool_parser::dialect(tools).map_or("auto", |row| row.reasoning);
    let reasoning = match partner {
        "auto" => reasoning.to_owned(),
        partner => format!("{reasoning}+{partner}"),
    };
    let reasoning = reasoning.as_str();
    let (Some(reasoning), Some(tools)) = (
        ReasoningSyntax::from_name(reasoning),
        ToolSyntax::from_name(tools),
    ) else {
        return Verdict::Skipped {
            op: format!("format {format}"),
            reason: "no such dialect yet".to_owned(),
        };
    };
    let options = TurnParserOptions {
        syntax: TurnSyntax::new(reasoning, tools),
        prompt_opened: case["start_in_thinking"].as_bool(),
        thinking_off: false,
        answer_form: AnswerForm::Free,
        calls: CallRules {
            tools: tools_of(case),
            // These lines compare what the model wrote.
            keep_optional_nulls: true,
            ..CallRules::default()
        },
    };
    let bytes = case["input"]
        .as_str()
        .unwrap_or_default()
        .as_bytes()
        .to_vec();
    let exact = case["note"]
        .as_str()
        .is_some_and(|note| note.starts_with("EXACT"));
    let expect = case["expect"].clone();
    run_cuttings(&options, &end_of(case), &bytes, None, |parsed| {
        judge(&expect, exact, parsed)
    })
}

fn judge(expect: &Value, exact: bool, parsed: &Parsed) -> Result<(), String> {
    let form = |text: &str| {
        if exact {
            text.trim().to_owned()
        } else {
            squash(text)
        }
    };
    let pairs = [
        ("reasoning", parsed.reply.reasoning.as_str()),
        ("content", parsed.reply.content.as_str()),
    ];
    for (key, got) in pairs {
        if let Some(wanted) = expect.get(key).and_then(Value::as_str)
            && form(wanted) != form(got)
        {
            return Err(format!(
                "{key}: expected {wanted:?}, got {:?}",
                shorten(got)
            ));
        }
    }
    let Some(wanted) = expect.get("tool_calls").and_then(Value::as_array) else {
        return Ok(());
    };
    let got: Vec<Value> = parsed
        .reply
        .tool_calls
        .iter()
        .map(|call| json!({"name": call.name, "arguments": call.arguments.as_object()}))
        .collect();
    let equal = wanted.len() == got.len()
        && wanted.iter().zip(&got).all(|(wanted, got)| {
            wanted["name"] == got["name"] && same(&wanted["arguments"], &got["arguments"])
        });
    if equal {
        return Ok(());
    }
    let invalid: Vec<String> = parsed
        .reply
        .invalid_tool_calls
        .iter()
        .map(|call| call.message.clone())
        .collect();
    let wanted = shorten(&json!(wanted).to_string());
    Err(format!(
        "tool_calls: expected {wanted}, got {}; invalid: {invalid:?}",
        shorten(&json!(got).to_string())
    ))
}
