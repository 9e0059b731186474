use serde_json::{Map, Value};
use twopass_core::chat::{Event, OpaqueItem, OpaqueKind, Reply, StopReason};

use super::reply::{read_stop, read_usage};
use crate::calls::Fragment;
use crate::content::thinking_text;
use crate::facts::ReasoningField;
use crate::fault::{Fault, FaultKind};
use crate::json::{Lenient, SplitText, string};
use crate::logprobs::read_tokens;
use crate::request::DecodeContext;
use crate::sse::SseEvent;
use crate::turn::Turn;

/// The data that ends a stream.
pub(super) const END_MARKER: &str = "[DONE]";

/// Reads a streamed answer, event by event.
///
/// Followed is the lowest choice of the first chunk that has any, normally 0. Text is handed on raw: it may hold
/// think tags and call markup, and the tokens of `logprobs` are of this raw text. Calls are finished at the end only, so half a call is never
/// handed out (case rule 16).
#[derive(Debug)]
pub struct StreamDecoder {
    turn: Turn,
    choice: Option<u64>,
    stop: Option<StopReason>,
    done: bool,
    /// The field that the reasoning comes in.
    reasoning_field: Option<ReasoningField>,
    details: Vec<Detail>,
    content: SplitText,
    reasoning: SplitText,
}

/// Whether what comes is a piece of the message or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Pieces,
    Whole,
}

/// One entry of `reasoning_details`, put together from its pieces.
#[derive(Debug)]
struct Detail {
    json: String,
    /// The object while pieces may still come; `None` for kinds that come whole.
    /// Pieces were joined to it: `merged` counts, not `json`.
    is_joined: bool,
    merged: Option<Map<String, Value>>,
}

impl StreamDecoder {
    /// A decoder for the answer to a request with this context.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            turn: Turn::new(context),
            choice: None,
            stop: None,
            done: false,
            reasoning_field: None,
            details: Vec::new(),
            content: SplitText::default(),
            reasoning: SplitText::default(),
        }
    }

    /// What came so far, for use after an error; it holds no calls.
    #[must_use]
    pub fn partial(&self) -> &Reply {
        self.turn.partial()
    }

    /// True once the end marker came.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Reads one event and appends what it says.
    ///
    /// # Errors
    /// The event is an error or holds one (case rule 17), or it cannot be read.
    pub fn push(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<(), Fault> {
        let data = event.data.trim();
        if data == END_MARKER {
            self.done = true;
            return Ok(());
        }
        // Case rule 19: some send comments as data.
        if data.is_empty() || data.starts_with(':') || self.done {
            return Ok(());
        }
        if event.event == "error" {
            return Err(Fault::from_json(data).unwrap_or_else(|| Fault::not_json(data.as_bytes())));
        }
        let chunk = Lenient::read(data).ok_or_else(|| Fault::not_json(data.as_bytes()))?;
        self.push_chunk(&chunk, data, out)
    }

    /// Reads a whole answer, also one that came although a stream was asked for. An answer
    /// without finish reason is taken for complete.
    ///
    /// # Errors
    /// The body is not JSON, holds an error, or has no choices.
    pub fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), Fault> {
        let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
        let Some(fields) = Lenient::read(text) else {
            return Err(Fault::not_json(body));
        };
        self.push_chunk(&fields, text, out)?;
        if self.choice.is_none() {
            let has = fields.raw("choices").map_or("no", |_| "empty");
            return Err(Fault::invalid(format!("the answer has {has} `choices`")));
        }
        self.done = true;
        Ok(())
    }

    /// Reads one object, whose text is `data`.
    fn push_chunk(
        &mut self,
        chunk: &Lenient<'_>,
        data: &str,
        out: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        if chunk.raw("error").is_some_and(|error| error != "false")
            || chunk.text("object").as_deref() == Some("error")
        {
            // Case rule 17: whatever its form.
            let unknown = || Fault::new(FaultKind::UpstreamError, "an error of unknown form came");
            return Err(Fault::from_json(data).unwrap_or_else(unknown));
        }
        if let Some(usage) = chunk.object("usage") {
            *self.turn.usage() = read_usage(&usage);
        } else if let Some(usage) = chunk.object("x_groq").and_then(|x| x.object("usage")) {
            *self.turn.usage() = read_usage(&usage);
        }
        let choices = chunk.list("choices").into_iter().filter_map(Lenient::read);
        let choices: Vec<(u64, Lenient<'_>)> = choices
            .map(|choice| (choice.count("index").unwrap_or(0), choice))
            .collect();
        // The order of choices within a chunk tells nothing.
        let first = choices.iter().map(|(index, _)| *index).min();
        self.choice = self.choice.or(first);
        for (index, choice) in &choices {
            if Some(*index) == self.choice {
                self.push_choice(choice, out)?;
            }
        }
        Ok(())
    }

    fn push_choice(&mut self, choice: &Lenient<'_>, out: &mut Vec<Event>) -> Result<(), Fault> {
        if let Some(usage) = choice.object("usage") {
            *self.turn.usage() = read_usage(&usage);
        }
        let logprobs = choice.object("logprobs");
        let tokens = logprobs.map_or_else(Vec::new, |logprobs| read_tokens(&logprobs));
        if !tokens.is_empty() {
            out.push(Event::Logprobs(tokens));
        }
        match choice.object("delta") {
            Some(delta) => self.push_delta(&delta, Form::Pieces, out)?,
            None => {
                let message = choice.object("message").unwrap_or_default();
                self.push_delta(&message, Form::Whole, out)?;
            }
        }
        if let Some(reason) = choice.text("finish_reason") {
            let stop_string = choice
                .text("stop_reason")
                .or_else(|| choice.text("matched_stop"));
            if reason == "error" {
                return Err(choice
                    .raw("error")
                    .and_then(|error| Fault::from_json(&format!("{{\"error\":{error}}}")))
                    .unwrap_or_else(|| {
                        Fault::from_json(
                            "{\"error\":\"the provider ended the turn with an error\"}",
                        )
                        .unwrap_or_else(Fault::truncated)
                    }));
            }
            self.stop = read_stop(&reason, stop_string).or(self.stop.take());
        }
        Ok(())
    }

    fn push_delta(
        &mut self,
        delta: &Lenient<'_>,
        form: Form,
        out: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        self.push_reasoning(delta, out)?;
        match delta.raw("content") {
            None => {}
            Some(raw) if raw.starts_with('"') => {
                let text = self.content.read(raw);
                let text = text
                    .ok_or_else(|| Fault::invalid("`content` is a string that cannot be read"))?;
                self.turn.text(&text, out);
            }
            Some(_) => self.push_parts(delta, out),
        }
        if let Some(refusal) = delta.text("refusal") {
            self.turn.text(&refusal, out);
        }
        let legacy = delta.raw("function_call");
        let calls = delta.list("tool_calls").into_iter().chain(legacy);
        for (place, call) in (0..).zip(calls) {
            self.push_call(call, (form == Form::Whole).then_some(place), out);
        }
        Ok(())
    }

    /// Parts in place of text: what was meant for the reader and what was not (H4).
    fn push_parts(&mut self, delta: &Lenient<'_>, out: &mut Vec<Event>) {
        for item in delta.list("content") {
            if let Some(text) = string(item) {
                self.turn.text(&text, out);
                continue;
            }
            let Some(part) = Lenient::read(item) else {
                continue;
            };
            match part.text("type").as_deref() {
                Some("thinking" | "reasoning") => {
                    self.turn.reasoning(&thinking_text(&part), out);
                }
                Some("tool_calls") => {
                    for call in part.list("tool_calls") {
                        self.push_call(call, None, out);
                    }
                }
                Some("tool_use") => self.push_call(item, None, out),
                Some("refusal") => {
                    self.turn
                        .text(&part.text("refusal").unwrap_or_default(), out);
                }
                _ => self.turn.text(&part.text("text").unwrap_or_default(), out),
            }
        }
    }

    /// `place`: where the call stands in a whole message, in which no two entries are one
    /// call, whatever their ids.
    fn push_call(&mut self, call: &str, place: Option<u64>, out: &mut Vec<Event>) {
        let Some(call) = Lenient::read(call) else {
            return;
        };
        let function = call.object("function");
        let fields = function.as_ref().unwrap_or(&call);
        let arguments = ["arguments", "args", "input"]
            .iter()
            .find_map(|name| fields.raw(name));
        let fragment = Fragment {
            index: place.or_else(|| call.count("index")),
            id: call.text("id"),
            name: fields.text("name"),
            arguments,
            extra: call.raw("extra_content"),
        };
        self.turn.call(fragment, out);
    }

    fn push_reasoning(&mut self, delta: &Lenient<'_>, out: &mut Vec<Event>) -> Result<(), Fault> {
        let mut found = None;
        for field in ReasoningField::ALL {
            let name = field.as_str();
            let Some(raw) = delta.raw(name) else { continue };
            // Row G9: anything but text is refused, not turned into text.
            let text = string(raw).ok_or_else(|| {
                Fault::invalid(format!("`{name}` must be text, got {}", kind(raw)))
            })?;
            if !text.is_empty() && found.is_none() {
                found = Some((field, self.reasoning.read(raw).unwrap_or(text)));
            }
        }
        let details = delta.list("reasoning_details");
        if let Some((field, text)) = found {
            self.reasoning_field.get_or_insert(field);
            self.turn.reasoning(&text, out);
        } else if self.reasoning_field.is_none() {
            for detail in &details {
                if let Some(text) = detail_text(detail) {
                    self.turn.reasoning(&text, out);
                }
            }
        }
        for detail in details {
            self.keep_detail(detail);
        }
        Ok(())
    }

    /// Keeps an entry for replay. Text comes in pieces: a piece that goes on with the entry
    /// before is joined to it, everything else stays as it came.
    fn keep_detail(&mut self, json: &str) {
        let merged = serde_json::from_str::<Map<String, Value>>(json).ok();
        if let Some(new) = &merged
            && let Some(last) = self.details.last_mut()
            && let Some(old) = &mut last.merged
            && joins(old, new)
        {
            for (name, value) in new {
                match (old.get_mut(name), value) {
                    (Some(Value::String(text)), Value::String(more))
                        if matches!(name.as_str(), "text" | "summary") =>
                    {
                        text.push_str(more);
                    }
                    (_, Value::Null) => {}
                    _ => {
                        old.insert(name.clone(), value.clone());
                    }
                }
            }
            last.is_joined = true;
            return;
        }
        self.details.push(Detail {
            json: json.to_owned(),
            is_joined: false,
            merged: merged.filter(|detail| detail_key(detail).is_some()),
        });
    }

    /// Ends the turn.
    ///
    /// # Errors
    /// Neither a finish reason nor the end marker came (case rule 16); what came is in
    /// [`StreamDecoder::partial`].
    pub fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, Fault> {
        if self.stop.is_none() && !self.done {
            return Err(Fault::truncated());
        }
        if let Some(rest) = self.reasoning.rest() {
            self.turn.reasoning(rest.encode_utf8(&mut [0; 4]), out);
        }
        if let Some(rest) = self.content.rest() {
            self.turn.text(rest.encode_utf8(&mut [0; 4]), out);
        }
        for detail in std::mem::take(&mut self.details) {
            // Written once, at the end: entries of thousands of pieces are common.
            let json = match detail.merged {
                Some(merged) if detail.is_joined => Value::Object(merged).to_string(),
                _ => detail.json,
            };
            let item = OpaqueItem::new(OpaqueKind::ReasoningDetail, json);
            self.turn.item(item, out);
        }
        if let Some(field) = self.reasoning_field {
            let name = Value::from(field.as_str()).to_string();
            let item = OpaqueItem::new(OpaqueKind::ReasoningField, name);
            self.turn.item(item, out);
        }
        let stop = self.stop.take().unwrap_or(StopReason::EndTurn);
        Ok(self.turn.finish(stop, out))
    }
}

/// The type and place of an entry whose text comes in pieces.
fn detail_key(detail: &Map<String, Value>) -> Option<(&str, Option<&Value>)> {
    let kind = detail.get("type")?.as_str()?;
    let in_pieces = matches!(kind, "reasoning.text" | "reasoning.summary");
    in_pieces.then(|| (kind, detail.get("index")))
}

fn joins(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let signed = old.get("signature").is_some_and(|value| !value.is_null());
    detail_key(new).is_some() && detail_key(old) == detail_key(new) && !signed
}

fn detail_text(json: &str) -> Option<String> {
    let detail = Lenient::read(json)?;
    match detail.text("type").as_deref() {
        Some("reasoning.text" | "reasoning.summary") => {
            detail.text("text").or_else(|| detail.text("summary"))
        }
        _ => None,
    }
}

fn kind(raw: &str) -> &'static str {
    match raw.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    }
}
