use serde_json::{Map, Value};
use twopass_core::chat::{
    BadRequest, Media, MediaSource, Message, Part, Passthrough, Request, ResponseFormat, Role,
    Sampling, ToolChoice, TurnBudget, WireFormat,
};

use crate::body::{Body, offered};
use crate::content::{error_text, read_call, read_content};
use crate::facts::{RepeatPenaltyField, WireFacts};
use crate::generate::{list_of_messages, read_stop, read_tools};
use crate::history::{not_sent, repair};
use crate::json::{Fields, Object, array, decimal};
use crate::openai_chat::read_utf8;
use crate::request::{Encoded, Thinking, WireRequest, function_tool};

/// Writes a request (rows H1, L13, M4). The history is repaired on the way. `stream` is
/// always written: its default is true.
///
/// # Errors
/// The request holds content that this wire cannot carry: it takes text, and images as data.
pub fn encode_request(request: &WireRequest, facts: &WireFacts) -> Result<Encoded, BadRequest> {
    let mut repaired = repair(request, facts, &[]);
    let mut body = Body::of(request, WireFormat::OllamaChat);
    body.diagnostics.append(&mut repaired.diagnostics);
    body.text("model", &request.model);
    let messages = repaired
        .messages
        .iter()
        .map(|message| encode_message(message, facts))
        .collect::<Result<Vec<_>, _>>()?;
    body.raw("messages", &array(&messages));
    let choice = &request.request.tool_choice;
    let wire_name = |name: &str| repaired.context.wire_name(name);
    let mut tools = offered(&repaired.tools, choice, wire_name);
    // There is no choice on this wire: what may not be called is not offered.
    match choice {
        ToolChoice::None => tools.clear(),
        ToolChoice::Named(name) => {
            let name = wire_name(name);
            tools.retain(|tool| tool.name == name);
        }
        _ => {}
    }
    if choice.forces_call() {
        body.diagnostics
            .push(not_sent("tool_choice", "the endpoint cannot force a call"));
    }
    if !tools.is_empty() {
        let tools: Vec<_> = tools
            .into_iter()
            .map(|tool| function_tool(&tool.name, &tool.description, &tool.parameters, None))
            .collect();
        body.value("tools", &tools.into());
    }
    body.thinking(request, facts);
    body.maybe(
        "format",
        match &request.request.response_format {
            ResponseFormat::Text => None,
            ResponseFormat::JsonObject => Some("json".into()),
            ResponseFormat::JsonSchema { schema, .. } => Some(schema.clone()),
        },
    );
    let options = encode_options(request, facts);
    body.maybe("options", (!options.is_empty()).then(|| options.into()));
    body.value("stream", &request.stream.into());
    let (text, diagnostics) = body.finish();
    Ok(Encoded {
        body: text,
        context: repaired.context,
        diagnostics,
    })
}

fn encode_options(request: &WireRequest, facts: &WireFacts) -> Map<String, Value> {
    let s = &request.request.sampling;
    let repeat = facts
        .repeat_penalty_field
        .map_or("repeat_penalty", RepeatPenaltyField::as_str);
    let stop = &request.request.stop;
    let rows = [
        (
            "temperature",
            s.temperature.map(decimal).filter(|_| facts.temperature),
        ),
        ("top_p", s.top_p.map(decimal)),
        ("top_k", s.top_k.map(Value::from)),
        ("min_p", s.min_p.map(decimal)),
        ("seed", s.seed.map(Value::from)),
        ("presence_penalty", s.presence_penalty.map(decimal)),
        ("frequency_penalty", s.frequency_penalty.map(decimal)),
        (repeat, s.repeat_penalty.map(decimal)),
        (
            "num_predict",
            request
                .max_tokens()
                .or(facts.max_tokens_default)
                .map(Value::from),
        ),
        ("stop", (!stop.is_empty()).then(|| stop.clone().into())),
    ];
    rows.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn encode_message(message: &Message, facts: &WireFacts) -> Result<String, BadRequest> {
    let mut object = Object::default();
    object.text("role", message.role.as_str());
    let text = message.content_text();
    if message.role == Role::Tool && message.is_error {
        object.text("content", &error_text(&text));
    } else {
        object.text("content", &text);
    }
    if let (Some(reasoning), Some(field)) = (&message.reasoning, facts.reasoning_field) {
        object.text(field.as_str(), reasoning);
    }
    let images = message
        .content
        .iter()
        .filter(|part| !matches!(part, Part::Text(_)))
        .map(|part| match part {
            Part::Image(Media {
                source: MediaSource::Base64(data),
                ..
            }) => Ok(Value::from(data.as_str())),
            _ => Err(BadRequest::new(
                "messages",
                "this wire takes text, and images as data only",
            )),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if !images.is_empty() {
        object.value("images", &images.into());
    }
    if !message.tool_calls.is_empty() {
        let calls: Vec<_> = message
            .tool_calls
            .iter()
            .map(|call| encode_call(&call.id, &call.name, call.arguments.as_text()))
            .collect();
        object.raw("tool_calls", &array(&calls));
    }
    if message.role == Role::Tool {
        if let Some(name) = &message.name {
            object.text("tool_name", name);
        }
        if let Some(id) = &message.tool_call_id {
            object.text("tool_call_id", id);
        }
    }
    Ok(object.finish())
}

pub(super) fn encode_call(id: &str, name: &str, arguments: &str) -> String {
    let mut function = Object::default();
    function.text("name", name);
    function.raw("arguments", arguments);
    let mut call = Object::default();
    call.text("id", id);
    call.raw("function", &function.finish());
    call.finish()
}

const KNOWN: &[&str] = &[
    "model", "messages", "tools", "think", "format", "options", "stream",
];

/// Reads a request: the server side. Unknown fields are kept in [`Request::passthrough`]; `stream`
/// is true if it is absent. Results without an id are linked by their place.
///
/// # Errors
/// Names the parameter that is wrong, what is allowed and what was given.
pub fn decode_request(body: &[u8]) -> Result<WireRequest, BadRequest> {
    let text = read_utf8(body)?;
    let fields = Fields::read("body", text)?;
    let options = Fields::read("options", fields.raw("options").unwrap_or("{}"))?;
    let items = list_of_messages(&fields)?;
    let mut messages: Vec<Message> = Vec::new();
    let mut n_calls = 0;
    for (path, item) in items {
        let message = read_message(path, item, &messages, &mut n_calls)?;
        messages.push(message);
    }
    let max_tokens = match options.value("num_predict")? {
        // Below 0: no cap.
        Some(value) if value.as_i64().is_some_and(|n| n < 0) => None,
        _ => options.cap("num_predict", 1)?,
    };
    let request = Request {
        tools: read_tools(&fields)?,
        budget: TurnBudget::OnePass { max_tokens },
        sampling: Sampling {
            temperature: options.float("temperature")?,
            top_p: options.float("top_p")?,
            top_k: options.cap("top_k", 0)?,
            min_p: options.float("min_p")?,
            seed: options.whole("seed", 0, u64::MAX)?,
            presence_penalty: options.float("presence_penalty")?,
            frequency_penalty: options.float("frequency_penalty")?,
            repeat_penalty: options.float("repeat_penalty")?,
        },
        stop: read_stop(&options)?,
        response_format: match fields.value("format")? {
            None => ResponseFormat::Text,
            Some(Value::String(word)) if word == "json" => ResponseFormat::JsonObject,
            Some(schema @ Value::Object(_)) => ResponseFormat::JsonSchema {
                name: "answer".to_owned(),
                schema,
                strict: true,
            },
            Some(_) => return Err(fields.fault("format", "`json` or a JSON Schema")),
        },
        ..Request::new(messages)
    };
    let mut wire = WireRequest::new(fields.text("model")?.unwrap_or_default(), request);
    wire.stream = fields.boolean("stream")?.unwrap_or(true);
    wire.include_usage = true;
    wire.thinking = match fields.value("think")? {
        None => Thinking::Default,
        Some(Value::Bool(true)) => Thinking::On,
        Some(Value::Bool(false)) => Thinking::Off,
        Some(Value::String(word)) => Thinking::from_effort(&word),
        Some(_) => return Err(fields.fault("think", "true, false or an effort")),
    };
    wire.request.passthrough = Passthrough::of(WireFormat::OllamaChat, fields.extra(KNOWN));
    Ok(wire)
}

fn read_message(
    path: String,
    item: &str,
    past: &[Message],
    n_calls: &mut usize,
) -> Result<Message, BadRequest> {
    let fields = Fields::read(path, item)?;
    let role = fields
        .text("role")?
        .and_then(|role| Role::from_name(&role))
        .ok_or_else(|| fields.fault("role", "`system`, `user`, `assistant` or `tool`"))?;
    let mut message = Message {
        content: read_content(&fields, "content")?.parts,
        ..Message::text(role, "")
    };
    for (path, image) in fields.list("images")? {
        let data = crate::json::string(image)
            .ok_or_else(|| BadRequest::new(path, "must be an image in base64"))?;
        message
            .content
            .push(Part::Image(Media::new(MediaSource::Base64(data))));
    }
    if role == Role::Assistant {
        message.reasoning = fields.text("thinking")?.filter(|text| !text.is_empty());
        for (path, call) in fields.list("tool_calls")? {
            let call = read_call(call, *n_calls).ok_or_else(|| {
                BadRequest::new(format!("{path}.function.name"), "must be a string")
            })?;
            *n_calls += 1;
            message.tool_calls.push(call);
        }
    }
    if role == Role::Tool {
        message.name = fields.text("tool_name")?.or(fields.text("name")?);
        message.tool_call_id = match fields.text("tool_call_id")? {
            Some(id) => Some(id),
            None => next_unanswered(past, message.name.as_deref()),
        };
    }
    Ok(message)
}

/// The first call of the last turn that has no result yet, of this tool if it is named.
fn next_unanswered(past: &[Message], name: Option<&str>) -> Option<String> {
    let turn = past
        .iter()
        .rposition(|message| message.role == Role::Assistant)?;
    let answered: Vec<_> = past[turn + 1..]
        .iter()
        .filter_map(|message| message.tool_call_id.as_deref())
        .collect();
    past[turn]
        .tool_calls
        .iter()
        .filter(|call| name.is_none_or(|name| call.name == name))
        .map(|call| call.id.as_str())
        .find(|id| !answered.contains(id))
        .map(str::to_owned)
}
