//! Recorded exchanges of real servers, replayed: a folder of captures, or one of such folders.
//!
//! `NAME.json` holds `request` (`method`, `path`, `body`) and `response` (`status`,
//! `content_type`, and `body`, `text` or `body_file`, the raw event stream). `NAME-stream` is
//! the streamed twin of `NAME`.
//!
//! A turn passes if the client's message is the one that the server's own fields tell, read
//! here without our decoders; text that still holds markup must at least be kept. Twins must
//! give one message. Where the server's twins tell two, that is reported and not failed:
//! nothing is invented to make them alike.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use twopass_core::chat::{Reply, StopReason};
use twopass_core::text::{JsonLimits, decode_arguments};
use twopass_provider::{CallOptions, Delivery, ErrorKind, ProviderError};
use twopass_replay::{Answer, Framing, Pace, Server};
use twopass_wire::completions::{self, Completion};
use twopass_wire::fault::Fault;
use twopass_wire::models::decode_models;
use twopass_wire::sse::{Decoder, DecoderOptions};

use crate::Verdict;
use crate::case::{choice_of, tools_of};
use crate::matchers::{same, shorten};
use crate::ops::{Format, message_of, provider, runtime};

/// What became of each capture, by folder and name, and what is worth a look.
pub(crate) struct Report {
    pub(crate) verdicts: Vec<(String, Verdict)>,
    pub(crate) notes: Vec<String>,
}

/// Replays every capture below `folder`.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn run(folder: &Path) -> Result<Report, String> {
    let mut report = Report {
        verdicts: Vec::new(),
        notes: Vec::new(),
    };
    let mut folders = vec![folder.to_owned()];
    folders.extend(entries(folder)?.into_iter().filter(|path| path.is_dir()));
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        run_folder(&folder, &name, &mut report)?;
    }
    Ok(report)
}

fn run_folder(folder: &Path, prefix: &str, report: &mut Report) -> Result<(), String> {
    let mut seen: BTreeMap<String, (Capture, Seen)> = BTreeMap::new();
    for path in entries(folder)? {
        let is_capture = path.extension().is_some_and(|end| end == "json");
        if !is_capture || path.ends_with("index.json") {
            continue;
        }
        let capture = Capture::load(&path)?;
        let name = format!("{prefix}/{}", capture.name);
        match replay(&capture) {
            Ok(Some(message)) => {
                report.verdicts.push((name, Verdict::Passed));
                seen.insert(capture.name.clone(), (capture, message));
            }
            Ok(None) => report.verdicts.push((
                name,
                Verdict::Skipped {
                    op: capture.path.clone(),
                    reason: "no client of ours asks for it".to_owned(),
                },
            )),
            Err(why) => report.verdicts.push((name, Verdict::Failed(why))),
        }
    }
    for (name, (stream, streamed)) in &seen {
        let twin = name.strip_suffix("-stream").and_then(|twin| seen.get(twin));
        let Some((whole, message)) = twin else {
            continue;
        };
        let name = format!("{prefix}/{name} as its twin");
        let difference = format!(
            "whole {}, streamed {}",
            shorten(&message.0.to_string()),
            shorten(&streamed.0.to_string())
        );
        if same(&message.0, &streamed.0) {
            report.verdicts.push((name, Verdict::Passed));
        } else if same(&essence(&whole.own()), &essence(&stream.own())) {
            report.verdicts.push((name, Verdict::Failed(difference)));
        } else {
            report.notes.push(format!(
                "{name}: the server tells two messages: {difference}"
            ));
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let fail = |error: std::io::Error| format!("cannot read `{}`: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(fail)?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(fail)?;
    paths.sort();
    Ok(paths)
}

/// One recorded exchange.
struct Capture {
    name: String,
    path: String,
    request: Value,
    status: u16,
    content_type: String,
    body: Vec<u8>,
    is_stream: bool,
}

/// What a reader made of a capture, in a form that twins share.
struct Seen(Value);

impl Capture {
    fn load(path: &Path) -> Result<Self, String> {
        let fail = |why: String| format!("`{}`: {why}", path.display());
        let read = |path: &Path| fs::read(path).map_err(|error| fail(error.to_string()));
        let capture: Value = serde_json::from_slice(&read(path)?)
            .map_err(|error| fail(format!("is not JSON: {error}")))?;
        let response = &capture["response"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (body, is_stream) = match (&response["body_file"], &response["body"]) {
            (Value::String(name), _) => (read(&path.with_file_name(name))?, true),
            (_, Value::Null) => (text(&response["text"]).into_bytes(), false),
            (_, body) => (body.to_string().into_bytes(), false),
        };
        let status = response["status"].as_u64();
        let status = status.and_then(|status| u16::try_from(status).ok());
        Ok(Self {
            name: text(&capture["name"]),
            path: text(&capture["request"]["path"]),
            request: capture["request"]["body"].clone(),
            status: status.ok_or_else(|| fail("has no status".to_owned()))?,
            content_type: text(&response["content_type"]),
            body,
            is_stream,
        })
    }

    fn format(&self) -> Option<Format> {
        Some(match self.path.as_str() {
            "/v1/chat/completions" => Format::Chat,
            "/v1/responses" => Format::Responses,
            "/v1/messages" => Format::Anthropic,
            "/api/chat" => Format::Ollama,
            _ => return None,
        })
    }

    /// The JSON objects of the answer.
    fn objects(&self) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.body);
        if !self.is_stream {
            return serde_json::from_str(&text).into_iter().collect();
        }
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data.trim()).ok())
            .collect()
    }

    /// The message that the server's own fields tell.
    fn own(&self) -> Own {
        let mut own = Own::default();
        for object in self.objects() {
            own.take(&object);
        }
        own
    }
}

/// Reads a capture as our client would; `None` if none would. `Err` tells what is wrong.
fn replay(capture: &Capture) -> Result<Option<Seen>, String> {
    if let Some(format) = capture.format() {
        let (reply, was_sent) = runtime()?.block_on(turn(capture, format))?;
        return match (reply, capture.status) {
            // What no service could carry out is refused before it is sent.
            (Err(error), 400..) if !was_sent && error.kind() == ErrorKind::BadRequest => {
                Ok(Some(Seen(json!(error.kind().as_str()))))
            }
            (Err(error), 400..) => {
                let refused = error.status() == Some(capture.status);
                match refused && !error.message().is_empty() {
                    true => Ok(Some(Seen(json!(error.kind().as_str())))),
                    false => Err(format!("the refusal is read as {error:?}")),
                }
            }
            (Err(error), _) => Err(format!("{}: {error}", error.kind().as_str())),
            (Ok(_), 400..) => Err("a refusal is read as an answer".to_owned()),
            (Ok(reply), _) => {
                capture.own().is_told_by(&reply)?;
                Ok(Some(Seen(essence(&Own::of(&reply)))))
            }
        };
    }
    match capture.path.as_str() {
        _ if capture.status >= 400 => {
            let fault = Fault::from_response(capture.status, [], &capture.body, 0.0);
            Ok(Some(Seen(json!(fault.kind.as_str()))))
        }
        "/v1/completions" | "/completion" => completion(capture).map(Some),
        "/v1/models" => {
            let models = decode_models(&capture.body).map_err(|fault| fault.to_string())?;
            match models.is_empty() {
                true => Err("no model is listed".to_owned()),
                false => Ok(Some(Seen(json!(models.len())))),
            }
        }
        "/tokenize" => {
            let tokens = completions::decode_tokens(&capture.body);
            let tokens = tokens.map_err(|fault| fault.to_string())?;
            Ok(Some(Seen(json!(tokens.ids))))
        }
        "/apply-template" => {
            let prompt = completions::decode_prompt(&capture.body);
            Ok(Some(Seen(json!(prompt.map_err(|f| f.to_string())?))))
        }
        "/props" => {
            let size = completions::decode_context_tokens(&capture.body);
            Ok(Some(Seen(json!(size.map_err(|f| f.to_string())?))))
        }
        _ => Ok(None),
    }
}

type Turned = Result<Reply, ProviderError>;

/// The turn through the facade, against a server that plays the recorded bytes.
/// The reply, and whether the request left.
async fn turn(capture: &Capture, format: Format) -> Result<(Turned, bool), String> {
    let mut answer = Answer::new(capture.status, &capture.content_type, capture.body.clone());
    if capture.is_stream {
        answer = answer.framed(Framing::Chunked);
    }
    let server = Server::start(vec![answer], Pace::Whole).await;
    let server = server.map_err(|error| error.to_string())?;
    let entry = json!({
        "name": "capture", "provider_backend": format.backend(), "model_name": "m",
        "on_error": "raise", "tool_parser": "hermes", "api_config": {"base_url": server.url(), "max_retries": 0},
    });
    let provider = provider(&entry).map_err(|error| error.to_string())?;
    let messages = capture.request["messages"].as_array().into_iter().flatten();
    let mut messages: Vec<_> = messages.map(|turn| message_of(format, turn)).collect();
    if messages.is_empty() {
        messages.push(message_of(
            format,
            &json!({"role": "user", "content": "Hi"}),
        ));
    }
    let options = CallOptions {
        delivery: match capture.is_stream {
            true => Delivery::Stream,
            false => Delivery::Whole,
        },
        ..CallOptions::default()
    };
    let tools = tools_of(&capture.request);
    let tools = tools.iter().flat_map(|tools| tools.specs().cloned());
    let client = provider
        .client()
        .with_options(options)
        .bind_tools(tools.collect(), choice_of(&capture.request["tool_choice"]));
    let reply = match client.stream(messages).await {
        Ok(stream) => stream.collect().await,
        Err(error) => Err(error),
    };
    Ok((reply, !server.requests().is_empty()))
}

/// A raw completion: its text must be the first choice's, byte for byte.
fn completion(capture: &Capture) -> Result<Seen, String> {
    let read = match capture.is_stream {
        false => completions::decode_reply(&capture.body),
        true => stream_completion(&capture.body),
    };
    let read: Completion = read.map_err(|fault| fault.to_string())?;
    let mut told = String::new();
    for object in capture.objects() {
        let choice = object.pointer("/choices/0").unwrap_or(&object);
        let is_first = choice["index"].as_u64().unwrap_or(0) == 0;
        let text = choice["text"]
            .as_str()
            .or_else(|| choice["content"].as_str());
        told.push_str(text.filter(|_| is_first).unwrap_or_default());
    }
    if read.text != told {
        return Err(format!("expected `{told}`, got `{}`", read.text));
    }
    Ok(Seen(json!([read.text, read.stop_reason.as_str()])))
}

fn stream_completion(body: &[u8]) -> Result<Completion, Fault> {
    let mut sse = Decoder::new(DecoderOptions::default());
    let mut decoder = completions::StreamDecoder::new();
    let mut events = Vec::new();
    sse.push(body, &mut events)
        .map_err(|error| Fault::not_json(error.to_string().as_bytes()))?;
    sse.finish(&mut events);
    for event in &events {
        decoder.push(event, &mut Vec::new())?;
    }
    decoder.finish()
}

/// A message as plain fields, whoever read it.
#[derive(Debug, Default)]
struct Own {
    content: String,
    thinking: String,
    /// Name and arguments.
    calls: Vec<(String, String)>,
    length: bool,
}

impl Own {
    fn of(reply: &Reply) -> Self {
        let calls = reply.tool_calls.iter();
        let calls = calls.map(|call| (call.name.clone(), call.arguments.as_text().to_owned()));
        let invalid = reply.invalid_tool_calls.iter();
        let invalid = invalid.map(|call| {
            (
                call.name.clone().unwrap_or_default(),
                call.arguments.clone(),
            )
        });
        Self {
            content: reply.content.clone(),
            thinking: reply.reasoning.clone(),
            calls: calls.chain(invalid).collect(),
            length: reply.stop_reason == StopReason::Length,
        }
    }

    /// Adds a whole answer or a chunk of one.
    fn take(&mut self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let choices = object["choices"].as_array().into_iter().flatten();
        for choice in choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            let message = choice.get("message").or_else(|| choice.get("delta"));
            let message = message.unwrap_or(&Value::Null);
            self.content.push_str(&text(&message["content"]));
            let thinking = text(&message["reasoning"]);
            self.thinking.push_str(&match thinking.is_empty() {
                true => text(&message["reasoning_content"]),
                false => thinking,
            });
            for (at, call) in message["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                let at = call["index"]
                    .as_u64()
                    .and_then(|at| usize::try_from(at).ok())
                    .unwrap_or(at);
                if self.calls.len() <= at {
                    self.calls.resize(at + 1, Default::default());
                }
                self.calls[at].0.push_str(&text(&call["function"]["name"]));
                self.calls[at]
                    .1
                    .push_str(&text(&call["function"]["arguments"]));
            }
            self.length |= choice["finish_reason"] == "length";
        }
        self.length |= object["stop_reason"] == "max_tokens";
        for block in object["content"].as_array().into_iter().flatten() {
            self.content.push_str(&text(&block["text"]));
            self.thinking.push_str(&text(&block["thinking"]));
        }
        for item in object["output"].as_array().into_iter().flatten() {
            for part in item["content"].as_array().into_iter().flatten() {
                match item["type"].as_str() {
                    Some("reasoning") => self.thinking.push_str(&text(&part["text"])),
                    _ => self.content.push_str(&text(&part["text"])),
                }
            }
        }
    }

    /// `Err` tells what of this message the reply does not tell.
    fn is_told_by(&self, reply: &Reply) -> Result<(), String> {
        let got = Self::of(reply);
        let differs = |what: &str, told: &str, got: &str| {
            Err(format!(
                "{what}: the server tells `{}`, got `{}`",
                shorten(told),
                shorten(got)
            ))
        };
        if self.length != got.length {
            return differs("cut", &self.length.to_string(), &got.length.to_string());
        }
        if holds_markup(&self.content) {
            // The turn parser has read it: every word must be somewhere.
            let all = format!("{} {} {:?}", got.thinking, got.content, got.calls);
            let words = self.content.split(|c: char| !c.is_alphanumeric());
            let lost = words
                .filter(|word| word.chars().count() > 2 && !MARKUP_WORDS.contains(word))
                .find(|word| !all.contains(*word));
            return match lost {
                Some(word) => differs("text", word, &all),
                None => Ok(()),
            };
        }
        if self.content.trim() != got.content.trim() {
            return differs("content", &self.content, &got.content);
        }
        if self.thinking.trim() != got.thinking.trim() {
            return differs("thinking", &self.thinking, &got.thinking);
        }
        if !same(&essence(self)["calls"], &essence(&got)["calls"]) {
            return differs(
                "calls",
                &format!("{:?}", self.calls),
                &format!("{:?}", got.calls),
            );
        }
        Ok(())
    }
}

/// Words of tags and calls that are framing, not text.
const MARKUP_WORDS: &[&str] = &[
    "think",
    "thinking",
    "tool_call",
    "tool",
    "call",
    "name",
    "arguments",
    "json",
];

fn holds_markup(text: &str) -> bool {
    ["<think", "</think", "<tool_call>"]
        .iter()
        .any(|tag| text.contains(tag))
}

/// What must be alike in twins: ids and times differ. Arguments that a server's parser has
/// damaged (text after the object) are read as rule 10 says.
fn essence(own: &Own) -> Value {
    let arguments = |text: &str| match decode_arguments(text, &JsonLimits::default()) {
        Ok(decoded) => Value::Object(decoded.object),
        Err(_) => json!(text),
    };
    let calls = own
        .calls
        .iter()
        .map(|(name, text)| json!([name, arguments(text)]));
    json!({
        "content": own.content.trim(), "thinking": own.thinking.trim(),
        "calls": calls.collect::<Vec<Value>>(), "length": own.length,
    })
}
