use serde_json::{Value, json};
use twopass_core::chat::{
    BadRequest, Media, MediaSource, Message, OpaqueItem, OpaqueKind, Part, ResponseFormat, Role,
    ToolCall, ToolChoice, WireFormat,
};

use super::MIN_BUDGET_TOKENS;
use crate::body::{Body, offered};
use crate::facts::{ReasoningReplay, ThinkingField, WireFacts};
use crate::history::{Repaired, not_sent, repair};
use crate::json::{Lenient, Object, array, decimal};
use crate::request::{Encoded, WireRequest, degraded};

/// Writes a request (rows H2, H5-H9, L13, M4). The history is repaired on the way.
///
/// The thinking budget stays below the cap with a reserve for the answer: half of the cap,
/// at most 1024 tokens. Thinking is given up, with a diagnostic, where the service would
/// refuse it: the cap leaves no room, a call is forced, or the running tool loop has a turn
/// without signed thinking.
///
/// # Errors
/// The request holds content that this wire cannot carry.
pub fn encode_request(request: &WireRequest, facts: &WireFacts) -> Result<Encoded, BadRequest> {
    let mut repaired = repair(request, facts, &[OpaqueKind::AnthropicBlock]);
    let mut body = Body::of(request, WireFormat::Messages);
    body.diagnostics.append(&mut repaired.diagnostics);
    let (max_tokens, budget) = plan_caps(request, facts, &repaired, &mut body);
    body.text("model", &request.model);
    body.value("max_tokens", &max_tokens.into());
    let (system, messages): (Vec<_>, Vec<_>) = repaired
        .messages
        .iter()
        .map(AsRef::as_ref)
        .zip(&repaired.in_loop)
        .partition(|(message, _)| matches!(message.role, Role::System | Role::Developer));
    let system: Vec<_> = system
        .iter()
        .map(|(message, _)| message.content_text())
        .collect();
    body.maybe(
        "system",
        (!system.is_empty()).then(|| system.join("\n\n").into()),
    );
    let messages = encode_messages(&messages, facts, budget.is_some(), &mut body)?;
    body.raw("messages", &messages);
    encode_tools(request, &repaired, &mut body);
    if let Some(budget) = budget {
        body.value(
            "thinking",
            &json!({"type": "enabled", "budget_tokens": budget}),
        );
    } else if !request.thinking().is_on()
        && request.thinking() != crate::request::Thinking::Default
        && facts.thinking == ThinkingField::AnthropicThinking
    {
        body.value("thinking", &json!({"type": "disabled"}));
    }
    encode_sampling(request, facts, budget.is_some(), &mut body);
    encode_stop(&request.request.stop, &mut body);
    match &request.request.response_format {
        ResponseFormat::Text => {}
        ResponseFormat::JsonObject => body.diagnostics.push(not_sent(
            "response_format",
            "this wire binds answers to schemas only",
        )),
        ResponseFormat::JsonSchema { schema, .. } => body.value(
            "output_config",
            &json!({"format": {"type": "json_schema", "schema": schema}}),
        ),
    }
    if request.stream {
        body.value("stream", &true.into());
    }
    let (text, diagnostics) = body.finish();
    Ok(Encoded {
        body: text,
        context: repaired.context,
        diagnostics,
    })
}

/// The cap on everything, and the thinking budget below it if there is to be one.
fn plan_caps(
    request: &WireRequest,
    facts: &WireFacts,
    repaired: &Repaired<'_>,
    body: &mut Body<'_>,
) -> (u32, Option<u32>) {
    let default = facts.max_tokens_default.unwrap_or(4096);
    let thinking = request.thinking();
    let wanted = thinking.budget().filter(|_| thinking.is_on());
    let wanted = match (wanted, facts.thinking) {
        (Some(wanted), ThinkingField::AnthropicThinking) => wanted.max(MIN_BUDGET_TOKENS),
        (Some(_), _) => {
            body.diagnostics
                .push(not_sent("thinking", "the endpoint has no field for it"));
            return (request.max_tokens().unwrap_or(default), None);
        }
        (None, _) => return (request.max_tokens().unwrap_or(default), None),
    };
    let cap = match request.max_tokens() {
        Some(cap) => cap,
        None => wanted.saturating_add(default),
    };
    let room = if wanted < cap {
        wanted
    } else {
        cap - (cap / 2).min(1024)
    };
    let why = if room < MIN_BUDGET_TOKENS || room >= cap {
        Some(format!(
            "a cap of {cap} tokens leaves no room for the least budget of {MIN_BUDGET_TOKENS}"
        ))
    } else if request.request.tool_choice.forces_call() {
        Some("a forced call excludes it".to_owned())
    } else if loop_lacks_thinking(repaired) {
        Some("a turn of the running tool loop has no signed thinking".to_owned())
    } else if request.continue_final {
        Some("a continued message excludes it".to_owned())
    } else {
        None
    };
    match why {
        Some(why) => {
            body.diagnostics.push(not_sent("thinking", &why));
            (cap, None)
        }
        None => (cap, Some(room)),
    }
}

/// True if the tool loop that is running has a turn of calls without signed thinking.
fn loop_lacks_thinking(repaired: &Repaired<'_>) -> bool {
    repaired
        .messages
        .iter()
        .zip(&repaired.in_loop)
        .filter(|(message, in_loop)| **in_loop && !message.tool_calls.is_empty())
        .any(|(message, _)| !message.provider_items.iter().any(is_signed))
}

/// True for a thinking block that the service accepts back.
fn is_signed(item: &OpaqueItem) -> bool {
    Lenient::read(&item.json).is_some_and(|block| match block.text("type").as_deref() {
        Some("thinking") => block.text("signature").is_some(),
        Some("redacted_thinking") => block.text("data").is_some(),
        _ => false,
    })
}

/// White space alone is refused as a stop sequence. Source: the service's error texts, read
/// 2026-11.
fn encode_stop(stop: &[String], body: &mut Body<'_>) {
    let (blank, stop): (Vec<&String>, Vec<&String>) =
        stop.iter().partition(|stop| stop.trim().is_empty());
    if !blank.is_empty() {
        body.diagnostics.push(not_sent(
            "stop",
            "this wire takes no stop string of white space alone",
        ));
    }
    body.maybe("stop_sequences", (!stop.is_empty()).then(|| json!(stop)));
}

fn encode_sampling(request: &WireRequest, facts: &WireFacts, thinks: bool, body: &mut Body<'_>) {
    let mut plain = request.request.clone();
    if !thinks {
        // This service takes 0 to 1, where others take up to 2.
        if let Some(hot) = plain.sampling.temperature.filter(|t| *t > 1.0) {
            plain.sampling.temperature = Some(1.0);
            body.diagnostics.push(degraded(format!(
                "the temperature {hot} is above the most that this wire takes; 1 was sent"
            )));
        }
        body.sampling(&plain, facts);
        return;
    }
    // With thinking only temperature 1 (the default), no top-k and a top-p near 1 pass.
    for (name, is_set) in [
        (
            "temperature",
            plain
                .sampling
                .temperature
                .is_some_and(|t| (t - 1.0).abs() > f32::EPSILON),
        ),
        ("top_k", plain.sampling.top_k.is_some()),
    ] {
        if is_set {
            body.diagnostics
                .push(not_sent(name, "it cannot be set while thinking is on"));
        }
    }
    plain.sampling.temperature = None;
    plain.sampling.top_k = None;
    if let Some(top_p) = plain.sampling.top_p.take() {
        body.value("top_p", &decimal(top_p.clamp(0.95, 1.0)));
    }
    body.sampling(&plain, facts);
}

fn encode_tools(request: &WireRequest, repaired: &Repaired<'_>, body: &mut Body<'_>) {
    let choice = &request.request.tool_choice;
    let wire_name = |name: &str| repaired.context.wire_name(name);
    let mut tools: Vec<Value> = offered(&repaired.tools, choice, wire_name)
        .into_iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": object_schema(&tool.parameters),
            })
        })
        .collect();
    let was_empty = tools.is_empty();
    if was_empty {
        // Calls in the history without any tool are refused, so the called ones are named.
        let mut names: Vec<&str> = Vec::new();
        for message in &repaired.messages {
            for call in &message.tool_calls {
                if !names.contains(&call.name.as_str()) {
                    names.push(&call.name);
                }
            }
        }
        tools.extend(names.into_iter().map(
            |name| json!({"name": name, "description": "", "input_schema": {"type": "object"}}),
        ));
    }
    if !request.request.hosted_tools.is_empty() {
        body.diagnostics.push(not_sent(
            "tools",
            "tools that the provider carries out are not known here",
        ));
    }
    if tools.is_empty() {
        return;
    }
    body.value("tools", &tools.into());
    let mut choice = match choice {
        _ if was_empty => json!({"type": "none"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Auto | ToolChoice::Only(_) => json!({"type": "auto"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Named(name) => json!({"type": "tool", "name": wire_name(name)}),
    };
    if !request.request.parallel_tool_calls && choice["type"] != "none" {
        choice["disable_parallel_tool_use"] = true.into();
    }
    body.value("tool_choice", &choice);
}

/// `input_schema` must name its type.
fn object_schema(parameters: &Value) -> Value {
    let mut schema = parameters.clone();
    if let Value::Object(fields) = &mut schema
        && !fields.contains_key("type")
    {
        fields.insert("type".to_owned(), "object".into());
    }
    schema
}

/// The messages, neighbours of one role merged: all results of a turn stand in one user
/// message, before any text (rows H6, H7, H9).
fn encode_messages(
    messages: &[(&Message, &bool)],
    facts: &WireFacts,
    thinks: bool,
    body: &mut Body<'_>,
) -> Result<String, BadRequest> {
    let mut turns: Vec<(&'static str, Vec<String>)> = Vec::new();
    for (message, in_loop) in messages {
        let (role, blocks) = match message.role {
            Role::Assistant => {
                let keeps = thinks
                    && match facts.reasoning_replay {
                        ReasoningReplay::Full => true,
                        ReasoningReplay::Required => !message.tool_calls.is_empty() || **in_loop,
                        // The service demands it while a tool loop runs, whatever is wished.
                        ReasoningReplay::None | ReasoningReplay::KeepLast => **in_loop,
                    };
                ("assistant", encode_assistant(message, keeps))
            }
            Role::Tool => ("user", vec![encode_result(message)?]),
            _ => ("user", encode_parts(&message.content)?),
        };
        match turns.last_mut() {
            Some((last, merged)) if *last == role => merged.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    turns.retain(|(_, blocks)| !blocks.is_empty());
    if turns.first().is_none_or(|(role, _)| *role == "assistant") {
        body.diagnostics.push(degraded(
            "the history did not begin with a user turn; one was put before it",
        ));
        let start = json!({"type": "text", "text": "Continue."}).to_string();
        turns.insert(0, ("user", vec![start]));
    }
    // A last assistant turn is always continued here, and white space at its end is refused.
    if let Some(("assistant", blocks)) = turns.last_mut()
        && let Some(last) = blocks.last_mut()
        && let Some(text) = Lenient::read(last).and_then(|block| block.text("text"))
        && text.trim_end() != text
    {
        *last = json!({"type": "text", "text": text.trim_end()}).to_string();
    }
    let turns: Vec<_> = turns
        .into_iter()
        .map(|(role, blocks)| {
            let mut object = Object::default();
            object.text("role", role);
            object.raw("content", &array(&blocks));
            object.finish()
        })
        .collect();
    Ok(array(&turns))
}

/// A past turn: its own blocks in their order if it has them, else text and calls.
fn encode_assistant(message: &Message, keeps_thinking: bool) -> Vec<String> {
    let items: Vec<&OpaqueItem> = message
        .provider_items
        .iter()
        .filter(|item| item.kind == OpaqueKind::AnthropicBlock)
        .collect();
    let text = message.content_text();
    let blocks: Vec<(Option<String>, Lenient<'_>)> = items
        .iter()
        .filter_map(|item| Lenient::read(&item.json))
        .map(|block| (block.text("type"), block))
        .collect();
    let of_kind = |kind: &str| {
        blocks
            .iter()
            .filter(move |(known, _)| known.as_deref() == Some(kind))
            .map(|(_, block)| block)
            .collect::<Vec<_>>()
    };
    let item_text: String = of_kind("text")
        .iter()
        .filter_map(|b| b.text("text"))
        .collect();
    let is_unchanged = blocks.len() == items.len()
        && of_kind("tool_use").len() == message.tool_calls.len()
        && item_text.trim() == text.trim();
    let mut out = Vec::new();
    let mut calls = message.tool_calls.iter();
    for (item, (kind, block)) in items.iter().zip(&blocks) {
        match kind.as_deref() {
            Some("text") if is_unchanged => {
                let text = block.text("text").unwrap_or_default();
                if !text.trim().is_empty() {
                    out.push(item.json.clone());
                }
            }
            Some("tool_use") if is_unchanged => out.extend(calls.next().map(encode_call)),
            Some("text" | "tool_use") => {}
            Some("thinking" | "redacted_thinking") => {
                let goes = keeps_thinking && is_signed(item);
                out.extend(goes.then(|| item.json.clone()));
            }
            // Blocks of tools that the provider carried out.
            _ if is_unchanged => out.push(item.json.clone()),
            _ => {}
        }
    }
    if !is_unchanged {
        if !text.trim().is_empty() {
            out.push(json!({"type": "text", "text": text}).to_string());
        }
        out.extend(calls.map(encode_call));
    }
    out
}

fn encode_call(call: &ToolCall) -> String {
    let mut object = Object::default();
    object.text("type", "tool_use");
    object.text("id", &call.id);
    object.text("name", &call.name);
    object.raw("input", call.arguments.as_text());
    object.finish()
}

fn encode_result(message: &Message) -> Result<String, BadRequest> {
    let mut object = Object::default();
    object.text("type", "tool_result");
    object.text(
        "tool_use_id",
        message.tool_call_id.as_deref().unwrap_or_default(),
    );
    let is_text = message
        .content
        .iter()
        .all(|part| matches!(part, Part::Text(_)));
    if is_text {
        let text = message.content_text();
        if !text.is_empty() {
            object.text("content", &text);
        }
    } else {
        object.raw("content", &array(&encode_parts(&message.content)?));
    }
    if message.is_error {
        object.raw("is_error", "true");
    }
    Ok(object.finish())
}

fn encode_parts(parts: &[Part]) -> Result<Vec<String>, BadRequest> {
    let mut out = Vec::new();
    for part in parts {
        let block = match part {
            Part::Text(text) if text.trim().is_empty() => continue,
            Part::Text(text) => json!({"type": "text", "text": text}),
            Part::Image(media) => json!({
                "type": "image",
                "source": encode_source(media, "image/png"),
            }),
            Part::File(media) => {
                let mut block = json!({
                    "type": "document",
                    "source": encode_source(media, "application/pdf"),
                });
                if let Some(name) = &media.name {
                    block["title"] = name.clone().into();
                }
                block
            }
            _ => {
                return Err(BadRequest::new(
                    "messages",
                    "this wire takes text, images and documents only",
                ));
            }
        };
        out.push(block.to_string());
    }
    Ok(out)
}

fn encode_source(media: &Media, default_type: &str) -> Value {
    match &media.source {
        MediaSource::Base64(data) => json!({
            "type": "base64",
            "media_type": media.media_type.as_deref().unwrap_or(default_type),
            "data": data,
        }),
        MediaSource::FileId(id) => json!({"type": "file", "file_id": id}),
        MediaSource::Url(url) => json!({"type": "url", "url": url}),
        _ => Value::Null,
    }
}
