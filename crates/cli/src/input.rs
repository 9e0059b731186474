//! Conversations, tools and prompts from files, flags and stdin.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use serde_json::value::RawValue;
use twopass_core::chat::{BadRequest, Message, Role, ToolChoice, ToolSpec};
use twopass_provider::ErrorKind;
use twopass_wire::generate::GenerateRequest;

use crate::failure::Failure;

/// The most bytes of one input, as for request bodies of the server.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// Where a conversation and its tools come from.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) messages: Option<&'a Path>,
    pub(crate) tools: Option<&'a Path>,
    pub(crate) tool_choice: Option<&'a str>,
    pub(crate) prompt: Option<&'a str>,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) tool_choice: ToolChoice,
}

/// Reads everything. A prompt comes after the messages; without either stdin is the prompt.
pub(crate) fn read(sources: Sources<'_>) -> Result<Conversation, Failure> {
    let (mut messages, messages_from) = match sources.messages {
        Some(path) => {
            let text = read_text(path, "--messages")?;
            let from = shown(path);
            (parse_messages(&text, &from)?, from)
        }
        None => (Vec::new(), String::new()),
    };
    match sources.prompt {
        Some("-") => messages.push(Message::text(Role::User, stdin_prompt()?)),
        Some(prompt) if prompt.trim().is_empty() => {
            return Err(Failure::new("the prompt is empty").with_param("prompt"));
        }
        Some(prompt) => messages.push(Message::text(Role::User, prompt)),
        None if messages_from.is_empty() => {
            messages.push(Message::text(Role::User, stdin_prompt()?))
        }
        None => {}
    }
    let (tools, tool_choice) = read_tools(sources.tools, sources.tool_choice)?;
    Ok(Conversation {
        messages,
        tools,
        tool_choice,
    })
}

fn stdin_prompt() -> Result<String, Failure> {
    if io::stdin().is_terminal() {
        return Err(Failure::new("there is no prompt")
            .with_param("prompt")
            .with_hint("give it as an argument, by --messages FILE, or on stdin"));
    }
    let prompt = read_text(Path::new("-"), "the prompt")?;
    if prompt.trim().is_empty() {
        return Err(Failure::new("the prompt on stdin is empty").with_param("prompt"));
    }
    Ok(prompt.trim_end_matches(['\n', '\r']).to_owned())
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Reads a file, or stdin for `-`, as UTF-8.
pub(crate) fn read_text(path: &Path, what: &str) -> Result<String, Failure> {
    let text = String::from_utf8(read_bytes(path, what)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{what}: {} is not UTF-8 at byte {at}", shown(path))).with_param(what)
    })?;
    // Editors on Windows begin files with it.
    match text.strip_prefix('\u{feff}') {
        Some(rest) => Ok(rest.to_owned()),
        None => Ok(text),
    }
}

/// Reads a file, or stdin for `-`.
pub(crate) fn read_bytes(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let fail = |kind: ErrorKind, problem: String| {
        Failure::of(kind, format!("{what}: {} {problem}", shown(path))).with_param(what)
    };
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin()
            .lock()
            .take(MAX_INPUT_BYTES + 1)
            .read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| fail(ErrorKind::Io, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(fail(
            ErrorKind::BadRequest,
            format!("is larger than {MAX_INPUT_BYTES} bytes"),
        ));
    }
    Ok(bytes)
}

/// An array, or an object that holds it under this name.
fn list_of(text: &str, name: &str, flag: &str, from: &str) -> Result<String, Failure> {
    let fail = |problem: String| {
        Failure::new(format!("--{flag}: {from} {problem}")).with_param(format!("--{flag}"))
    };
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| fail(format!("is not JSON: {error}")))?;
    if raw.get().starts_with('[') {
        return Ok(raw.get().to_owned());
    }
    let wrapped: Option<std::collections::HashMap<String, &RawValue>> =
        serde_json::from_str(text).ok();
    let inner = wrapped.and_then(|fields| fields.get(name).map(|list| list.get().to_owned()));
    inner.ok_or_else(|| {
        fail(format!(
            "must hold a JSON array, or an object with the array `{name}`"
        ))
    })
}

fn parse_messages(text: &str, from: &str) -> Result<Vec<Message>, Failure> {
    let list = list_of(text, "messages", "messages", from)?;
    let body = format!("{{\"messages\": {list}}}");
    let request = GenerateRequest::from_json(body.as_bytes());
    Ok(request
        .map_err(|fault| blame(&fault, "messages", from))?
        .messages)
}

/// Reads the file of tools, if there is one, and what may be called.
pub(crate) fn read_tools(
    file: Option<&Path>,
    choice: Option<&str>,
) -> Result<(Vec<ToolSpec>, ToolChoice), Failure> {
    let mut tools = Vec::new();
    if let Some(path) = file {
        let from = shown(path);
        let list = list_of(&read_text(path, "--tools")?, "tools", "tools", &from)?;
        let body = format!("{{\"messages\": [{{\"role\": \"user\"}}], \"tools\": {list}}}");
        let request = GenerateRequest::from_json(body.as_bytes());
        tools = request
            .map_err(|fault| blame(&fault, "tools", &from))?
            .tools;
    }
    let choice = match choice {
        None | Some("auto") => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("required") => ToolChoice::Required,
        Some(name) => ToolChoice::Named(name.to_owned()),
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
        return Err(Failure::new(format!(
            "--tool-choice: unknown tool `{name}`, allowed: `auto`, `none`, `required` or one of the offered tools: {offered}"
        ))
        .with_param("--tool-choice"));
    }
    Ok((tools, choice))
}

fn blame(fault: &BadRequest, flag: &str, from: &str) -> Failure {
    Failure::new(format!("--{flag}: {from}: {fault}")).with_param(fault.param.clone())
}
