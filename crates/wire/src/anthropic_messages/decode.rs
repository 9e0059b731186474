use twopass_core::chat::{
    BadRequest, Message, OpaqueItem, OpaqueKind, Part, Passthrough, Request, Role, ToolChoice,
    TurnBudget, WireFormat,
};

use crate::content::{read_call, read_source};
use crate::generate::{list_of_messages, read_tools};
use crate::json::{Fields, Lenient, string};
use crate::openai_chat::{read_thinking, read_utf8, response_format};
use crate::request::{Thinking, WireRequest};

use super::reply::SIGNATURE_HEAD;

const KNOWN: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "output_config",
];

/// Reads a request: the server side. Unknown fields are kept in [`Request::passthrough`].
///
/// # Errors
/// Names the parameter that is wrong, what is allowed and what was given.
pub fn decode_request(body: &[u8]) -> Result<WireRequest, BadRequest> {
    let text = read_utf8(body)?;
    let fields = Fields::read("body", text)?;
    let tools = read_tools(&fields)?;
    let (tool_choice, parallel_tool_calls) = read_tool_choice(&fields)?;
    let mut messages = Vec::new();
    read_system(&fields, &mut messages)?;
    let items = list_of_messages(&fields)?;
    for (path, item) in items {
        read_message(path, item, &mut messages)?;
    }
    let mut request = Request {
        tools,
        tool_choice,
        parallel_tool_calls: parallel_tool_calls.unwrap_or(true),
        budget: TurnBudget::OnePass {
            max_tokens: fields.cap("max_tokens", 1)?,
        },
        session: fields
            .raw("metadata")
            .and_then(|raw| Lenient::read(raw)?.text("user_id")),
        ..Request::new(messages)
    };
    request.sampling.temperature = fields.float("temperature")?;
    request.sampling.top_p = fields.float("top_p")?;
    request.sampling.top_k = fields.cap("top_k", 0)?;
    for (path, stop) in fields.list("stop_sequences")? {
        let stop = string(stop).ok_or_else(|| BadRequest::new(path, "must be a string"))?;
        request.stop.push(stop);
    }
    let mut wire = WireRequest::new(fields.text("model")?.unwrap_or_default(), request);
    wire.stream = fields.boolean("stream")?.unwrap_or(false);
    wire.include_usage = true;
    wire.asks_for_several_calls = parallel_tool_calls == Some(true);
    wire.thinking = read_thinking(&fields)?;
    if let Some(raw) = fields.raw("output_config") {
        let output = Fields::read("output_config", raw)?;
        wire.request.response_format = response_format(&output, "format")?;
        // An effort says how much is thought where thinking is on, not whether it is.
        if let (Thinking::On, Some(word)) = (&wire.thinking, output.text("effort")?) {
            wire.thinking = Thinking::Effort(word);
        }
    }
    wire.request.passthrough = Passthrough::of(WireFormat::Messages, fields.extra(KNOWN));
    Ok(wire)
}

/// The choice, and whether several calls may come, if it says so.
fn read_tool_choice(fields: &Fields<'_>) -> Result<(ToolChoice, Option<bool>), BadRequest> {
    let Some(raw) = fields.raw("tool_choice") else {
        return Ok((ToolChoice::Auto, None));
    };
    let choice =
        Lenient::read(raw).ok_or_else(|| fields.fault("tool_choice", "an object with a `type`"))?;
    let parallel = choice
        .flag("disable_parallel_tool_use")
        .map(|is_off| !is_off);
    let parsed = match choice.text("type").as_deref() {
        Some("auto") => ToolChoice::Auto,
        Some("any") => ToolChoice::Required,
        Some("none") => ToolChoice::None,
        Some("tool") => ToolChoice::Named(choice.text("name").ok_or_else(|| {
            BadRequest::new("tool_choice.name", "must name the tool to be called")
        })?),
        _ => {
            return Err(BadRequest::new(
                "tool_choice.type",
                "must be `auto`, `any`, `tool` or `none`",
            ));
        }
    };
    Ok((parsed, parallel))
}

fn read_system(fields: &Fields<'_>, messages: &mut Vec<Message>) -> Result<(), BadRequest> {
    let Some(raw) = fields.raw("system") else {
        return Ok(());
    };
    let text = match string(raw) {
        Some(text) => text,
        None => {
            let blocks = fields.list("system")?;
            let texts: Vec<String> = blocks
                .into_iter()
                .filter_map(|(_, block)| Lenient::read(block)?.text("text"))
                .collect();
            texts.join("\n\n")
        }
    };
    if !text.is_empty() {
        messages.push(Message::text(Role::System, text));
    }
    Ok(())
}

fn read_message(path: String, text: &str, out: &mut Vec<Message>) -> Result<(), BadRequest> {
    let fields = Fields::read(path, text)?;
    let role = match fields.text("role")?.as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err(fields.fault("role", "`user` or `assistant`")),
    };
    let mut message = Message {
        content: Vec::new(),
        ..Message::text(role, "")
    };
    let Some(raw) = fields.raw("content") else {
        return Err(fields.fault("content", "a string or an array of blocks"));
    };
    if let Some(text) = string(raw) {
        message.content.push(Part::Text(text));
        out.push(message);
        return Ok(());
    }
    let mut keeps_blocks = false;
    let mut items = Vec::new();
    let blocks = fields.list("content")?;
    for (path, item) in &blocks {
        keeps_blocks |= read_block(path, item, &mut message, out)?;
        if is_own_thinking(item) {
            continue;
        }
        items.push(OpaqueItem::new(OpaqueKind::AnthropicBlock, *item));
    }
    if keeps_blocks && role == Role::Assistant {
        message.provider_items = items;
    }
    if !(message.content.is_empty() && role == Role::User && !blocks.is_empty()) {
        out.push(message);
    }
    Ok(())
}

/// Thinking that our own server signed: no provider would take it back.
fn is_own_thinking(item: &str) -> bool {
    let block = Lenient::read(item).filter(|block| block.raw("thinking").is_some());
    let signature = block.and_then(|block| block.text("signature"));
    signature.is_some_and(|signature| signature.starts_with(SIGNATURE_HEAD))
}

/// Reads one block; true if the turn's blocks must be kept as they are.
fn read_block(
    path: &str,
    item: &str,
    message: &mut Message,
    out: &mut Vec<Message>,
) -> Result<bool, BadRequest> {
    let block =
        Lenient::read(item).ok_or_else(|| BadRequest::new(path, "must be a content block"))?;
    let source = || {
        block
            .object("source")
            .and_then(|source| read_source(&source))
    };
    let no_source = || BadRequest::new(format!("{path}.source"), "must hold data or an address");
    match block.text("type").as_deref() {
        Some("text") => {
            let text = block.text("text").unwrap_or_default();
            message.content.push(Part::Text(text));
        }
        Some("image") => message
            .content
            .push(Part::Image(source().ok_or_else(no_source)?)),
        Some("document") => {
            let mut media = source().ok_or_else(no_source)?;
            media.name = block.text("title");
            message.content.push(Part::File(media));
        }
        Some("thinking") => {
            let text = block.text("thinking").unwrap_or_default();
            match &mut message.reasoning {
                Some(reasoning) => {
                    reasoning.push('\n');
                    reasoning.push_str(&text);
                }
                None => message.reasoning = Some(text),
            }
            return Ok(!is_own_thinking(item));
        }
        Some("redacted_thinking") => return Ok(true),
        Some("tool_use") => {
            let call = read_call(item, message.tool_calls.len())
                .ok_or_else(|| BadRequest::new(format!("{path}.name"), "must be a string"))?;
            message.tool_calls.push(call);
        }
        Some("tool_result") => out.push(read_result(path, &block)?),
        _ if message.role == Role::Assistant => return Ok(true),
        _ => {
            return Err(BadRequest::new(
                format!("{path}.type"),
                "must be `text`, `image`, `document` or `tool_result`",
            ));
        }
    }
    Ok(false)
}

fn read_result(path: &str, block: &Lenient<'_>) -> Result<Message, BadRequest> {
    let mut result = Message::tool_result(block.text("tool_use_id").unwrap_or_default(), "");
    result.content.clear();
    result.is_error = block.flag("is_error").unwrap_or(false);
    match block.raw("content") {
        None => {}
        Some(raw) => match string(raw) {
            Some(text) => result.content.push(Part::Text(text)),
            None => {
                let mut unused = Vec::new();
                for (n, item) in block.list("content").into_iter().enumerate() {
                    let path = format!("{path}.content[{n}]");
                    read_block(&path, item, &mut result, &mut unused)?;
                }
            }
        },
    }
    Ok(result)
}
