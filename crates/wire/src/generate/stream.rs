use serde_json::json;
use twopass_core::chat::{Event, Reply, TokenLogprob};

use super::InvalidReply;
use super::reply::{decode_call, decode_reply, encode_reply};
use super::request::encode_call;
use crate::error::ErrorBody;
use crate::json::{Fields, Object};
use crate::logprobs;
use crate::sse::{SseEvent, encode_event};

/// Writes a turn's events as server-sent events: the server side.
///
/// Stateless save for block ends and the tokens of the next text: the stream names what changed, `done` repeats all of it.
/// Argument deltas, rejected calls, diagnostics and pass reports are not streamed; `done`
/// carries them.
#[derive(Debug, Default)]
pub struct StreamEncoder {
    /// A think block ended: the next reasoning begins on a new line (row C5).
    block_ended: bool,
    /// Of the text that comes next.
    logprobs: Vec<TokenLogprob>,
}

impl StreamEncoder {
    /// An encoder at the start of a turn.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what this event adds to the stream, perhaps nothing.
    pub fn encode(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::ReasoningDelta(text) => {
                let text = if std::mem::take(&mut self.block_ended) {
                    json!({"text": format!("\n{text}")})
                } else {
                    json!({"text": text})
                };
                encode_event(Some("thinking"), &text.to_string(), out);
            }
            Event::ReasoningBlockEnd => self.block_ended = true,
            Event::Logprobs(tokens) => self.logprobs.extend_from_slice(tokens),
            Event::TextDelta(text) => {
                let mut object = Object::default();
                object.text("text", text);
                let tokens = std::mem::take(&mut self.logprobs);
                if !tokens.is_empty() {
                    object.raw("logprobs", &logprobs::chat_json(&tokens));
                }
                encode_event(Some("text"), &object.finish(), out);
            }
            Event::Reclassified => encode_event(Some("reclassified"), "{}", out),
            Event::CallFinished { call, .. } => {
                encode_event(Some("tool_call"), &encode_call(call), out)
            }
            _ => {}
        }
    }

    /// Appends the last event: the whole reply.
    pub fn encode_done(&mut self, reply: &Reply, out: &mut String) {
        encode_event(Some("done"), &encode_reply(reply), out);
    }

    /// Appends an error as the last event of a turn that failed.
    pub fn encode_error(&mut self, error: &ErrorBody, out: &mut String) {
        encode_event(Some("error"), &error.to_json(), out);
    }
}

/// What one server-sent event says.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// A step of the turn.
    Event(Event),
    /// The end of the turn.
    Done(Box<Reply>),
    /// The turn failed.
    Error(ErrorBody),
}

/// Reads a turn's events back: the client side.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    n_calls: usize,
}

impl StreamDecoder {
    /// A decoder at the start of a turn.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one server-sent event and appends what it says. Unknown events pass; an object
    /// with an `error` member is an error whatever its event is called (case rule 17).
    ///
    /// # Errors
    /// The data of a known event is not what the contract says.
    pub fn decode(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<StreamItem>,
    ) -> Result<(), InvalidReply> {
        let data = event.data.as_str();
        match event.event.as_str() {
            "thinking" => {
                out.extend(delta(data)?.map(|text| StreamItem::Event(Event::ReasoningDelta(text))))
            }
            "text" => {
                let Some(text) = delta(data)? else {
                    return Ok(());
                };
                let fields = Fields::read("delta", data).ok();
                let tokens = fields.map_or_else(Vec::new, |fields| logprobs::read_field(&fields));
                if !tokens.is_empty() {
                    out.push(StreamItem::Event(Event::Logprobs(tokens)));
                }
                out.push(StreamItem::Event(Event::TextDelta(text)));
            }
            "reclassified" => out.push(StreamItem::Event(Event::Reclassified)),
            "tool_call" => {
                let call_idx = self.n_calls;
                let call =
                    decode_call("tool_call".to_owned(), data, call_idx).map_err(|fault| {
                        InvalidReply::new(format!("a `tool_call` event is invalid: {fault}"))
                    })?;
                self.n_calls += 1;
                out.push(StreamItem::Event(Event::CallStarted {
                    call_idx,
                    id: call.id.clone(),
                    name: call.name.clone(),
                }));
                out.push(StreamItem::Event(Event::ArgumentsDelta {
                    call_idx,
                    text: call.arguments.as_text().to_owned(),
                }));
                out.push(StreamItem::Event(Event::CallFinished { call_idx, call }));
            }
            "done" => out.push(StreamItem::Done(Box::new(decode_reply(data)?))),
            "error" => out.push(StreamItem::Error(
                ErrorBody::from_json(data.as_bytes()).unwrap_or_default(),
            )),
            _ => {
                if let Ok(fields) = Fields::read("event", data)
                    && fields.raw("error").is_some()
                {
                    out.push(StreamItem::Error(
                        ErrorBody::from_json(data.as_bytes()).unwrap_or_default(),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The text of a `thinking` or `text` event; `None` if it is empty.
fn delta(data: &str) -> Result<Option<String>, InvalidReply> {
    let wrong = |fault| InvalidReply::new(format!("a delta event is invalid: {fault}"));
    let fields = Fields::read("delta", data).map_err(wrong)?;
    Ok(fields
        .text("text")
        .map_err(wrong)?
        .filter(|text| !text.is_empty()))
}
