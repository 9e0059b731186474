//! The content of messages in the family of Chat Completions: parts, and what some put
//! among them.

use serde_json::{Value, json};
use twopass_core::chat::{Arguments, BadRequest, Media, MediaSource, Message, Part, ToolCall};

use crate::calls::read_call_arguments;
use crate::json::{Fields, Lenient, brief, string};

/// What the content of one message held.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) parts: Vec<Part>,
    /// Text of thinking parts, joined by a newline.
    pub(crate) reasoning: String,
    /// Calls that stood among the parts (row H4).
    pub(crate) calls: Vec<ToolCall>,
    /// Tool results that stood among the parts (row H6).
    pub(crate) results: Vec<Message>,
}

/// Reads a message's content: a string, null, or an array of parts.
///
/// # Errors
/// A part of a kind that we cannot pass on: content is never dropped.
pub(crate) fn read_content(fields: &Fields<'_>, name: &str) -> Result<Content, BadRequest> {
    let mut content = Content::default();
    let Some(raw) = fields.raw(name) else {
        return Ok(content);
    };
    if let Some(text) = string(raw) {
        if !text.is_empty() {
            content.parts.push(Part::Text(text));
        }
        return Ok(content);
    }
    if !raw.starts_with('[') && !raw.starts_with('{') {
        return Err(fields.fault(name, "a string or an array of parts"));
    }
    let items = if raw.starts_with('[') {
        fields.list(name)?
    } else {
        vec![(fields.path_of(name), raw)]
    };
    for (path, item) in items {
        read_part(&path, item, &mut content)?;
    }
    Ok(content)
}

/// Reads a part that is an image, audio or a file.
///
/// # Errors
/// It is none of these, or lacks its data.
pub(crate) fn read_media(path: &str, item: &str) -> Result<Part, BadRequest> {
    let mut content = Content::default();
    read_part(path, item, &mut content)?;
    let found = content.parts.pop();
    let media = found.filter(|part| !matches!(part, Part::Text(_)));
    media.ok_or_else(|| {
        BadRequest::new(
            format!("{path}.type"),
            "must be `text`, `image_url`, `input_audio` or `file`",
        )
    })
}

fn read_part(path: &str, item: &str, content: &mut Content) -> Result<(), BadRequest> {
    if let Some(text) = string(item) {
        content.parts.push(Part::Text(text));
        return Ok(());
    }
    let wrong = |what: &str| BadRequest::new(path, what.to_owned());
    let part = Lenient::read(item).ok_or_else(|| wrong("must be a content part"))?;
    let kind = part.text("type").unwrap_or_else(|| "text".to_owned());
    match kind.as_str() {
        "text" | "input_text" | "output_text" => {
            let text = part
                .raw("text")
                .and_then(string)
                .ok_or_else(|| BadRequest::new(format!("{path}.text"), "must be a string"))?;
            content.parts.push(Part::Text(text));
        }
        "refusal" => content.parts.extend(part.text("refusal").map(Part::Text)),
        "image_url" | "input_image" | "image" => {
            let image =
                read_image(&part).ok_or_else(|| wrong("must hold the image's address or data"))?;
            content.parts.push(Part::Image(image));
        }
        "input_audio" => {
            let audio = part
                .object("input_audio")
                .and_then(|audio| {
                    Some(Media {
                        media_type: audio.text("format").map(|format| format!("audio/{format}")),
                        ..Media::new(MediaSource::Base64(audio.text("data")?))
                    })
                })
                .ok_or_else(|| wrong("must hold the audio's data"))?;
            content.parts.push(Part::Audio(audio));
        }
        "file" | "input_file" => {
            let file = part.object("file");
            let file = read_file(file.as_ref().unwrap_or(&part))
                .ok_or_else(|| wrong("must hold the file's id, address or data"))?;
            content.parts.push(Part::File(file));
        }
        "thinking" | "reasoning" => {
            let text = thinking_text(&part);
            if !text.is_empty() {
                if !content.reasoning.is_empty() {
                    content.reasoning.push('\n');
                }
                content.reasoning.push_str(&text);
            }
        }
        "tool_calls" => {
            for call in part.list("tool_calls") {
                content.calls.extend(read_call(call, content.calls.len()));
            }
        }
        "tool_use" | "tool_call" => content.calls.extend(read_call(item, content.calls.len())),
        "tool_result" => content.results.push(read_result(&part)),
        other => {
            return Err(BadRequest::new(
                format!("{path}.type"),
                format!(
                    "must be `text`, `image_url`, `input_audio` or `file`, got {}",
                    brief(&format!("\"{other}\""))
                ),
            ));
        }
    }
    Ok(())
}

/// The text of a thinking part: a string, or text parts of its own.
pub(crate) fn thinking_text(part: &Lenient<'_>) -> String {
    for name in ["thinking", "text", "reasoning", "content", "summary"] {
        if let Some(text) = part.text(name) {
            return text;
        }
        let pieces: Vec<String> = part
            .list(name)
            .into_iter()
            .filter_map(|item| string(item).or_else(|| Lenient::read(item)?.text("text")))
            .collect();
        if !pieces.is_empty() {
            return pieces.concat();
        }
    }
    String::new()
}

/// Reads a call of any outside shape: OpenAI's wrapping, or flat with `arguments`, `args`
/// or `input`. Arguments that cannot be read become the empty object: a history must go on
/// (case rule 21). A missing id is made from the call's number.
pub(crate) fn read_call(item: &str, call_idx: usize) -> Option<ToolCall> {
    let outer = Lenient::read(item)?;
    let function = outer.object("function");
    let fields = function.as_ref().unwrap_or(&outer);
    let name = fields.text("name").or_else(|| outer.text("name"))?;
    let arguments = ["arguments", "args", "input", "parameters"]
        .iter()
        .find_map(|name| fields.raw(name).or_else(|| outer.raw(name)))
        .unwrap_or("{}");
    let arguments = string(arguments).unwrap_or_else(|| arguments.to_owned());
    let arguments = read_call_arguments(&arguments).map_or_else(
        |_| Arguments::from_object(serde_json::Map::new()),
        |(arguments, _)| arguments,
    );
    Some(ToolCall {
        id: outer
            .text("id")
            .or_else(|| outer.text("call_id"))
            .unwrap_or_else(|| format!("call_{}", call_idx + 1)),
        name,
        arguments,
    })
}

fn read_result(part: &Lenient<'_>) -> Message {
    let text = part
        .text("content")
        .or_else(|| part.raw("content").map(|_| thinking_text(part)))
        .unwrap_or_default();
    let id = part
        .text("tool_use_id")
        .or_else(|| part.text("tool_call_id"))
        .unwrap_or_default();
    Message {
        is_error: part.flag("is_error").unwrap_or(false),
        ..Message::tool_result(id, text)
    }
}

fn read_image(part: &Lenient<'_>) -> Option<Media> {
    let nested = part.object("image_url").or_else(|| part.object("source"));
    let detail = part
        .text("detail")
        .or_else(|| nested.as_ref()?.text("detail"));
    let source = nested
        .as_ref()
        .and_then(|nested| nested.text("url"))
        .or_else(|| part.text("image_url"))
        .or_else(|| part.text("image"))
        .or_else(|| part.text("url"));
    let mut media = match source {
        Some(url) => media_of_url(url),
        None => match part.text("file_id") {
            Some(id) => Media::new(MediaSource::FileId(id)),
            None => read_source(nested.as_ref()?)?,
        },
    };
    media.detail = detail;
    Some(media)
}

/// Anthropic's `source` object.
pub(crate) fn read_source(source: &Lenient<'_>) -> Option<Media> {
    let from = if let Some(data) = source.text("data") {
        MediaSource::Base64(data)
    } else if let Some(id) = source.text("file_id") {
        MediaSource::FileId(id)
    } else {
        return source.text("url").map(media_of_url);
    };
    Some(Media {
        media_type: source.text("media_type"),
        ..Media::new(from)
    })
}

fn read_file(file: &Lenient<'_>) -> Option<Media> {
    let mut media = if let Some(id) = file.text("file_id") {
        Media::new(MediaSource::FileId(id))
    } else if let Some(data) = file.text("file_data") {
        if data.starts_with("data:") {
            media_of_url(data)
        } else {
            Media::new(MediaSource::Base64(data))
        }
    } else {
        media_of_url(file.text("file_url")?)
    };
    media.name = file.text("filename");
    Some(media)
}

/// Media at an address; a `data:` address is taken apart.
pub(crate) fn media_of_url(url: String) -> Media {
    if let Some((head, data)) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(','))
        && let Some(media_type) = head.strip_suffix(";base64")
    {
        return Media {
            media_type: (!media_type.is_empty()).then(|| media_type.to_owned()),
            ..Media::new(MediaSource::Base64(data.to_owned()))
        };
    }
    Media::new(MediaSource::Url(url))
}

/// The address of media; bytes become a `data:` address. `None` for a file id.
pub(crate) fn url_of_media(media: &Media, default_type: &str) -> Option<String> {
    match &media.source {
        MediaSource::Url(url) => Some(url.clone()),
        MediaSource::Base64(data) => {
            let media_type = media.media_type.as_deref().unwrap_or(default_type);
            Some(format!("data:{media_type};base64,{data}"))
        }
        _ => None,
    }
}

/// A part as Chat Completions writes it.
///
/// # Errors
/// The part's kind or source has no form there.
pub(crate) fn encode_part(part: &Part) -> Result<Value, BadRequest> {
    let cannot =
        |what: &str| BadRequest::new("messages", format!("{what} cannot be sent over this wire"));
    match part {
        Part::Text(text) => Ok(json!({"type": "text", "text": text})),
        Part::Image(media) => {
            let url = url_of_media(media, "image/png")
                .ok_or_else(|| cannot("an image that is only a file id"))?;
            let mut image = json!({"url": url});
            if let Some(detail) = &media.detail {
                image["detail"] = detail.clone().into();
            }
            Ok(json!({"type": "image_url", "image_url": image}))
        }
        Part::Audio(media) => match &media.source {
            MediaSource::Base64(data) => {
                let kind = media.media_type.as_deref().unwrap_or("audio/wav");
                let format = kind.strip_prefix("audio/").unwrap_or(kind);
                Ok(json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}))
            }
            _ => Err(cannot("audio that is no data")),
        },
        Part::File(media) => {
            let mut file = serde_json::Map::new();
            if let Some(name) = &media.name {
                file.insert("filename".to_owned(), name.clone().into());
            }
            match &media.source {
                MediaSource::FileId(id) => file.insert("file_id".to_owned(), id.clone().into()),
                _ => file.insert(
                    "file_data".to_owned(),
                    url_of_media(media, "application/pdf").into(),
                ),
            };
            Ok(json!({"type": "file", "file": file}))
        }
        _ => Err(cannot("this kind of content")),
    }
}

/// Content for the wire: one string if it is text only, else an array of parts.
///
/// # Errors
/// See [`encode_part`].
pub(crate) fn encode_content(parts: &[Part]) -> Result<Value, BadRequest> {
    let is_text = parts.iter().all(|part| matches!(part, Part::Text(_)));
    if is_text {
        let text: String = parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        return Ok(text.into());
    }
    parts
        .iter()
        .map(encode_part)
        .collect::<Result<_, _>>()
        .map(Value::Array)
}

/// The text of a failed result for wires that have no mark for it (row H8).
pub(crate) fn error_text(text: &str) -> String {
    if text.trim_start().to_ascii_lowercase().starts_with("error") {
        text.to_owned()
    } else {
        format!("Error: {text}")
    }
}
