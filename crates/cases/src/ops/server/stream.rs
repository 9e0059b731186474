//! Properties of an answer's event stream, whatever face it came through.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::matchers::{check, same};

/// One event: its name (`message` if none was given) and its data.
struct SentEvent {
    name: String,
    data: String,
    /// Null if the data is no JSON.
    json: Value,
}

/// What the events say together.
#[derive(Default)]
struct Told {
    content: String,
    reasoning: String,
    finish_reason: Option<String>,
    calls: Vec<Call>,
    errors: Vec<Value>,
}

/// A call, put together from its pieces.
struct Call {
    index: Value,
    first: Value,
    arguments: String,
}

/// `Err` tells the first property that does not hold.
pub(super) fn meets(wanted: &Value, body: &[u8]) -> Result<(), String> {
    let events = read(&String::from_utf8_lossy(body))?;
    let mut told = Told::default();
    for event in &events {
        told.take(event);
    }
    for (key, wanted) in wanted.as_object().into_iter().flatten() {
        one(key, wanted, &events, &told).map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(())
}

fn read(text: &str) -> Result<Vec<SentEvent>, String> {
    let mut events = Vec::new();
    for block in text.split("\n\n") {
        let (mut name, mut data) = ("message", Vec::new());
        for line in block.lines() {
            match line.split_once(':') {
                Some(("event", value)) => name = value.trim_start(),
                Some(("data", value)) => data.push(value.strip_prefix(' ').unwrap_or(value)),
                Some(("", _)) => {}
                _ => return Err(format!("no line of an event stream: {line:?}")),
            }
        }
        if !data.is_empty() {
            let data = data.join("\n");
            events.push(SentEvent {
                name: name.to_owned(),
                json: serde_json::from_str(&data).unwrap_or_default(),
                data,
            });
        }
    }
    Ok(events)
}

fn one(key: &str, wanted: &Value, events: &[SentEvent], told: &Told) -> Result<(), String> {
    match told.meets(key, wanted) {
        Some(judged) => judged,
        None => events_meet(key, wanted, events),
    }
}

/// Properties of the events themselves.
fn events_meet(key: &str, wanted: &Value, events: &[SentEvent]) -> Result<(), String> {
    let chunks = || events.iter().filter(|event| event.json.is_object());
    match key {
        "every_chunk_same" => each(wanted, |field| {
            let mut values = chunks().map(|event| &event.json[field]);
            let first = values.next().filter(|first| !first.is_null());
            first.is_some_and(|first| values.all(|value| same(first, value)))
        }),
        "every_chunk_has" => each(wanted, |field| {
            chunks().all(|event| pointed(&event.json, field).is_some())
        }),
        "object" => match chunks().find(|event| !same(&event.json["object"], wanted)) {
            Some(event) => Err(format!("got {}", event.data)),
            None => Ok(()),
        },
        "usage_chunk" => {
            let mut with_usage = chunks().filter(|event| event.json["usage"].is_object());
            let last = with_usage.next_back().ok_or("there is none")?;
            check(wanted, Some(&last.json), &last.json)
        }
        "reasoning_fields_per_chunk_max" => {
            let most = chunks().map(reasoning_fields).max().unwrap_or(0);
            check(&json!({"$lte": wanted}), Some(&json!(most)), wanted)
        }
        "first" => check(wanted, events.first().map(shown).as_ref(), wanted),
        "last" => check(wanted, events.last().map(shown).as_ref(), wanted),
        "terminal" => {
            let last = events.iter().rev().find(|event| event.data != "[DONE]");
            check(wanted, last.map(|event| json!(event.name)).as_ref(), wanted)
        }
        "event_order" => {
            let mut names = events.iter().map(|event| event.name.as_str());
            each(wanted, |wanted| names.any(|name| name == wanted))
        }
        "events" => {
            let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
            check(wanted, Some(&json!(names)), wanted)
        }
        "response_created_has" => {
            let created = events.iter().find(|event| event.name == "response.created");
            let response = created.map(|event| &event.json["response"]);
            let response = response.ok_or("there is no `response.created`")?;
            each(wanted, |field| {
                pointed(response, field).is_some_and(|value| !value.is_null())
            })
        }
        _ => Err("this adapter does not know it".to_owned()),
    }
}

/// How many spellings of reasoning a piece has.
fn reasoning_fields(event: &SentEvent) -> usize {
    let fields = [
        "reasoning_content",
        "reasoning",
        "reasoning_text",
        "thinking",
    ];
    let delta = event.json.pointer("/choices/0/delta");
    let has = |field: &&&str| delta.is_some_and(|delta| delta.get(**field).is_some());
    fields.iter().filter(has).count()
}

/// Data as a case writes it: JSON, or text where it is none.
fn shown(event: &SentEvent) -> Value {
    match &event.json {
        Value::Null => json!(event.data),
        json => json.clone(),
    }
}

/// The value at a path of names with points between them.
fn pointed<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .try_fold(value, |value, name| value.get(name))
}

/// Holds for every text, in order.
fn each(texts: &Value, mut holds: impl FnMut(&str) -> bool) -> Result<(), String> {
    let texts = match texts {
        Value::Array(texts) => texts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut texts = texts.iter().filter_map(Value::as_str);
    match texts.find(|text| !holds(text)) {
        Some(text) => Err(format!("not so for `{text}`")),
        None => Ok(()),
    }
}

/// Texts are compared without the space around them.
fn text_is(wanted: &Value, got: &str) -> Result<(), String> {
    match wanted {
        Value::String(text) if text.trim() == got.trim() => Ok(()),
        Value::String(text) => Err(format!("expected {text:?}, got {got:?}")),
        matcher => check(matcher, Some(&json!(got)), matcher),
    }
}

fn error_meets(wanted: &Value, error: &Value) -> Result<(), String> {
    for (key, wanted) in wanted.as_object().into_iter().flatten() {
        let message = error["message"].as_str().unwrap_or_default();
        match key.as_str() {
            "message_contains" => each(wanted, |text| message.contains(text)),
            key => check(wanted, error.get(key), error),
        }
        .map_err(|why| format!("{key}: {why} in {error}"))?;
    }
    Ok(())
}

impl Told {
    /// Judges a property of what the events say together; `None` if it is none.
    fn meets(&self, key: &str, wanted: &Value) -> Option<Result<(), String>> {
        let (content, reasoning) = (&self.content, &self.reasoning);
        let is = |value: Value| check(wanted, Some(&value), wanted);
        Some(match key {
            "content" => text_is(wanted, content),
            "reasoning" => text_is(wanted, reasoning),
            "content_contains" => each(wanted, |text| content.contains(text)),
            "content_not_contains" => each(wanted, |text| !content.contains(text)),
            "reasoning_contains" => each(wanted, |text| reasoning.contains(text)),
            "reasoning_not_contains" => each(wanted, |text| !reasoning.contains(text)),
            "finish_reason" => is(json!(self.finish_reason)),
            "no_finish_reason" => is(json!(self.finish_reason.is_none())),
            "tool_deltas" => self.calls_meet(wanted),
            "no_error_event" => is(json!(self.errors.is_empty())),
            "error_event" => match self.errors.first() {
                Some(error) => error_meets(wanted, error),
                None => Err("there is none".to_owned()),
            },
            _ => return None,
        })
    }

    fn take(&mut self, event: &SentEvent) {
        let json = &event.json;
        if json["error"].is_object() || event.name == "error" {
            self.errors.push(json["error"].clone());
            return;
        }
        match event.name.as_str() {
            "message" => self.take_chunk(json),
            "text" => push(&mut self.content, &json["text"]),
            "thinking" => push(&mut self.reasoning, &json["text"]),
            "reclassified" => {
                let text = std::mem::take(&mut self.content);
                self.reasoning.push_str(&text);
            }
            "done" => self.finish(&json["finish_reason"]),
            "content_block_start" | "content_block_delta" | "message_delta" => {
                self.take_block(json);
            }
            name => self.take_response(name, json),
        }
    }

    /// Chat Completions.
    fn take_chunk(&mut self, chunk: &Value) {
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        push(&mut self.content, &delta["content"]);
        let reasoning = ["reasoning_content", "reasoning"];
        if let Some(field) = reasoning.iter().find(|field| delta[**field].is_string()) {
            push(&mut self.reasoning, &delta[*field]);
        }
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            self.take_call(&piece["index"], piece, &piece["function"]["arguments"]);
        }
        self.finish(&choice["finish_reason"]);
    }

    /// Anthropic Messages.
    fn take_block(&mut self, json: &Value) {
        let delta = &json["delta"];
        push(&mut self.content, &delta["text"]);
        push(&mut self.reasoning, &delta["thinking"]);
        if json["content_block"]["type"] == "tool_use" {
            self.take_call(&json["index"], &json["content_block"], &Value::Null);
        }
        if delta["partial_json"].is_string() {
            self.take_call(&json["index"], json, &delta["partial_json"]);
        }
        self.finish(&delta["stop_reason"]);
    }

    /// The Responses API.
    fn take_response(&mut self, name: &str, json: &Value) {
        let index = &json["output_index"];
        match name {
            "response.output_text.delta" => push(&mut self.content, &json["delta"]),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                push(&mut self.reasoning, &json["delta"]);
            }
            "response.output_item.added" if json["item"]["type"] == "function_call" => {
                self.take_call(index, &json["item"], &Value::Null);
            }
            "response.function_call_arguments.delta" => {
                self.take_call(index, json, &json["delta"]);
            }
            "response.completed" | "response.incomplete" => {
                self.finish(&json["response"]["status"]);
            }
            "response.failed" => self.errors.push(json["response"]["error"].clone()),
            _ => {}
        }
    }

    fn take_call(&mut self, index: &Value, piece: &Value, arguments: &Value) {
        let known = self.calls.iter().position(|call| call.index == *index);
        let at = known.unwrap_or_else(|| {
            self.calls.push(Call {
                index: index.clone(),
                first: piece.clone(),
                arguments: String::new(),
            });
            self.calls.len() - 1
        });
        push(&mut self.calls[at].arguments, arguments);
    }

    fn finish(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
    }

    fn calls_meet(&self, wanted: &Value) -> Result<(), String> {
        let calls = &self.calls;
        for (key, wanted) in wanted.as_object().into_iter().flatten() {
            let got = match key.as_str() {
                "count" => json!(calls.len()),
                "index_is_integer" => json!(calls.iter().all(|call| call.index.is_u64())),
                "ids_unique" => {
                    let ids = calls.iter().filter_map(|call| call.first["id"].as_str());
                    let ids: HashSet<&str> = ids.filter(|id| !id.is_empty()).collect();
                    json!(ids.len() == calls.len())
                }
                "names" => {
                    let names = calls.iter().map(|call| {
                        let name = pointed(&call.first, "function.name");
                        name.or(call.first.get("name")).cloned()
                    });
                    json!(names.collect::<Vec<_>>())
                }
                "arguments_json" => {
                    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
                    let all: Vec<_> = calls.iter().map(|call| read(&call.arguments)).collect();
                    json!(all)
                }
                "first_has" => {
                    for call in calls {
                        each(wanted, |field| pointed(&call.first, field).is_some())?;
                    }
                    continue;
                }
                _ => return Err(format!("this adapter does not know `{key}`")),
            };
            check(wanted, Some(&got), wanted).map_err(|why| format!("{key}: {why}"))?;
        }
        Ok(())
    }
}

fn push(into: &mut String, text: &Value) {
    into.push_str(text.as_str().unwrap_or_default());
}
