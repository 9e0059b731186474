use serde_json::{Map, Value};
use twopass_core::chat::{
    Arguments, BadRequest, Message, Part, Passthrough, ResponseFormat, Role, Sampling, ThinkTag,
    ToolCall, ToolChoice, ToolSpec, WireFormat,
};

use crate::content::{self, read_media};
use crate::json::{Fields, Object, decimal};
use crate::logprobs;
use crate::openai_chat::{FORMAT_FIELD, response_format, response_format_json};

/// The most messages in one request.
pub const MAX_MESSAGES: usize = 10_000;
/// The most tools in one request.
pub const MAX_TOOLS: usize = 1_024;
/// The most stop strings in one request.
const MAX_STOPS: usize = 64;

/// A `/generate` request as it stands on the wire: what the caller left out is `None` and
/// is filled from configuration and defaults later.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerateRequest {
    /// `NAME` or `NAME/remote-id`: which provider is asked.
    pub model: Option<String>,
    /// True: the answer is an event stream.
    pub stream: bool,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// What may be called.
    pub tools: Vec<ToolSpec>,
    /// What must be called; auto if absent.
    pub tool_choice: Option<ToolChoice>,
    /// The dialect of calls in the text, verbatim (`hermes` by the contract's default).
    pub tool_parser: Option<String>,
    /// False: at most one call.
    pub parallel_tool_calls: Option<bool>,
    /// Two passes; `None` (also the text `auto`) = by configuration.
    pub two_pass: Option<bool>,
    /// The tag of the generated thought.
    pub think_tag: Option<ThinkTag>,
    /// Cap on the thought, 0 or more.
    pub max_thinking_tokens: Option<u32>,
    /// Cap on the answer, 1 or more.
    pub max_response_tokens: Option<u32>,
    /// Cap on thought and answer together, 1 or more (row M10).
    pub max_tokens: Option<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Asks for the probabilities of the answer's tokens, each with so many alternatives (0 to
    /// 20). On the wire it is `logprobs: true` and `top_logprobs`.
    pub logprobs: Option<u32>,
    /// Stop strings of the answer.
    pub stop: Vec<String>,
    /// The form that the answer must have; on the wire as Chat Completions has it.
    pub response_format: ResponseFormat,
    /// Extra variables of the chat template.
    pub template_kwargs: Vec<(String, Value)>,
    /// Whose conversation it is: requests with the same value go to the same of several servers.
    pub user: Option<String>,
    /// What only the embedded engine reads: `lora` and `on_unbound_schema`.
    pub passthrough: Option<Passthrough>,
}

/// Fields that the embedded engine reads itself.
const ENGINE_FIELDS: [&str; 2] = ["lora", "on_unbound_schema"];

impl GenerateRequest {
    /// Reads a request body.
    ///
    /// Unknown fields pass; null is absent. Content may be a string, null, or an array of
    /// text parts; tools and calls may also have OpenAI's wrapping; call arguments may be an
    /// object or its JSON text; `tool_choice` may be `auto`, `none`, `required`,
    /// `{"name": N}` (a reply, or calls of N only) or OpenAI's named form (calls of N).
    ///
    /// # Errors
    /// Names the parameter that is wrong, what is allowed and what was given. The error's
    /// `param` is `body` if the bytes are not a JSON object.
    pub fn from_json(body: &[u8]) -> Result<Self, BadRequest> {
        let text = std::str::from_utf8(body).map_err(|error| {
            BadRequest::new(
                "body",
                format!("is not UTF-8 at byte {}", error.valid_up_to()),
            )
        })?;
        let fields = Fields::read("body", text)?;
        let tools = read_tools(&fields)?;
        let tool_choice = read_tool_choice(&fields, &tools)?;
        let request = Self {
            model: fields.text("model")?,
            stream: fields.boolean("stream")?.unwrap_or(false),
            messages: read_messages(&fields)?,
            tool_choice,
            tools,
            tool_parser: fields.text("tool_parser")?,
            parallel_tool_calls: fields.boolean("parallel_tool_calls")?,
            two_pass: read_two_pass(&fields)?,
            think_tag: read_think_tag(&fields)?,
            max_thinking_tokens: fields.cap("max_thinking_tokens", 0)?,
            max_response_tokens: fields.cap("max_response_tokens", 1)?,
            max_tokens: fields.cap("max_tokens", 1)?,
            sampling: read_sampling(&fields)?,
            logprobs: logprobs::read_switch(&fields)?,
            stop: read_stop(&fields)?,
            response_format: response_format(&fields, FORMAT_FIELD)?,
            template_kwargs: read_template_kwargs(&fields)?,
            user: fields.text("user")?,
            passthrough: read_engine_fields(&fields),
        };
        Ok(request)
    }

    /// The request as JSON text: what a client sends. Absent fields are left out; reasoning
    /// of past turns is not sent.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut body = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        put("model", self.model.clone().map(Value::from));
        // Messages hold raw argument text, so they are spliced in below.
        put("temperature", self.sampling.temperature.map(decimal));
        put("top_p", self.sampling.top_p.map(decimal));
        put("top_k", self.sampling.top_k.map(Value::from));
        put("min_p", self.sampling.min_p.map(decimal));
        put("seed", self.sampling.seed.map(Value::from));
        put(
            "presence_penalty",
            self.sampling.presence_penalty.map(decimal),
        );
        put(
            "frequency_penalty",
            self.sampling.frequency_penalty.map(decimal),
        );
        put("repeat_penalty", self.sampling.repeat_penalty.map(decimal));
        put("two_pass", self.two_pass.map(Value::from));
        put("think_tag", self.think_tag.map(|tag| tag.as_str().into()));
        put(
            "max_thinking_tokens",
            self.max_thinking_tokens.map(Value::from),
        );
        put(
            "max_response_tokens",
            self.max_response_tokens.map(Value::from),
        );
        put("max_tokens", self.max_tokens.map(Value::from));
        put("logprobs", self.logprobs.map(|_| true.into()));
        let n_top = self.logprobs.filter(|n_top| *n_top > 0);
        put("top_logprobs", n_top.map(Value::from));
        put(
            "stop",
            (!self.stop.is_empty()).then(|| self.stop.clone().into()),
        );
        put(FORMAT_FIELD, response_format_json(&self.response_format));
        let tools = self.tools.iter().map(encode_tool).collect::<Vec<_>>();
        put("tools", (!tools.is_empty()).then_some(Value::Array(tools)));
        put(
            "tool_choice",
            self.tool_choice.as_ref().map(encode_tool_choice),
        );
        put("tool_parser", self.tool_parser.clone().map(Value::from));
        put(
            "parallel_tool_calls",
            self.parallel_tool_calls.map(Value::from),
        );
        let kwargs: Map<_, _> = self.template_kwargs.iter().cloned().collect();
        put(
            "chat_template_kwargs",
            (!kwargs.is_empty()).then_some(Value::Object(kwargs)),
        );
        put("user", self.user.clone().map(Value::from));
        let passed = self.passthrough.iter().flat_map(|passed| &passed.fields);
        for (name, json) in passed {
            put(name, serde_json::from_str(json).ok());
        }
        put("stream", self.stream.then_some(Value::Bool(true)));
        let rest = Value::Object(body).to_string();
        let messages: Vec<_> = self.messages.iter().map(encode_message).collect();
        let comma = if rest == "{}" { "" } else { "," };
        format!(
            "{{\"messages\":[{}]{comma}{}",
            messages.join(","),
            &rest[1..]
        )
    }
}

fn read_engine_fields(fields: &Fields<'_>) -> Option<Passthrough> {
    let given = ENGINE_FIELDS.iter().filter_map(|name| {
        let json = fields.raw(name)?;
        Some(((*name).to_owned(), json.to_owned()))
    });
    Passthrough::of(WireFormat::Generate, given.collect())
}

fn read_two_pass(fields: &Fields<'_>) -> Result<Option<bool>, BadRequest> {
    match fields.value("two_pass")? {
        None => Ok(None),
        Some(Value::Bool(on)) => Ok(Some(on)),
        Some(Value::String(text)) if text == "auto" => Ok(None),
        Some(Value::String(text)) if text == "on" => Ok(Some(true)),
        Some(Value::String(text)) if text == "off" => Ok(Some(false)),
        Some(_) => Err(fields.fault("two_pass", "true, false or `auto`")),
    }
}

fn read_think_tag(fields: &Fields<'_>) -> Result<Option<ThinkTag>, BadRequest> {
    let Some(name) = fields.text("think_tag")? else {
        return Ok(None);
    };
    ThinkTag::from_name(&name)
        .map(Some)
        .ok_or_else(|| fields.fault("think_tag", "`think` or `thinking`"))
}

pub(crate) fn read_sampling(fields: &Fields<'_>) -> Result<Sampling, BadRequest> {
    Ok(Sampling {
        temperature: fields.float("temperature")?,
        top_p: fields.float("top_p")?,
        top_k: fields.cap("top_k", 0)?,
        min_p: fields.float("min_p")?,
        seed: fields.whole("seed", 0, u64::MAX)?,
        presence_penalty: fields.float("presence_penalty")?,
        frequency_penalty: fields.float("frequency_penalty")?,
        repeat_penalty: fields.float("repeat_penalty")?,
    })
}

pub(crate) fn read_stop(fields: &Fields<'_>) -> Result<Vec<String>, BadRequest> {
    let stops = match fields.value("stop")? {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(Value::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Value::String(stop) => Ok(stop),
                _ => Err(fields.fault("stop", "a string or an array of strings")),
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(fields.fault("stop", "a string or an array of strings")),
    };
    if stops.len() > MAX_STOPS {
        return Err(BadRequest::new(
            "stop",
            format!("at most {MAX_STOPS} stop strings, got {}", stops.len()),
        ));
    }
    Ok(stops)
}

pub(crate) fn read_template_kwargs(
    fields: &Fields<'_>,
) -> Result<Vec<(String, Value)>, BadRequest> {
    match fields.value("chat_template_kwargs")? {
        None => Ok(Vec::new()),
        Some(Value::Object(object)) => Ok(object.into_iter().collect()),
        Some(_) => Err(fields.fault("chat_template_kwargs", "an object")),
    }
}

pub(crate) fn read_tools(fields: &Fields<'_>) -> Result<Vec<ToolSpec>, BadRequest> {
    let items = fields.list("tools")?;
    if items.len() > MAX_TOOLS {
        return Err(BadRequest::new(
            "tools",
            format!("at most {MAX_TOOLS} tools, got {}", items.len()),
        ));
    }
    items
        .into_iter()
        .map(|(path, text)| read_tool(path, text))
        .collect()
}

pub(crate) fn read_tool(path: String, text: &str) -> Result<ToolSpec, BadRequest> {
    let outer = Fields::read(path, text)?;
    let fields = match outer.raw("function") {
        Some(function) => Fields::read(outer.path_of("function"), function)?,
        None => outer,
    };
    let name = fields
        .text("name")?
        .ok_or_else(|| fields.fault("name", "the tool's name"))?;
    let schema_name = if fields.raw("parameters").is_none() && fields.raw("input_schema").is_some()
    {
        "input_schema"
    } else {
        "parameters"
    };
    let parameters = fields
        .value(schema_name)?
        .unwrap_or_else(|| Value::Object(Map::new()));
    let is_object_schema = match &parameters {
        Value::Object(schema) => schema.get("type").is_none_or(|kind| kind == "object"),
        _ => false,
    };
    if !is_object_schema {
        return Err(BadRequest::new(
            fields.path_of(schema_name),
            format!("must be a JSON Schema of type `object` for the tool `{name}`"),
        ));
    }
    Ok(ToolSpec {
        name,
        description: fields.text("description")?.unwrap_or_default(),
        parameters,
    })
}

pub(crate) fn read_tool_choice(
    fields: &Fields<'_>,
    tools: &[ToolSpec],
) -> Result<Option<ToolChoice>, BadRequest> {
    const ALLOWED: &str = "`auto`, `none`, `required` or `{\"name\": <tool>}`";
    let choice = match fields.value("tool_choice")? {
        None => return Ok(None),
        Some(Value::String(text)) => match text.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" | "any" => ToolChoice::Required,
            _ => return Err(fields.fault("tool_choice", ALLOWED)),
        },
        Some(Value::Object(object)) => {
            let named = object
                .get("function")
                .and_then(|function| function.get("name"));
            match (named, object.get("name")) {
                (Some(Value::String(name)), _) => ToolChoice::Named(name.clone()),
                // With a type it is the shape of Responses or Messages, which demand the call.
                (None, Some(Value::String(name))) if object.contains_key("type") => {
                    ToolChoice::Named(name.clone())
                }
                (None, Some(Value::String(name))) => ToolChoice::Only(name.clone()),
                _ => return Err(fields.fault("tool_choice", ALLOWED)),
            }
        }
        Some(_) => return Err(fields.fault("tool_choice", ALLOWED)),
    };
    if let Some(name) = choice.only_tool()
        && !tools.iter().any(|tool| tool.name == name)
    {
        let offered: Vec<_> = tools
            .iter()
            .map(|tool| format!("`{}`", tool.name))
            .collect();
        let offered = if offered.is_empty() {
            "none".to_owned()
        } else {
            offered.join(", ")
        };
        return Err(BadRequest::new(
            "tool_choice",
            format!("unknown tool `{name}`, offered: {offered}"),
        ));
    }
    Ok(Some(choice))
}

/// The texts of `messages`, each with its path.
pub(crate) fn list_of_messages<'a>(
    fields: &Fields<'a>,
) -> Result<Vec<(String, &'a str)>, BadRequest> {
    let items = fields.list("messages")?;
    if items.is_empty() {
        return Err(BadRequest::new(
            "messages",
            "at least one message is needed",
        ));
    }
    if items.len() > MAX_MESSAGES {
        return Err(BadRequest::new(
            "messages",
            format!("at most {MAX_MESSAGES} messages, got {}", items.len()),
        ));
    }
    Ok(items)
}

fn read_messages(fields: &Fields<'_>) -> Result<Vec<Message>, BadRequest> {
    let items = list_of_messages(fields)?;
    items
        .into_iter()
        .map(|(path, text)| read_message(path, text))
        .collect()
}

fn read_message(path: String, text: &str) -> Result<Message, BadRequest> {
    const ROLES: &str = "`system`, `developer`, `user`, `assistant` or `tool`";
    let fields = Fields::read(path, text)?;
    let role = fields
        .text("role")?
        .ok_or_else(|| fields.fault("role", ROLES))?;
    let role = Role::from_name(&role).ok_or_else(|| fields.fault("role", ROLES))?;
    let mut tool_calls = Vec::new();
    if role == Role::Assistant {
        for (path, text) in fields.list("tool_calls")? {
            tool_calls.push(read_call(path, text)?);
        }
    }
    let mut reasoning = None;
    if role == Role::Assistant {
        for name in ["thinking", "reasoning_content", "reasoning"] {
            reasoning = reasoning.or(fields.text(name)?.filter(|text| !text.is_empty()));
        }
    }
    let tool_call_id = match role {
        Role::Tool => fields.text("tool_call_id")?,
        _ => None,
    };
    Ok(Message {
        role,
        content: read_content(&fields)?,
        name: fields.text("name")?,
        reasoning,
        tool_calls,
        tool_call_id,
        is_error: fields.boolean("is_error")?.unwrap_or(false),
        provider_items: Vec::new(),
    })
}

fn read_content(fields: &Fields<'_>) -> Result<Vec<Part>, BadRequest> {
    match fields.value("content")? {
        None => Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![Part::Text(text)]),
        Some(Value::Array(_)) => {
            let items = fields.list("content")?.into_iter();
            items.map(|(path, item)| read_part(&path, item)).collect()
        }
        Some(_) => Err(fields.fault("content", "a string or an array of parts")),
    }
}

/// Whatever has a text is one; anything else is what Chat Completions calls a part.
fn read_part(path: &str, item: &str) -> Result<Part, BadRequest> {
    let part: Value = serde_json::from_str(item)
        .map_err(|error| BadRequest::new(path, format!("is not JSON: {error}")))?;
    match part {
        Value::String(text) => Ok(Part::Text(text)),
        Value::Object(mut part) => match part.remove("text") {
            Some(Value::String(text)) => Ok(Part::Text(text)),
            _ if part.contains_key("type") => read_media(path, item),
            _ => Err(BadRequest::new(format!("{path}.text"), "must be a string")),
        },
        _ => Err(BadRequest::new(path, "must be a part")),
    }
}

/// Reads a call of a past turn: `{id, name, arguments|args}` or OpenAI's wrapping.
fn read_call(path: String, text: &str) -> Result<ToolCall, BadRequest> {
    let outer = Fields::read(path, text)?;
    let id = outer
        .text("id")?
        .filter(|id| !id.is_empty())
        .ok_or_else(|| outer.fault("id", "the call's id"))?;
    let fields = match outer.raw("function") {
        Some(function) => Fields::read(outer.path_of("function"), function)?,
        None => outer,
    };
    let name = fields
        .text("name")?
        .ok_or_else(|| fields.fault("name", "the called tool's name"))?;
    let field = if fields.raw("arguments").is_none() {
        "args"
    } else {
        "arguments"
    };
    let arguments = read_arguments(&fields, field)?;
    Ok(ToolCall {
        id,
        name,
        arguments,
    })
}

/// Arguments as an object or as the JSON text of one; absent means `{}`.
pub(crate) fn read_arguments(fields: &Fields<'_>, field: &str) -> Result<Arguments, BadRequest> {
    let text = match fields.raw(field) {
        None => "{}".to_owned(),
        Some(raw) if raw.starts_with('"') => match fields.text(field)? {
            Some(text) if !text.trim().is_empty() => text,
            _ => "{}".to_owned(),
        },
        Some(raw) => raw.to_owned(),
    };
    Arguments::from_text(text)
        .map_err(|error| BadRequest::new(fields.path_of(field), error.to_string()))
}

fn encode_tool(tool: &ToolSpec) -> Value {
    serde_json::json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    })
}

fn encode_tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => "none".into(),
        ToolChoice::Auto => "auto".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Only(name) => serde_json::json!({"name": name}),
        ToolChoice::Named(name) => {
            serde_json::json!({"type": "function", "function": {"name": name}})
        }
    }
}

fn encode_message(message: &Message) -> String {
    let mut object = Object::default();
    object.text("role", message.role.as_str());
    encode_content(&message.content, &mut object);
    if let Some(name) = &message.name {
        object.text("name", name);
    }
    if !message.tool_calls.is_empty() {
        let calls: Vec<_> = message.tool_calls.iter().map(encode_call).collect();
        object.raw("tool_calls", &format!("[{}]", calls.join(",")));
    }
    if let Some(id) = &message.tool_call_id {
        object.text("tool_call_id", id);
    }
    if message.is_error {
        object.raw("is_error", "true");
    }
    object.finish()
}

/// Text is one string. What has no form on any wire is named by its kind alone, so that the
/// server refuses it: content is never dropped.
fn encode_content(parts: &[Part], object: &mut Object) {
    let whole = content::encode_content(parts);
    match whole.unwrap_or_else(|_| parts.iter().map(encode_part).collect()) {
        Value::String(text) => object.text("content", &text),
        parts => object.value("content", &parts),
    }
}

fn encode_part(part: &Part) -> Value {
    let kind = match part {
        Part::Image(_) => "image",
        Part::Audio(_) => "audio",
        _ => "file",
    };
    content::encode_part(part).unwrap_or_else(|_| serde_json::json!({"type": kind}))
}

/// A call as `{id, name, arguments}`, the argument text as the model wrote it but on one
/// line: whoever reads JSON lines gets one. No JSON string holds a raw line end.
pub(crate) fn encode_call(call: &ToolCall) -> String {
    let mut object = Object::default();
    object.text("id", &call.id);
    object.text("name", &call.name);
    let arguments = call.arguments.as_text().replace(['\n', '\r'], " ");
    object.raw("arguments", &arguments);
    object.finish()
}
