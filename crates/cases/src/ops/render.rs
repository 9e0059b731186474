//! Rendering a history to a prompt.

use std::time::Instant;

use serde_json::{Map, Value, json};
use twopass_core::chat::{Arguments, Message, Role, ToolCall, ToolChoice, ToolSpec};
use twopass_core::chat_template::{CHATML, ChatTemplate, ControlStrings, RenderInput};
use twopass_core::tool_prompt::{ToolPromptOptions, with_tools};

use super::values::verdict;
use crate::Verdict;
use crate::case::tools_of;

/// What a ChatML model with Hermes tools reads as control tokens or as markup.
const CONTROL: [&str; 13] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<thinking>",
    "</thinking>",
];

pub(super) fn history(case: &Value) -> Verdict {
    let started = Instant::now();
    let mut blank = case["input"].clone();
    for message in blank["messages"].as_array_mut().into_iter().flatten() {
        message["content"] = json!("");
    }
    // Markup of our own may spell the same characters: what counts is what the untrusted
    // text adds.
    let (prompt, own) = match (render(&case["input"]), render(&blank)) {
        (Ok(prompt), Ok(own)) => (prompt, own),
        (Err(why), _) | (_, Err(why)) => return Verdict::Failed(why),
    };
    let expect = &case["expect"];
    for absent in expect["untrusted_absent"].as_array().into_iter().flatten() {
        let absent = absent.as_str().unwrap_or_default();
        if prompt.matches(absent).count() > own.matches(absent).count() {
            return Verdict::Failed(format!("`{absent}` is in the prompt: {prompt}"));
        }
    }
    for wanted in expect["prompt_contains"].as_array().into_iter().flatten() {
        let wanted = wanted.as_str().unwrap_or_default();
        if !prompt.contains(wanted) {
            return Verdict::Failed(format!("`{wanted}` is not in the prompt: {prompt}"));
        }
    }
    let mut rest = case.clone();
    if let Some(keys) = rest["expect"].as_object_mut() {
        keys.retain(|key, _| key != "untrusted_absent" && key != "prompt_contains");
    }
    verdict(&rest, &json!({"prompt": prompt}), started)
}

fn render(input: &Value) -> Result<String, String> {
    let messages: Result<Vec<Message>, String> = input["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(message_of)
        .collect();
    let tools: Vec<ToolSpec> = tools_of(input)
        .map(|set| set.specs().cloned().collect())
        .unwrap_or_default();
    let options = ToolPromptOptions::default();
    let messages = with_tools(&messages?, &tools, &ToolChoice::Auto, &options);
    let control = ControlStrings::new(CONTROL.map(str::to_owned));
    let template = ChatTemplate::new(CHATML, "", "<|im_end|>").map_err(|e| e.to_string())?;
    let (prompt, _) = template
        .render(&RenderInput::plain(&messages, &control))
        .map_err(|e| e.to_string())?;
    Ok(prompt.to_safe_text())
}

fn message_of(value: &Value) -> Result<Message, String> {
    let role = value["role"].as_str().unwrap_or_default();
    let role = Role::from_name(role).ok_or_else(|| format!("unknown role `{role}`"))?;
    let mut message = Message::text(role, value["content"].as_str().unwrap_or_default());
    message.reasoning = value["thinking"].as_str().map(str::to_owned);
    message.tool_call_id = value["tool_call_id"].as_str().map(str::to_owned);
    for call in value["tool_calls"].as_array().into_iter().flatten() {
        let arguments = match call["raw_arguments"].as_str() {
            Some(raw) => Arguments::from_text(raw).ok(),
            None => call["arguments"]
                .as_object()
                .cloned()
                .map(Arguments::from_object),
        };
        message.tool_calls.push(ToolCall {
            id: call["id"].as_str().unwrap_or_default().to_owned(),
            name: call["name"].as_str().unwrap_or_default().to_owned(),
            arguments: arguments.unwrap_or_else(|| Arguments::from_object(Map::new())),
        });
    }
    Ok(message)
}
