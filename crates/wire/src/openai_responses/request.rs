use serde_json::{Value, json};
use twopass_core::chat::{
    BadRequest, Message, OpaqueItem, OpaqueKind, Passthrough, Request, ResponseFormat, Role,
    ToolChoice, ToolSpec, TurnBudget, WireFormat,
};

use super::items::{encode_message, read_items};
use super::reply::ECHOED;
use crate::body::{Body, offered};
use crate::facts::{ReasoningReplay, ThinkingField, WireFacts};
use crate::generate::{MAX_MESSAGES, MAX_TOOLS, read_sampling, read_tool_choice};
use crate::history::{Repaired, not_sent, repair};
use crate::json::{Fields, Lenient, array, elements, string};
use crate::openai_chat::{read_session, read_thinking, read_utf8, response_format};
use crate::request::{Encoded, WireRequest};

/// Writes a request (rows J3, J5-J8, J11, L13, M4). The history is repaired on the way.
///
/// System messages that come first are the `instructions`. With `previous_response_id` only
/// what came after the last answer goes along; where it is not taken the whole history does.
///
/// # Errors
/// The request holds content that this wire cannot carry.
pub fn encode_request(request: &WireRequest, facts: &WireFacts) -> Result<Encoded, BadRequest> {
    let mut repaired = repair(request, facts, &[OpaqueKind::ResponsesItem]);
    let mut body = Body::of(request, WireFormat::Responses);
    body.diagnostics.append(&mut repaired.diagnostics);
    body.text("model", &request.model);
    let store = request.store.or(facts.store);
    encode_input(request, &repaired, facts, store, &mut body)?;
    encode_tools(request, &repaired, facts, &mut body);
    body.maybe(
        "max_output_tokens",
        request
            .max_tokens()
            .or(facts.max_tokens_default)
            .map(Value::from),
    );
    body.sampling(&request.request, facts);
    encode_thinking(request, facts, &mut body);
    encode_format(&request.request.response_format, &mut body);
    body.maybe("store", store.map(Value::from));
    if store == Some(false) {
        body.value("include", &json!(["reasoning.encrypted_content"]));
    }
    if !request.request.stop.is_empty() {
        body.diagnostics
            .push(not_sent("stop", "this wire has no stop strings"));
    }
    if request.n > 1 {
        body.diagnostics
            .push(not_sent("n", "this wire gives one answer"));
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

fn encode_input(
    request: &WireRequest,
    repaired: &Repaired<'_>,
    facts: &WireFacts,
    store: Option<bool>,
    body: &mut Body<'_>,
) -> Result<(), BadRequest> {
    let is_system = |message: &Message| matches!(message.role, Role::System | Role::Developer);
    let n_system = repaired
        .messages
        .iter()
        .take_while(|message| is_system(message))
        .count();
    let (system, rest) = repaired.messages.split_at(n_system);
    let instructions: Vec<_> = system.iter().map(|m| m.content_text()).collect();
    body.maybe(
        "instructions",
        (!instructions.is_empty()).then(|| instructions.join("\n\n").into()),
    );
    let previous = request
        .previous_response_id
        .as_ref()
        .filter(|_| facts.previous_response_id);
    let start = match previous {
        Some(_) => rest
            .iter()
            .rposition(|message| message.role == Role::Assistant)
            .map_or(0, |at| at + 1),
        None => 0,
    };
    let mut items = Vec::new();
    let in_loop = &repaired.in_loop[n_system..];
    for (message, in_loop) in rest.iter().zip(in_loop).skip(start) {
        let keeps = match facts.reasoning_replay {
            ReasoningReplay::None => false,
            ReasoningReplay::KeepLast => *in_loop,
            ReasoningReplay::Full => true,
            ReasoningReplay::Required => !message.tool_calls.is_empty(),
        };
        items.extend(encode_message(message, keeps, store != Some(false))?);
    }
    body.raw("input", &array(&items));
    body.maybe("previous_response_id", previous.map(|id| id.clone().into()));
    Ok(())
}

fn encode_tools(
    request: &WireRequest,
    repaired: &Repaired<'_>,
    facts: &WireFacts,
    body: &mut Body<'_>,
) {
    let choice = &request.request.tool_choice;
    let wire_name = |name: &str| repaired.context.wire_name(name);
    let mut tools: Vec<String> = offered(&repaired.tools, choice, wire_name)
        .into_iter()
        .map(|tool| encode_tool(tool, facts.tools_strict).to_string())
        .collect();
    tools.extend(
        request
            .request
            .hosted_tools
            .iter()
            .filter(|tool| tool.kind == OpaqueKind::ResponsesTool)
            .map(|tool| tool.json.clone()),
    );
    if tools.is_empty() {
        return;
    }
    body.raw("tools", &array(&tools));
    let choice = match choice {
        ToolChoice::None => "none".into(),
        ToolChoice::Auto | ToolChoice::Only(_) => "auto".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Named(name) => json!({"type": "function", "name": wire_name(name)}),
    };
    body.value("tool_choice", &choice);
    if !request.request.parallel_tool_calls {
        body.if_taken(
            facts.parallel_tool_calls,
            "parallel_tool_calls",
            Some(false.into()),
        );
    }
}

/// This wire's functions are strict unless they say otherwise, and strict schemas are
/// narrower than JSON Schema: without a fact that says so they are not.
fn encode_tool(tool: &ToolSpec, strict: Option<bool>) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": strict.unwrap_or(false),
    })
}

fn encode_thinking(request: &WireRequest, facts: &WireFacts, body: &mut Body<'_>) {
    let thinking = request.thinking();
    if facts.thinking == ThinkingField::None {
        if thinking.is_on() {
            body.diagnostics
                .push(not_sent("thinking", "the endpoint has no field for it"));
        }
        return;
    }
    if let Some(effort) = thinking.effort() {
        let mut reasoning = json!({"effort": effort});
        if thinking.is_on() {
            reasoning["summary"] = "auto".into();
        }
        body.value("reasoning", &reasoning);
    }
    if !request.request.template_kwargs.is_empty() {
        let kwargs: serde_json::Map<_, _> =
            request.request.template_kwargs.iter().cloned().collect();
        body.if_taken(
            facts.template_kwargs,
            "chat_template_kwargs",
            Some(kwargs.into()),
        );
    }
}

fn encode_format(format: &ResponseFormat, body: &mut Body<'_>) {
    let format = match format {
        ResponseFormat::Text => return,
        ResponseFormat::JsonObject => json!({"type": "json_object"}),
        ResponseFormat::JsonSchema {
            name,
            schema,
            strict,
        } => json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict}),
    };
    body.value("text", &json!({"format": format}));
}

const KNOWN: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "reasoning",
    "max_thinking_tokens",
    "text",
    "store",
    "include",
    "previous_response_id",
    "stream",
];

/// Reads a request: the server side. Unknown fields are kept in [`Request::passthrough`].
///
/// # Errors
/// Names the parameter that is wrong, what is allowed and what was given.
pub fn decode_request(body: &[u8]) -> Result<WireRequest, BadRequest> {
    let text = read_utf8(body)?;
    let fields = Fields::read("body", text)?;
    let (tools, hosted_tools) = read_tools(&fields)?;
    let tool_choice = read_choice(&fields, &tools)?;
    let mut messages = Vec::new();
    if let Some(instructions) = fields.text("instructions")?
        && !instructions.is_empty()
    {
        messages.push(Message::text(Role::System, instructions));
    }
    match fields.raw("input") {
        None => {}
        Some(raw) => match string(raw) {
            Some(text) => messages.push(Message::text(Role::User, text)),
            None => {
                let items = fields.list("input")?;
                if items.len() > MAX_MESSAGES {
                    return Err(BadRequest::new(
                        "input",
                        format!("at most {MAX_MESSAGES} items, got {}", items.len()),
                    ));
                }
                read_items(items, &mut messages)?;
            }
        },
    }
    let previous_response_id = fields.text("previous_response_id")?;
    if messages.is_empty() && previous_response_id.is_none() {
        return Err(BadRequest::new("input", "at least one item is needed"));
    }
    let format = fields
        .raw("text")
        .map(|raw| Fields::read("text", raw))
        .transpose()?;
    let parallel_tool_calls = fields.boolean("parallel_tool_calls")?;
    let request = Request {
        tools,
        tool_choice,
        hosted_tools,
        parallel_tool_calls: parallel_tool_calls.unwrap_or(true),
        budget: TurnBudget::OnePass {
            max_tokens: fields.cap("max_output_tokens", 1)?,
        },
        sampling: read_sampling(&fields)?,
        response_format: match &format {
            Some(format) => response_format(format, "format")?,
            None => ResponseFormat::Text,
        },
        session: read_session(&fields),
        ..Request::new(messages)
    };
    let mut wire = WireRequest::new(fields.text("model")?.unwrap_or_default(), request);
    wire.stream = fields.boolean("stream")?.unwrap_or(false);
    wire.include_usage = true;
    wire.asks_for_several_calls = parallel_tool_calls == Some(true);
    wire.thinking = read_thinking(&fields)?;
    wire.store = fields.boolean("store")?;
    wire.previous_response_id = previous_response_id;
    wire.request.passthrough = Passthrough::of(WireFormat::Responses, fields.extra(KNOWN));
    Ok(wire)
}

/// The fields of a request body that its response repeats ([`ReplyMeta::echo`]).
///
/// [`ReplyMeta::echo`]: crate::ReplyMeta::echo
#[must_use]
pub fn read_echo(body: &[u8]) -> Vec<(&'static str, String)> {
    let fields = std::str::from_utf8(body).ok().and_then(Lenient::read);
    let Some(fields) = fields else {
        return Vec::new();
    };
    let said = |(name, _): &(&'static str, &str)| Some((*name, fields.raw(name)?.to_owned()));
    ECHOED.iter().filter_map(said).collect()
}

/// The input items of a request body as JSON texts, to be kept for a later request.
#[must_use]
pub fn read_input(body: &[u8]) -> Vec<String> {
    let fields = std::str::from_utf8(body).ok().and_then(Lenient::read);
    let input = fields.as_ref().and_then(|fields| fields.raw("input"));
    match input {
        None => Vec::new(),
        Some(raw) => match string(raw) {
            Some(text) => {
                vec![json!({"type": "message", "role": "user", "content": text}).to_string()]
            }
            None => elements(raw).into_iter().map(str::to_owned).collect(),
        },
    }
}

/// The output items of a response as JSON texts, to be kept likewise.
#[must_use]
pub fn read_output(response: &str) -> Vec<String> {
    let fields = Lenient::read(response).unwrap_or_default();
    let items = fields.list("output").into_iter();
    items.map(str::to_owned).collect()
}

/// Reads items that were kept.
///
/// # Errors
/// An item cannot be read, as in [`decode_request`].
pub fn decode_items(items: &[String]) -> Result<Vec<Message>, BadRequest> {
    let mut messages = Vec::new();
    let items = items.iter().enumerate();
    let placed = items.map(|(n, item)| (format!("input[{n}]"), item.as_str()));
    read_items(placed.collect(), &mut messages)?;
    Ok(messages)
}

fn read_tools(fields: &Fields<'_>) -> Result<(Vec<ToolSpec>, Vec<OpaqueItem>), BadRequest> {
    let items = fields.list("tools")?;
    if items.len() > MAX_TOOLS {
        return Err(BadRequest::new(
            "tools",
            format!("at most {MAX_TOOLS} tools, got {}", items.len()),
        ));
    }
    let mut tools = Vec::new();
    let mut hosted = Vec::new();
    for (path, item) in items {
        let kind = Lenient::read(item).and_then(|tool| tool.text("type"));
        if kind.is_none_or(|kind| kind == "function") {
            tools.push(crate::generate::read_tool(path, item)?);
        } else {
            hosted.push(OpaqueItem::new(OpaqueKind::ResponsesTool, item));
        }
    }
    Ok((tools, hosted))
}

/// `{"type": "function", "name": N}` demands a call of N here.
fn read_choice(fields: &Fields<'_>, tools: &[ToolSpec]) -> Result<ToolChoice, BadRequest> {
    let choice = fields.raw("tool_choice").and_then(Lenient::read);
    let kind = choice.as_ref().and_then(|choice| choice.text("type"));
    match kind.as_deref() {
        // A hosted tool, or a set of tools: the model decides among what is offered.
        Some(kind) if kind != "function" => Ok(ToolChoice::Auto),
        _ => Ok(match read_tool_choice(fields, tools)? {
            Some(ToolChoice::Only(name)) => ToolChoice::Named(name),
            other => other.unwrap_or_default(),
        }),
    }
}
