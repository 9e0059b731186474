//! Input items from messages and back.

use serde_json::{Value, json};
use twopass_core::chat::{
    BadRequest, Media, MediaSource, Message, OpaqueItem, OpaqueKind, Part, Role, ToolCall,
};

use crate::content::{error_text, read_call, read_content, url_of_media};
use crate::json::{Fields, Lenient, Object, array, string};

/// Writes one message as items.
///
/// # Errors
/// The message holds content that this wire cannot carry.
pub(super) fn encode_message(
    message: &Message,
    keeps_reasoning: bool,
    is_stored: bool,
) -> Result<Vec<String>, BadRequest> {
    match message.role {
        Role::Assistant => Ok(encode_assistant(message, keeps_reasoning, is_stored)),
        Role::Tool => Ok(vec![encode_output(message)?]),
        role => {
            let mut object = Object::default();
            object.text("type", "message");
            object.text("role", role.as_str());
            object.value("content", &encode_content(&message.content)?);
            Ok(vec![object.finish()])
        }
    }
}

/// A past turn. Its own items go back in their order if they still say the same; a
/// reasoning item only if the service can read it: encrypted, or stored there. An item whose
/// reasoning is left out loses its id, since the id would demand it.
fn encode_assistant(message: &Message, keeps_reasoning: bool, is_stored: bool) -> Vec<String> {
    let items: Vec<(&OpaqueItem, Lenient<'_>)> = message
        .provider_items
        .iter()
        .filter(|item| item.kind == OpaqueKind::ResponsesItem)
        .filter_map(|item| Some((item, Lenient::read(&item.json)?)))
        .collect();
    let kind = |item: &Lenient<'_>| item.text("type").unwrap_or_default();
    let text = message.content_text();
    let item_text: String = items
        .iter()
        .filter(|(_, item)| kind(item) == "message")
        .map(|(_, item)| message_text(item))
        .collect();
    let n_calls = items
        .iter()
        .filter(|(_, item)| kind(item) == "function_call")
        .count();
    let has_messages = items.iter().any(|(_, item)| kind(item) == "message");
    let is_unchanged = n_calls == message.tool_calls.len()
        && item_text.trim() == text.trim()
        && (has_messages || text.trim().is_empty());
    let is_readable = |item: &Lenient<'_>| {
        keeps_reasoning && (is_stored || item.text("encrypted_content").is_some())
    };
    let drops_reasoning = items
        .iter()
        .any(|(_, item)| kind(item) == "reasoning" && !is_readable(item));
    let mut out = Vec::new();
    let mut calls = message.tool_calls.iter();
    for (item, fields) in &items {
        match kind(fields).as_str() {
            "reasoning" => {
                out.extend(is_readable(fields).then(|| item.json.clone()));
            }
            "message" if is_unchanged => {
                let text = message_text(fields);
                if drops_reasoning {
                    out.extend(encode_text(&text));
                } else if !text.trim().is_empty() {
                    out.push(item.json.clone());
                }
            }
            "function_call" if is_unchanged => {
                if let Some(call) = calls.next() {
                    let is_same = fields.text("call_id").as_ref() == Some(&call.id)
                        && fields.text("name").as_ref() == Some(&call.name)
                        && fields.text("id").is_none_or(|id| id.starts_with("fc"));
                    out.push(if is_same && !drops_reasoning {
                        item.json.clone()
                    } else {
                        encode_call(call)
                    });
                }
            }
            "message" | "function_call" => {}
            // Items of tools that the provider carried out, if it still knows them.
            _ if is_unchanged && is_stored => out.push(item.json.clone()),
            _ => {}
        }
    }
    if !is_unchanged {
        out.extend(encode_text(&text));
        out.extend(calls.map(encode_call));
    }
    out
}

fn message_text(item: &Lenient<'_>) -> String {
    item.list("content")
        .into_iter()
        .filter_map(|part| {
            let part = Lenient::read(part)?;
            part.text("text").or_else(|| part.text("refusal"))
        })
        .collect()
}

fn encode_text(text: &str) -> Option<String> {
    (!text.trim().is_empty())
        .then(|| json!({"type": "message", "role": "assistant", "content": text}).to_string())
}

fn encode_call(call: &ToolCall) -> String {
    json!({
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments.as_text(),
    })
    .to_string()
}

fn encode_output(message: &Message) -> Result<String, BadRequest> {
    let mut object = Object::default();
    object.text("type", "function_call_output");
    object.text(
        "call_id",
        message.tool_call_id.as_deref().unwrap_or_default(),
    );
    let is_text = message
        .content
        .iter()
        .all(|part| matches!(part, Part::Text(_)));
    if is_text {
        let text = message.content_text();
        let text = if message.is_error {
            error_text(&text)
        } else {
            text
        };
        object.text("output", &text);
    } else {
        object.raw("output", &array(&encode_parts(&message.content)?));
    }
    Ok(object.finish())
}

fn encode_content(parts: &[Part]) -> Result<Value, BadRequest> {
    if let [Part::Text(text)] = parts {
        return Ok(text.clone().into());
    }
    let parts = encode_parts(parts)?;
    serde_json::from_str(&array(&parts))
        .map_err(|error| BadRequest::new("messages", format!("cannot be written: {error}")))
}

fn encode_parts(parts: &[Part]) -> Result<Vec<String>, BadRequest> {
    parts
        .iter()
        .map(|part| encode_part(part).map(|value| value.to_string()))
        .collect()
}

fn encode_part(part: &Part) -> Result<Value, BadRequest> {
    let with = |kind: &str, url_field: &str, media: &Media, default_type: &str| {
        let mut value = json!({"type": kind});
        match &media.source {
            MediaSource::FileId(id) => value["file_id"] = id.clone().into(),
            _ => value[url_field] = url_of_media(media, default_type).into(),
        }
        value
    };
    match part {
        Part::Text(text) => Ok(json!({"type": "input_text", "text": text})),
        Part::Image(media) => {
            let mut value = with("input_image", "image_url", media, "image/png");
            if let Some(detail) = &media.detail {
                value["detail"] = detail.clone().into();
            }
            Ok(value)
        }
        Part::File(media) => {
            let field = match media.source {
                MediaSource::Url(_) => "file_url",
                _ => "file_data",
            };
            let mut value = with("input_file", field, media, "application/pdf");
            if let Some(name) = &media.name {
                value["filename"] = name.clone().into();
            }
            Ok(value)
        }
        _ => Err(BadRequest::new(
            "messages",
            "this wire takes text, images and files only",
        )),
    }
}

/// Reads the items of a request. Items of one assistant turn (reasoning, text, calls) become
/// one message; the items themselves are kept if there are any besides text and calls.
pub(super) fn read_items(
    items: Vec<(String, &str)>,
    out: &mut Vec<Message>,
) -> Result<(), BadRequest> {
    let mut turn = Turn::default();
    for (path, item) in items {
        // Row J6: what is no object is skipped.
        let Some(fields) = Lenient::read(item) else {
            continue;
        };
        let role = fields.text("role");
        let kind = fields.text("type").unwrap_or_else(|| {
            let has_role = role.is_some();
            if has_role { "message" } else { "" }.to_owned()
        });
        match kind.as_str() {
            "message" if role.as_deref() != Some("assistant") => {
                turn.close(out);
                out.push(read_message(path, item)?);
            }
            "function_call_output" => {
                turn.close(out);
                out.push(read_output(path, item, &fields)?);
            }
            "item_reference" => {
                return Err(BadRequest::new(
                    path,
                    "an item reference cannot be resolved here: send the item itself",
                ));
            }
            _ => turn.take(path, item, &kind, &fields)?,
        }
    }
    turn.close(out);
    Ok(())
}

/// An assistant turn while its items are read.
#[derive(Default)]
struct Turn {
    message: Option<Message>,
    items: Vec<OpaqueItem>,
    keeps_items: bool,
}

impl Turn {
    fn take(
        &mut self,
        path: String,
        item: &str,
        kind: &str,
        fields: &Lenient<'_>,
    ) -> Result<(), BadRequest> {
        let message = self.message.get_or_insert_with(|| Message {
            content: Vec::new(),
            ..Message::text(Role::Assistant, "")
        });
        match kind {
            "message" => {
                let fields = Fields::read(path, item)?;
                message
                    .content
                    .extend(read_content(&fields, "content")?.parts);
            }
            "function_call" => {
                let call = read_call(item, message.tool_calls.len())
                    .ok_or_else(|| BadRequest::new(format!("{path}.name"), "must be a string"))?;
                // The result is linked by call id, not by the item's own id.
                let id = fields.text("call_id").unwrap_or_else(|| call.id.clone());
                message.tool_calls.push(ToolCall { id, ..call });
            }
            "reasoning" => {
                self.keeps_items = true;
                let text = reasoning_text(fields).join("\n");
                if !text.is_empty() {
                    match &mut message.reasoning {
                        Some(reasoning) => {
                            reasoning.push('\n');
                            reasoning.push_str(&text);
                        }
                        None => message.reasoning = Some(text),
                    }
                }
            }
            _ => self.keeps_items = true,
        }
        self.items
            .push(OpaqueItem::new(OpaqueKind::ResponsesItem, item));
        Ok(())
    }

    fn close(&mut self, out: &mut Vec<Message>) {
        let turn = std::mem::take(self);
        if let Some(mut message) = turn.message {
            if turn.keeps_items {
                message.provider_items = turn.items;
            }
            out.push(message);
        }
    }
}

/// The texts of a reasoning item: its own words if they are there, else the summary.
pub(super) fn reasoning_text(item: &Lenient<'_>) -> Vec<String> {
    let texts = |name: &str| -> Vec<String> {
        item.list(name)
            .into_iter()
            .filter_map(|part| string(part).or_else(|| Lenient::read(part)?.text("text")))
            .collect()
    };
    let own = texts("content");
    if own.is_empty() {
        texts("summary")
    } else {
        own
    }
}

fn read_message(path: String, item: &str) -> Result<Message, BadRequest> {
    let fields = Fields::read(path, item)?;
    let role = fields
        .text("role")?
        .and_then(|role| Role::from_name(&role))
        .ok_or_else(|| fields.fault("role", "`system`, `developer`, `user` or `assistant`"))?;
    let content = read_content(&fields, "content")?;
    Ok(Message {
        content: content.parts,
        ..Message::text(role, "")
    })
}

fn read_output(path: String, item: &str, fields: &Lenient<'_>) -> Result<Message, BadRequest> {
    let id = fields.text("call_id").ok_or_else(|| {
        BadRequest::new(format!("{path}.call_id"), "must name the call it answers")
    })?;
    let mut result = Message::tool_result(id, "");
    result.content.clear();
    match fields.raw("output") {
        None => {}
        Some(raw) if raw.starts_with('"') || raw.starts_with('[') => {
            let outer = Fields::read(path, item)?;
            result.content = read_content(&outer, "output")?.parts;
        }
        // Some clients send the value itself.
        Some(raw) => result.content.push(Part::Text(raw.to_owned())),
    }
    Ok(result)
}
