//! Answers of every format, as data: `testdata/<format>.json`. A case has `events` (the
//! data of a stream), `whole` (a body), or both, which must then agree.

use serde_json::Value;
use twopass_core::chat::{Reply, StopReason};
use twopass_wire::DecodeContext;

use crate::read::{Format, Outcome, read_stream_cut, read_whole};

fn calls(reply: &Reply) -> Vec<String> {
    reply
        .tool_calls
        .iter()
        .map(|call| format!("{} {} {}", call.id, call.name, call.arguments.as_text()))
        .collect()
}

fn invalid(reply: &Reply) -> Vec<String> {
    reply
        .invalid_tool_calls
        .iter()
        .map(|call| {
            let name = call.name.as_deref().unwrap_or("-");
            format!("{} {name} {}", call.id, call.kind.as_str())
        })
        .collect()
}

fn list(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

fn check(name: &str, expect: &Value, outcome: &Outcome) {
    if let Some(want) = expect["error"].as_str() {
        let have = outcome.reply.as_ref().unwrap_err().to_string();
        assert!(have.starts_with(want), "{name}: want {want}, have {have}");
        let partial = expect["partial"].as_str().unwrap_or_default();
        assert_eq!(outcome.partial.content, partial, "{name}");
        assert_eq!(outcome.partial.tool_calls, [], "{name}");
        return;
    }
    let reply = match &outcome.reply {
        Ok(reply) => reply,
        Err(fault) => panic!("{name}: {fault}"),
    };
    let text = |key: &str| expect[key].as_str().unwrap_or_default();
    assert_eq!(reply.reasoning, text("reasoning"), "{name}");
    assert_eq!(reply.content, text("content"), "{name}");
    assert_eq!(calls(reply), list(&expect["calls"]), "{name}");
    assert_eq!(invalid(reply), list(&expect["invalid"]), "{name}");
    let stop = match &reply.stop_reason {
        StopReason::StopSequence(stop) => format!("stop {stop}"),
        other => other.as_str().to_owned(),
    };
    assert_eq!(stop, text("stop"), "{name}");
    if let Some(usage) = expect["usage"].as_array() {
        let have = &reply.usage;
        let have = [
            have.prompt_tokens,
            have.thinking_tokens,
            have.response_tokens,
            have.cached_tokens,
        ];
        assert_eq!(*usage, have, "{name}");
    }
    if expect["items"].is_array() {
        let have: Vec<_> = reply
            .provider_items
            .iter()
            .map(|item| format!("{} {}", item.kind.as_str(), item.json))
            .collect();
        assert_eq!(have, list(&expect["items"]), "{name}");
    }
}

/// A raw copy of what stands in the file, so that spaces and digits survive.
#[derive(serde::Deserialize)]
struct Case<'a> {
    name: &'a str,
    #[serde(borrow, default)]
    events: Vec<&'a serde_json::value::RawValue>,
    #[serde(borrow, default)]
    whole: Option<&'a serde_json::value::RawValue>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    taken: Vec<String>,
    expect: Value,
    /// Names the rows; read by people and by the row check only.
    rows: &'a str,
}

pub(crate) fn run(format: Format, cases: &str) {
    let cases: Vec<Case<'_>> = serde_json::from_str(cases).unwrap();
    for case in &cases {
        assert!(!case.rows.is_empty(), "{} names no row", case.name);
        let context = DecodeContext::with_taken_ids(case.taken.clone());
        if !case.events.is_empty() {
            let bytes = format.stream(&case.events);
            let outcome = read_stream_cut(format, bytes.as_bytes(), &context);
            check(case.name, &case.expect, &outcome);
        }
        if let Some(whole) = case.whole {
            let outcome = read_whole(format, whole.get().as_bytes(), context.clone());
            check(case.name, &case.expect, &outcome);
        }
        if let Some(text) = &case.text {
            let outcome = read_whole(format, text.as_bytes(), context.clone());
            check(case.name, &case.expect, &outcome);
        }
    }
}

#[test]
fn openai_chat() {
    run(
        Format::Chat,
        include_str!("../../testdata/openai_chat.json"),
    );
}

#[test]
fn openai_responses() {
    run(
        Format::Responses,
        include_str!("../../testdata/openai_responses.json"),
    );
}

#[test]
fn anthropic_messages() {
    run(
        Format::Anthropic,
        include_str!("../../testdata/anthropic_messages.json"),
    );
}

#[test]
fn ollama_chat() {
    run(
        Format::Ollama,
        include_str!("../../testdata/ollama_chat.json"),
    );
}
