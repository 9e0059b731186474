use serde_json::{Value, json};
use twopass_core::chat::{
    BadRequest, Message, OpaqueItem, OpaqueKind, Part, Passthrough, Request, ResponseFormat, Role,
    ToolChoice, TurnBudget, WireFormat,
};

use crate::body::{Body, offered};
use crate::content::{encode_content, error_text, read_call, read_content};
use crate::facts::{Continuation, ReasoningField, WireFacts};
use crate::generate::{
    list_of_messages, read_sampling, read_stop, read_template_kwargs, read_tool_choice, read_tools,
};
use crate::history::{Repaired, not_sent, repair};
use crate::json::{Fields, Lenient, Object, array, string};
use crate::logprobs;
use crate::request::{Encoded, Thinking, WireRequest, function_tool};

/// Writes a request (rows B9, H1, J5-J8, L13). The history is repaired on the way.
///
/// # Errors
/// The request holds content that this wire cannot carry.
pub fn encode_request(request: &WireRequest, facts: &WireFacts) -> Result<Encoded, BadRequest> {
    let own = [
        OpaqueKind::ReasoningDetail,
        OpaqueKind::CallExtra,
        OpaqueKind::ReasoningField,
    ];
    let mut repaired = repair(request, facts, &own);
    let mut body = Body::of(request, WireFormat::ChatCompletions);
    body.diagnostics.append(&mut repaired.diagnostics);
    body.text("model", &request.model);
    let messages = repaired
        .messages
        .iter()
        .map(|message| encode_message(message, facts, &mut body))
        .collect::<Result<Vec<_>, _>>()?;
    let messages = mark_continuation(messages, request, facts, &mut body);
    body.list("messages", &messages);
    encode_tools(request, &repaired, facts, &mut body);
    body.maybe(
        facts.max_tokens_field.as_str(),
        request
            .max_tokens()
            .or(facts.max_tokens_default)
            .map(Value::from),
    );
    body.sampling(&request.request, facts);
    let stop = &request.request.stop;
    body.maybe("stop", (!stop.is_empty()).then(|| stop.clone().into()));
    body.maybe("n", (request.n > 1).then(|| request.n.into()));
    body.maybe(
        "response_format",
        response_format_json(&request.request.response_format),
    );
    body.logprobs(request.request.logprobs);
    body.thinking(request, facts);
    body.maybe("store", request.store.or(facts.store).map(Value::from));
    if request.stream {
        body.value("stream", &true.into());
        if request.include_usage && facts.stream_options {
            body.value("stream_options", &json!({"include_usage": true}));
        }
    }
    if !request.request.hosted_tools.is_empty() {
        body.diagnostics.push(not_sent(
            "tools",
            "tools that the provider carries out are not known here",
        ));
    }
    let (text, diagnostics) = body.finish();
    Ok(Encoded {
        body: text,
        context: repaired.context,
        diagnostics,
    })
}

fn encode_tools(
    request: &WireRequest,
    repaired: &Repaired<'_>,
    facts: &WireFacts,
    body: &mut Body<'_>,
) {
    let choice = &request.request.tool_choice;
    let tools = offered(&repaired.tools, choice, |name| {
        repaired.context.wire_name(name)
    });
    if tools.is_empty() {
        return;
    }
    let tools: Vec<_> = tools
        .into_iter()
        .map(|tool| {
            function_tool(
                &tool.name,
                &tool.description,
                &tool.parameters,
                facts.tools_strict,
            )
        })
        .collect();
    body.value("tools", &tools.into());
    let choice = match choice {
        ToolChoice::None => "none".into(),
        ToolChoice::Auto | ToolChoice::Only(_) => "auto".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Named(name) => json!({
            "type": "function",
            "function": {"name": repaired.context.wire_name(name)},
        }),
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

fn mark_continuation(
    mut messages: Vec<String>,
    request: &WireRequest,
    facts: &WireFacts,
    body: &mut Body<'_>,
) -> Vec<String> {
    if !request.continue_final {
        return messages;
    }
    match facts.continuation {
        Continuation::Trailing => {}
        Continuation::PrefixFlag => {
            if let Some(last) = messages.last_mut()
                && last.ends_with('}')
            {
                last.truncate(last.len() - 1);
                last.push_str(",\"prefix\":true}");
            }
        }
        Continuation::ContinueFlags => {
            body.value("continue_final_message", &true.into());
            body.value("add_generation_prompt", &false.into());
        }
    }
    messages
}

fn encode_message(
    message: &Message,
    facts: &WireFacts,
    body: &mut Body<'_>,
) -> Result<String, BadRequest> {
    let mut object = Object::default();
    object.text("role", message.role.as_str());
    match message.role {
        Role::Tool if message.is_error => {
            object.text("content", &error_text(&message.content_text()));
        }
        // A turn of calls only: some refuse an empty text.
        Role::Assistant if message.content.is_empty() => {
            if message.tool_calls.is_empty() {
                object.text("content", "");
            } else {
                object.raw("content", "null");
            }
        }
        _ => {
            let has_media = message
                .content
                .iter()
                .any(|part| !matches!(part, Part::Text(_)));
            if has_media && !facts.images {
                return Err(BadRequest::new(
                    "messages",
                    "the endpoint takes text only, got an image, audio or a file",
                ));
            }
            match message.content.as_slice() {
                [Part::Text(text)] => object.text("content", text),
                parts => object.value("content", &encode_content(parts)?),
            }
        }
    }
    if let Some(name) = &message.name
        && message.role != Role::Tool
    {
        object.text("name", name);
    }
    encode_reasoning(message, facts, body, &mut object);
    if !message.tool_calls.is_empty() {
        let calls: Vec<_> = message
            .tool_calls
            .iter()
            .map(|call| {
                let extra = message.provider_items.iter().find(|item| {
                    item.kind == OpaqueKind::CallExtra && item.call_id.as_ref() == Some(&call.id)
                });
                encode_call(&call.id, &call.name, call.arguments.as_text(), extra)
            })
            .collect();
        object.raw("tool_calls", &array(&calls));
    }
    if let Some(id) = &message.tool_call_id {
        object.text("tool_call_id", id);
    }
    Ok(object.finish())
}

fn encode_reasoning(
    message: &Message,
    facts: &WireFacts,
    body: &mut Body<'_>,
    object: &mut Object,
) {
    let items = |kind| {
        message
            .provider_items
            .iter()
            .filter(move |item: &&OpaqueItem| item.kind == kind)
    };
    let details: Vec<String> = items(OpaqueKind::ReasoningDetail)
        .map(|item| item.json.clone())
        .collect();
    if let Some(reasoning) = &message.reasoning {
        let came_in = items(OpaqueKind::ReasoningField)
            .next()
            .and_then(|item| string(&item.json));
        let known = facts.reasoning_field.map(ReasoningField::as_str);
        match known.or(came_in.as_deref()) {
            Some(field) => object.text(field, reasoning),
            None if details.is_empty() => body.diagnostics.push(not_sent(
                "reasoning",
                "it is not known which field the endpoint takes it in",
            )),
            None => {}
        }
    }
    if !details.is_empty() {
        object.raw("reasoning_details", &array(&details));
    }
    let is_bare = message.reasoning.is_none() && !message.tool_calls.is_empty();
    if let (true, Some(field)) = (facts.calls_need_reasoning && is_bare, facts.reasoning_field) {
        object.text(field.as_str(), "");
    }
}

pub(crate) fn encode_call(
    id: &str,
    name: &str,
    arguments: &str,
    extra: Option<&OpaqueItem>,
) -> String {
    let mut function = Object::default();
    function.text("name", name);
    function.text("arguments", arguments);
    let mut call = Object::default();
    call.text("id", id);
    call.text("type", "function");
    call.raw("function", &function.finish());
    if let Some(extra) = extra {
        call.raw("extra_content", &extra.json);
    }
    call.finish()
}

pub(crate) fn response_format_json(format: &ResponseFormat) -> Option<Value> {
    match format {
        ResponseFormat::Text => None,
        ResponseFormat::JsonObject => Some(json!({"type": "json_object"})),
        ResponseFormat::JsonSchema {
            name,
            schema,
            strict,
        } => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": name, "schema": schema, "strict": strict},
        })),
    }
}

/// Fields that a request is read from; every other field is kept as extra.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "stop",
    "n",
    "response_format",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "thinking_token_budget",
    "max_thinking_tokens",
    "chat_template_kwargs",
    "stream",
    "stream_options",
    "store",
    "continue_final_message",
    "add_generation_prompt",
];

/// Reads a request: the server side.
///
/// Unknown fields are kept in [`Request::passthrough`], and so are `logprobs` and
/// `top_logprobs`, which not every format has; null is absent. Content may be text, null or
/// parts in every role; calls of past turns whose arguments are broken become calls without
/// arguments. `max_completion_tokens` wins over `max_tokens`.
///
/// # Errors
/// Names the parameter that is wrong, what is allowed and what was given.
pub fn decode_request(body: &[u8]) -> Result<WireRequest, BadRequest> {
    let text = read_utf8(body)?;
    let fields = Fields::read("body", text)?;
    let tools = read_tools(&fields)?;
    let tool_choice = read_tool_choice(&fields, &tools)?;
    let max_tokens = match fields.cap("max_completion_tokens", 1)? {
        Some(cap) => Some(cap),
        None => fields.cap("max_tokens", 1)?,
    };
    let mut sampling = read_sampling(&fields)?;
    if sampling.repeat_penalty.is_none() {
        sampling.repeat_penalty = fields.float("repetition_penalty")?;
    }
    let (messages, is_prefix) = read_messages(&fields)?;
    let parallel_tool_calls = fields.boolean("parallel_tool_calls")?;
    let continue_final = fields.boolean("continue_final_message")?.unwrap_or(false) || is_prefix;
    Ok(WireRequest {
        model: fields.text("model")?.unwrap_or_default(),
        stream: fields.boolean("stream")?.unwrap_or(false),
        include_usage: include_usage(&fields),
        thinking: read_thinking(&fields)?,
        continue_final,
        n: fields.cap("n", 1)?.unwrap_or(1),
        asks_for_several_calls: parallel_tool_calls == Some(true),
        store: fields.boolean("store")?,
        previous_response_id: None,
        extra: Vec::new(),
        request: Request {
            tools,
            tool_choice: tool_choice.unwrap_or_default(),
            parallel_tool_calls: parallel_tool_calls.unwrap_or(true),
            budget: TurnBudget::OnePass { max_tokens },
            sampling,
            logprobs: logprobs::read_switch(&fields)?,
            stop: read_stop(&fields)?,
            template_kwargs: read_template_kwargs(&fields)?,
            response_format: response_format(&fields, FORMAT_FIELD)?,
            passthrough: Passthrough::of(WireFormat::ChatCompletions, fields.extra(KNOWN)),
            session: read_session(&fields),
            ..Request::new(messages)
        },
    })
}

/// What names the conversation: `prompt_cache_key`, which is made for it, else `user`.
pub(crate) fn read_session(fields: &Fields<'_>) -> Option<String> {
    let mut named = ["prompt_cache_key", "user"].into_iter();
    named.find_map(|name| string(fields.raw(name)?).filter(|text| !text.is_empty()))
}

pub(crate) fn read_utf8(body: &[u8]) -> Result<&str, BadRequest> {
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        BadRequest::new("body", format!("is not UTF-8 at byte {at}"))
    })
}

fn include_usage(fields: &Fields<'_>) -> bool {
    fields
        .raw("stream_options")
        .and_then(Lenient::read)
        .and_then(|options| options.flag("include_usage"))
        .unwrap_or(false)
}

/// What `thinking.type` may be. Source: Anthropic's Messages API, read 2026-11.
const THINKING_TYPES: [&str; 4] = ["enabled", "disabled", "adaptive", "auto"];

/// Reads every outside spelling of how much to think (row M4); the most exact one counts.
pub(crate) fn read_thinking(fields: &Fields<'_>) -> Result<Thinking, BadRequest> {
    for name in ["max_thinking_tokens", "thinking_token_budget"] {
        if let Some(budget) = fields.cap(name, 0)? {
            return Ok(Thinking::Budget(budget));
        }
    }
    if let Some(raw) = fields.raw("thinking").filter(|raw| raw.starts_with('{')) {
        let thinking = Fields::read(fields.path_of("thinking"), raw)?;
        let kind = thinking.text("type")?;
        if let Some(kind) = kind
            .as_deref()
            .filter(|kind| !THINKING_TYPES.contains(kind))
        {
            let known = THINKING_TYPES.map(|known| format!("`{known}`")).join(", ");
            let message = format!("must be one of {known}, got `{kind}`");
            return Err(BadRequest::new(thinking.path_of("type"), message));
        }
        let budget = thinking.cap("budget_tokens", 0)?;
        return Ok(match (kind.as_deref(), budget) {
            (Some("disabled"), _) => Thinking::Off,
            (_, Some(budget)) => Thinking::Budget(budget),
            _ => match fields.text("reasoning_effort")? {
                Some(word) => Thinking::from_effort(&word),
                None => Thinking::On,
            },
        });
    }
    if let Some(reasoning) = fields.raw("reasoning").and_then(Lenient::read) {
        if let Some(budget) = reasoning.count("max_tokens") {
            return Ok(Thinking::Budget(u32::try_from(budget).unwrap_or(u32::MAX)));
        }
        if let Some(word) = reasoning.text("effort") {
            return Ok(Thinking::from_effort(&word));
        }
        if let Some(on) = reasoning.flag("enabled") {
            return Ok(if on { Thinking::On } else { Thinking::Off });
        }
    }
    Ok(match fields.text("reasoning_effort")? {
        Some(word) => Thinking::from_effort(&word),
        None => Thinking::Default,
    })
}

/// Where Chat Completions and `/generate` have it.
pub(crate) const FORMAT_FIELD: &str = "response_format";

/// A demanded form. Its name and schema lie in a member `json_schema`, or, as in the formats
/// that came later, beside its type.
pub(crate) fn response_format(
    fields: &Fields<'_>,
    name: &str,
) -> Result<ResponseFormat, BadRequest> {
    let Some(raw) = fields.raw(name) else {
        return Ok(ResponseFormat::Text);
    };
    let format = Fields::read(fields.path_of(name), raw)?;
    match format.text("type")?.as_deref() {
        Some("text") => Ok(ResponseFormat::Text),
        Some("json_object") => Ok(ResponseFormat::JsonObject),
        Some("json_schema") => {
            let spec = match format.raw("json_schema") {
                Some(nested) => Fields::read(format.path_of("json_schema"), nested)?,
                None if format.raw("schema").is_none() && name == FORMAT_FIELD => {
                    return Err(format.fault("json_schema", "an object with a `schema`"));
                }
                None => format,
            };
            let schema = spec.value("schema")?;
            let is_schema = |value: &Value| value.is_object() || value.is_boolean();
            let Some(schema) = schema.filter(is_schema) else {
                return Err(spec.fault("schema", "a JSON Schema"));
            };
            Ok(ResponseFormat::JsonSchema {
                name: spec.text("name")?.unwrap_or_else(|| "answer".to_owned()),
                schema,
                strict: spec.boolean("strict")?.unwrap_or(false),
            })
        }
        _ => Err(format.fault("type", "`text`, `json_object` or `json_schema`")),
    }
}

/// The messages, and whether the last one is marked as the beginning of the answer.
fn read_messages(fields: &Fields<'_>) -> Result<(Vec<Message>, bool), BadRequest> {
    let items = list_of_messages(fields)?;
    let mut messages = Vec::with_capacity(items.len());
    let mut n_calls = 0;
    let mut is_prefix = false;
    for (path, text) in items {
        let fields = Fields::read(path, text)?;
        is_prefix = fields.raw("prefix") == Some("true");
        read_message(&fields, &mut n_calls, &mut messages)?;
    }
    Ok((messages, is_prefix))
}

fn read_message(
    fields: &Fields<'_>,
    n_calls: &mut usize,
    out: &mut Vec<Message>,
) -> Result<(), BadRequest> {
    const ROLES: &str = "`system`, `developer`, `user`, `assistant` or `tool`";
    let role = fields
        .text("role")?
        .and_then(|role| Role::from_name(&role))
        .ok_or_else(|| fields.fault("role", ROLES))?;
    let content = read_content(fields, "content")?;
    out.extend(content.results);
    let mut message = Message {
        content: content.parts,
        name: fields.text("name")?,
        ..Message::text(role, "")
    };
    if role == Role::Tool {
        message.tool_call_id = fields.text("tool_call_id")?.or_else(|| {
            // The old `function` role names the function, not the call.
            let name = message.name.as_ref()?;
            let calls = out
                .iter()
                .rev()
                .flat_map(|past| past.tool_calls.iter().rev());
            let mut of_name = calls.filter(|call| call.name == *name);
            of_name.next().map(|call| call.id.clone())
        });
        message.is_error = fields.boolean("is_error")?.unwrap_or(false);
    }
    if role == Role::Assistant {
        read_assistant(fields, content.reasoning, &mut message, n_calls)?;
        message.tool_calls.extend(content.calls);
    }
    let only_results = message.content.is_empty() && role == Role::User;
    if !(only_results && matches!(out.last(), Some(last) if last.role == Role::Tool)) {
        out.push(message);
    }
    Ok(())
}

fn read_assistant(
    fields: &Fields<'_>,
    part_reasoning: String,
    message: &mut Message,
    n_calls: &mut usize,
) -> Result<(), BadRequest> {
    for name in ["reasoning_content", "reasoning", "thinking"] {
        // A client may send anything here; only text is of use.
        if let Some(text) = fields.text(name).ok().flatten()
            && !text.is_empty()
            && message.reasoning.is_none()
        {
            message.reasoning = Some(text);
        }
    }
    if message.reasoning.is_none() && !part_reasoning.is_empty() {
        message.reasoning = Some(part_reasoning);
    }
    for (_, detail) in fields.list("reasoning_details").unwrap_or_default() {
        message
            .provider_items
            .push(OpaqueItem::new(OpaqueKind::ReasoningDetail, detail));
    }
    let legacy = fields.raw("function_call").map(|raw| (String::new(), raw));
    for (path, item) in fields.list("tool_calls")?.into_iter().chain(legacy) {
        let call = read_call(item, *n_calls)
            .ok_or_else(|| BadRequest::new(format!("{path}.function.name"), "must be a string"))?;
        *n_calls += 1;
        if let Some(extra) = Lenient::read(item).and_then(|call| call.raw("extra_content")) {
            message.provider_items.push(OpaqueItem::of_call(
                OpaqueKind::CallExtra,
                call.id.clone(),
                extra,
            ));
        }
        message.tool_calls.push(call);
    }
    Ok(())
}
