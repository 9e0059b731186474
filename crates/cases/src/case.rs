//! Reading the parts that cases share.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use twopass_core::chat::{StopReason, ToolChoice, ToolSpec};
use twopass_core::control::TurnEnd;
use twopass_core::tool_parser::{CallRules, ParserLimits, ToolSet};

/// A string, or the large string that `KEY_spec` describes.
pub(crate) fn text_of(input: &Value, key: &str) -> Option<String> {
    if let Some(text) = input.get(key).and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    Some(expand(input.get(format!("{key}_spec"))?))
}

/// A JSON value, or the large one that `KEY_spec` describes; `Err` if that is not JSON.
pub(crate) fn value_of(input: &Value, key: &str) -> Result<Value, String> {
    match input.get(format!("{key}_spec")) {
        Some(spec) => serde_json::from_str(&expand(spec)).map_err(|error| error.to_string()),
        None => Ok(input.get(key).cloned().unwrap_or(Value::Null)),
    }
}

fn expand(spec: &Value) -> String {
    let part = |key: &str| spec[key].as_str().unwrap_or_default();
    let times = |key: &str| {
        let count = spec[key][1]
            .as_u64()
            .and_then(|count| usize::try_from(count).ok());
        spec[key][0]
            .as_str()
            .unwrap_or_default()
            .repeat(count.unwrap_or(0))
    };
    format!(
        "{}{}{}{}{}",
        part("prefix"),
        times("repeat"),
        part("core"),
        times("close"),
        part("suffix")
    )
}

/// The bytes of a parser case, and the cutting that it asks for, if it does.
pub(crate) fn bytes_of(input: &Value) -> (Vec<u8>, Option<Vec<usize>>) {
    let pieces: Option<Vec<Vec<u8>>> = match (input.get("chunks"), input.get("chunks_hex")) {
        (Some(Value::Array(chunks)), _) => Some(
            chunks
                .iter()
                .map(|chunk| chunk.as_str().unwrap_or_default().as_bytes().to_vec())
                .collect(),
        ),
        (_, Some(Value::Array(chunks))) => Some(
            chunks
                .iter()
                .map(|chunk| from_hex(chunk.as_str().unwrap_or_default()))
                .collect(),
        ),
        _ => None,
    };
    if let Some(pieces) = pieces {
        let lens = pieces.iter().map(Vec::len).collect();
        return (pieces.concat(), Some(lens));
    }
    let text = ["text", "chunks", "completion", "input"]
        .iter()
        .find_map(|key| text_of(input, key));
    (text.unwrap_or_default().into_bytes(), None)
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] * 16 + pair[1])
        .collect()
}

/// Tools, plain or in the OpenAI wrapping; `None` if the case has none.
pub(crate) fn tools_of(case: &Value) -> Option<Arc<ToolSet>> {
    let list = case.get("tools")?.as_array()?;
    let specs = list.iter().map(|tool| {
        let tool = tool.get("function").unwrap_or(tool);
        ToolSpec {
            name: tool["name"].as_str().unwrap_or_default().to_owned(),
            description: tool["description"].as_str().unwrap_or_default().to_owned(),
            parameters: tool
                .get("parameters")
                .cloned()
                .unwrap_or_else(|| Value::Object(Map::new())),
        }
    });
    Some(Arc::new(ToolSet::new(specs)))
}

/// The rules for calls of a case.
pub(crate) fn call_rules_of(input: &Value) -> CallRules {
    let mut limits = ParserLimits::default();
    let limit = |key: &str| {
        let value = input.pointer(&format!("/limits/{key}"))?.as_u64()?;
        usize::try_from(value).ok()
    };
    if let Some(bytes) = limit("max_argument_bytes") {
        limits.arguments.max_bytes = bytes;
    }
    if let Some(bytes) = limit("max_block_bytes") {
        limits.max_block_bytes = bytes;
    }
    if let Some(depth) = limit("max_json_depth").or_else(|| limit("max_depth")) {
        limits.arguments.max_depth = depth;
    }
    if let Some(calls) = limit("max_calls") {
        limits.max_calls = calls;
    }
    CallRules {
        tools: tools_of(input),
        choice: choice_of(&input["tool_choice"]),
        taken_ids: taken_ids_of(input),
        limits,
        ..CallRules::default()
    }
}

pub(crate) fn choice_of(choice: &Value) -> ToolChoice {
    match choice {
        Value::String(word) => match word.as_str() {
            "none" => ToolChoice::None,
            "required" | "any" => ToolChoice::Required,
            _ => ToolChoice::Auto,
        },
        Value::Object(named) => {
            let name = named
                .get("name")
                .or_else(|| choice.pointer("/function/name"))
                .and_then(Value::as_str);
            name.map_or(ToolChoice::Auto, |name| ToolChoice::Named(name.to_owned()))
        }
        _ => ToolChoice::Auto,
    }
}

fn taken_ids_of(input: &Value) -> HashSet<String> {
    let mut taken = HashSet::new();
    let listed = input
        .get("taken_ids")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    taken.extend(listed.filter_map(Value::as_str).map(str::to_owned));
    for message in input
        .get("messages")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        for call in message
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            taken.extend(call["id"].as_str().map(str::to_owned));
        }
    }
    taken
}

/// How the turn of a case ended.
pub(crate) fn end_of(input: &Value) -> TurnEnd {
    let stop_string = input
        .get("stop_reason")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let stop_reason = match input.get("finish_reason").and_then(Value::as_str) {
        Some("length") => StopReason::Length,
        Some("tool_calls") => StopReason::ToolCalls,
        Some("content_filter") => StopReason::ContentFilter,
        Some("stop") | None => match &stop_string {
            Some(text) => StopReason::StopSequence(text.clone()),
            None => StopReason::EndTurn,
        },
        Some(other) => StopReason::Unknown(other.to_owned()),
    };
    TurnEnd {
        stop_reason,
        stop_string,
    }
}
