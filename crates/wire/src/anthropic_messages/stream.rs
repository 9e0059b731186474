use serde_json::{Map, Value, json};
use twopass_core::chat::{Event, OpaqueItem, OpaqueKind, Reply, StopReason};

use super::reply::{read_usage, signature_of, stop_reason, usage_json};
use crate::calls::Fragment;
use crate::error::ErrorBody;
use crate::fault::Fault;
use crate::invalid_calls::{INVALID_CALLS, some_invalid_calls};
use crate::json::{Lenient, string};
use crate::linear::Linear;
use crate::openai_chat::read_stop;
use crate::request::{DecodeContext, ReplyMeta};
use crate::sse::{SseEvent, encode_event};
use crate::turn::Turn;

/// Reads a streamed answer, event by event.
///
/// Text is handed on raw. Calls are finished at the end only, so half a call is never
/// handed out (case rule 16).
#[derive(Debug)]
pub struct StreamDecoder {
    turn: Turn,
    blocks: Vec<Block>,
    stop: Option<StopReason>,
    done: bool,
}

/// One content block while it is read.
#[derive(Debug)]
struct Block {
    index: u64,
    kind: String,
    /// The block as it came, if it came whole.
    json: Option<String>,
    /// The block as it began, to which pieces are added.
    fields: Map<String, Value>,
    /// Pieces of a call's input.
    input: String,
}

impl Block {
    fn grow(&mut self, field: &str, piece: &str) {
        match self.fields.get_mut(field) {
            Some(Value::String(text)) => text.push_str(piece),
            _ => {
                self.fields.insert(field.to_owned(), piece.into());
            }
        }
    }

    /// The whole block as JSON text.
    fn into_json(mut self) -> String {
        if let Some(json) = self.json {
            return json;
        }
        if self.kind.ends_with("tool_use")
            && let Ok(input) = serde_json::from_str::<Value>(&self.input)
        {
            self.fields.insert("input".to_owned(), input);
        }
        Value::Object(self.fields).to_string()
    }
}

impl StreamDecoder {
    /// A decoder for the answer to a request with this context.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            turn: Turn::new(context),
            blocks: Vec::new(),
            stop: None,
            done: false,
        }
    }

    /// What came so far, for use after an error; it holds no calls.
    #[must_use]
    pub fn partial(&self) -> &Reply {
        self.turn.partial()
    }

    /// True once the end of the message came.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Reads one event and appends what it says. Unknown events and deltas pass.
    ///
    /// # Errors
    /// The event is an error, or it cannot be read.
    pub fn push(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<(), Fault> {
        let data = event.data.trim();
        if data.is_empty() || data.starts_with(':') || data == "[DONE]" || self.done {
            return Ok(());
        }
        let fields = Lenient::read(data).ok_or_else(|| Fault::not_json(data.as_bytes()))?;
        let kind = fields.text("type").unwrap_or_else(|| event.event.clone());
        match kind.as_str() {
            "message_start" => {
                if let Some(message) = fields.object("message")
                    && let Some(usage) = message.object("usage")
                {
                    read_usage(&usage, self.turn.usage());
                }
            }
            "content_block_start" => {
                let index = fields.count("index").unwrap_or(self.blocks.len() as u64);
                if let Some(raw) = fields.raw("content_block") {
                    self.begin(index, raw, false, out);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = fields.object("delta") {
                    self.grow(fields.count("index"), &delta, out);
                }
            }
            "content_block_stop" => self.turn.end_reasoning(out),
            "message_delta" => {
                if let Some(delta) = fields.object("delta") {
                    self.take_stop(&delta);
                }
                if let Some(usage) = fields.object("usage") {
                    read_usage(&usage, self.turn.usage());
                }
            }
            "message_stop" => self.done = true,
            "error" => {
                return Err(Fault::from_json(data)
                    .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
            }
            _ if fields.raw("error").is_some() => {
                return Err(Fault::from_json(data)
                    .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a whole answer, also one that came although a stream was asked for.
    ///
    /// # Errors
    /// The body is not JSON, is an error, or has no content.
    pub fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), Fault> {
        let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
        let fields = Lenient::read(text).ok_or_else(|| Fault::not_json(body))?;
        if fields.raw("error").is_some() || fields.text("type").as_deref() == Some("error") {
            return Err(Fault::from_json(text)
                .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
        }
        if fields.raw("content").is_none() {
            return Err(Fault::invalid("the answer has no `content`"));
        }
        for (index, block) in fields.list("content").into_iter().enumerate() {
            self.begin(index as u64, block, true, out);
            self.turn.end_reasoning(out);
        }
        self.take_stop(&fields);
        if let Some(usage) = fields.object("usage") {
            read_usage(&usage, self.turn.usage());
        }
        self.done = true;
        Ok(())
    }

    fn take_stop(&mut self, fields: &Lenient<'_>) {
        if let Some(reason) = fields.text("stop_reason") {
            self.stop = read_stop(&reason, fields.text("stop_sequence"));
        }
    }

    /// A block begins; if it came whole, it has all its content.
    fn begin(&mut self, index: u64, raw: &str, is_whole: bool, out: &mut Vec<Event>) {
        let text = string(raw);
        let Some(block) = Lenient::read(raw) else {
            // A plain string in place of blocks.
            self.turn.text(&text.unwrap_or_default(), out);
            return;
        };
        let kind = block.text("type").unwrap_or_default();
        match kind.as_str() {
            "text" => self.turn.text(&block.text("text").unwrap_or_default(), out),
            "thinking" => {
                let text = block.text("thinking").unwrap_or_default();
                self.turn.reasoning(&text, out);
            }
            "tool_use" => {
                let input = block
                    .raw("input")
                    .filter(|input| is_whole || *input != "{}");
                self.turn.call(
                    Fragment {
                        index: Some(index),
                        id: block.text("id"),
                        name: block.text("name"),
                        arguments: input,
                        extra: None,
                    },
                    out,
                );
            }
            _ => {}
        }
        self.blocks.push(Block {
            index,
            kind,
            json: is_whole.then(|| raw.to_owned()),
            fields: serde_json::from_str(raw).unwrap_or_default(),
            input: String::new(),
        });
    }

    fn grow(&mut self, index: Option<u64>, delta: &Lenient<'_>, out: &mut Vec<Event>) {
        let at = self
            .blocks
            .iter()
            .rposition(|block| index.is_none_or(|index| block.index == index));
        let mut grow = |field: &str, piece: &str| {
            if let Some(at) = at {
                self.blocks[at].grow(field, piece);
            }
        };
        match delta.text("type").as_deref() {
            Some("text_delta") => {
                let text = delta.text("text").unwrap_or_default();
                grow("text", &text);
                self.turn.text(&text, out);
            }
            Some("thinking_delta") => {
                let text = delta.text("thinking").unwrap_or_default();
                grow("thinking", &text);
                self.turn.reasoning(&text, out);
            }
            Some("signature_delta") => {
                grow("signature", &delta.text("signature").unwrap_or_default());
            }
            Some("input_json_delta") => {
                let Some(at) = at else { return };
                let raw = delta.raw("partial_json");
                let block = &mut self.blocks[at];
                block
                    .input
                    .push_str(&raw.and_then(string).unwrap_or_default());
                if block.kind == "tool_use" {
                    let index = Some(block.index);
                    self.turn.call(
                        Fragment {
                            index,
                            arguments: raw,
                            ..Fragment::default()
                        },
                        out,
                    );
                }
            }
            _ => {}
        }
    }

    /// Ends the turn.
    ///
    /// # Errors
    /// Neither a stop reason nor the end of the message came (case rule 16); what came is in
    /// [`StreamDecoder::partial`].
    pub fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, Fault> {
        if self.stop.is_none() && !self.done {
            return Err(Fault::truncated());
        }
        let blocks = std::mem::take(&mut self.blocks);
        let must_keep = |block: &Block| !matches!(block.kind.as_str(), "text" | "tool_use");
        if blocks.iter().any(must_keep) {
            for block in blocks {
                let item = OpaqueItem::new(OpaqueKind::AnthropicBlock, block.into_json());
                self.turn.item(item, out);
            }
        }
        let stop = self.stop.take().unwrap_or(StopReason::EndTurn);
        Ok(self.turn.finish(stop, out))
    }
}

/// Writes a turn's events as a stream: the server side.
///
/// Blocks of this wire do not overlap: while a call's input is streamed, everything else is
/// held back until the call is finished. `Reclassified` has no form here: a server that
/// must be exact holds text back until it is sure.
#[derive(Debug)]
pub struct StreamEncoder {
    meta: ReplyMeta,
    with_thinking: bool,
    began: bool,
    open: Open,
    n_blocks: u64,
    linear: Linear,
}

#[derive(Debug, Clone, PartialEq)]
enum Open {
    Nothing,
    /// The text so far, for the signature.
    Thinking(String),
    Text,
    Call {
        call_idx: usize,
        has_input: bool,
    },
}

impl StreamEncoder {
    /// An encoder at the start of a turn. Thinking is written only if `with_thinking`, the
    /// client having asked for it.
    #[must_use]
    pub fn new(meta: ReplyMeta, with_thinking: bool) -> Self {
        Self {
            meta,
            with_thinking,
            began: false,
            open: Open::Nothing,
            n_blocks: 0,
            linear: Linear::default(),
        }
    }

    /// Appends what this event adds to the stream, perhaps nothing.
    pub fn encode(&mut self, event: &Event, out: &mut String) {
        self.begin(out);
        let mut ready = Vec::new();
        self.linear.push(event, &mut ready);
        for event in &ready {
            self.encode_now(event, out);
        }
    }

    fn encode_now(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::ReasoningDelta(text) if self.with_thinking => {
                if !matches!(self.open, Open::Thinking(_)) {
                    self.open_block(
                        &json!({"type": "thinking", "thinking": "", "signature": ""}),
                        Open::Thinking(String::new()),
                        out,
                    );
                }
                if let Open::Thinking(all) = &mut self.open {
                    all.push_str(text);
                }
                self.delta(&json!({"type": "thinking_delta", "thinking": text}), out);
            }
            Event::ReasoningBlockEnd if self.with_thinking => self.close(out),
            Event::TextDelta(text) => {
                if self.open != Open::Text {
                    self.open_block(&json!({"type": "text", "text": ""}), Open::Text, out);
                }
                self.delta(&json!({"type": "text_delta", "text": text}), out);
            }
            Event::CallStarted { call_idx, id, name } => self.open_call(*call_idx, id, name, out),
            Event::ArgumentsDelta { call_idx, text } => {
                if let Open::Call {
                    call_idx: idx,
                    has_input,
                } = &mut self.open
                    && idx == call_idx
                {
                    *has_input = true;
                    self.delta(
                        &json!({"type": "input_json_delta", "partial_json": text}),
                        out,
                    );
                }
            }
            Event::CallFinished { call_idx, call } => {
                let is_open =
                    matches!(self.open, Open::Call { call_idx: idx, .. } if idx == *call_idx);
                if !is_open {
                    self.open_call(*call_idx, &call.id, &call.name, out);
                }
                if let Open::Call {
                    has_input: false, ..
                } = self.open
                {
                    let text = call.arguments.as_text();
                    self.delta(
                        &json!({"type": "input_json_delta", "partial_json": text}),
                        out,
                    );
                }
                self.close(out);
            }
            Event::CallRejected { .. } => {
                if let Open::Call { .. } = self.open {
                    self.close(out);
                }
            }
            _ => {}
        }
    }

    /// Appends a ping: a sign of life.
    pub fn encode_alive(&mut self, out: &mut String) {
        self.begin(out);
        self.event(&json!({"type": "ping"}), out);
    }

    /// Appends the end of the turn.
    pub fn encode_done(&mut self, reply: &Reply, out: &mut String) {
        self.begin(out);
        let mut ready = Vec::new();
        self.linear.finish(&mut ready);
        for event in &ready {
            self.encode_now(event, out);
        }
        self.close(out);
        let (reason, sequence) = stop_reason(&reply.stop_reason);
        let mut delta = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": usage_json(&reply.usage),
        });
        if let Some(calls) = some_invalid_calls(reply) {
            delta[INVALID_CALLS] = calls;
        }
        self.event(&delta, out);
        self.event(&json!({"type": "message_stop"}), out);
    }

    /// Appends an error as the last event of a turn that failed.
    pub fn encode_error(&mut self, error: &ErrorBody, out: &mut String) {
        encode_event(Some("error"), &error.to_anthropic_json(), out);
    }

    fn begin(&mut self, out: &mut String) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        let start = json!({
            "type": "message_start",
            "message": {
                "id": self.meta.id,
                "type": "message",
                "role": "assistant",
                "model": self.meta.model,
                "content": [],
                "stop_reason": null,
                "stop_sequence": null,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            },
        });
        self.event(&start, out);
    }

    fn open_call(&mut self, call_idx: usize, id: &str, name: &str, out: &mut String) {
        self.open_block(
            &json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            Open::Call {
                call_idx,
                has_input: false,
            },
            out,
        );
    }

    fn open_block(&mut self, block: &Value, open: Open, out: &mut String) {
        self.close(out);
        let start = json!({
            "type": "content_block_start",
            "index": self.n_blocks,
            "content_block": block,
        });
        self.event(&start, out);
        self.open = open;
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        let event = json!({
            "type": "content_block_delta",
            "index": self.n_blocks,
            "delta": delta,
        });
        self.event(&event, out);
    }

    fn close(&mut self, out: &mut String) {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => return,
            Open::Thinking(text) => self.delta(
                &json!({"type": "signature_delta", "signature": signature_of(&text)}),
                out,
            ),
            Open::Text | Open::Call { .. } => {}
        }
        let stop = json!({"type": "content_block_stop", "index": self.n_blocks});
        self.event(&stop, out);
        self.n_blocks += 1;
    }

    fn event(&self, event: &Value, out: &mut String) {
        let kind = event["type"].as_str();
        encode_event(kind, &event.to_string(), out);
    }
}
