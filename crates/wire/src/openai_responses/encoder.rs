use serde_json::{Value, json};
use twopass_core::chat::{Event, Reply};

use super::reply::{Status, call_item, item_id, message_item, reasoning_item, response};
use crate::error::ErrorBody;
use crate::linear::Linear;
use crate::request::ReplyMeta;
use crate::sse::encode_event;

/// Writes a turn's events as a stream: the server side.
///
/// Every event of the API comes, in its order, with a running `sequence_number`: created, in
/// progress; for each item added, its parts and deltas, done; and one terminal event.
/// Items do not overlap: while a call is open everything else is held back. `Reclassified`
/// has no form here: a server that must be exact holds text back until it is sure.
#[derive(Debug)]
pub struct StreamEncoder {
    meta: ReplyMeta,
    n_events: u64,
    began: bool,
    open: Open,
    /// Items that are done, as JSON text.
    items: Vec<String>,
    linear: Linear,
    /// The whole response, once the turn is done.
    whole: Option<String>,
}

#[derive(Debug, PartialEq)]
enum Open {
    Nothing,
    Reasoning(String),
    Text(String),
    Call {
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl StreamEncoder {
    /// An encoder at the start of a turn.
    #[must_use]
    pub fn new(meta: ReplyMeta) -> Self {
        Self {
            meta,
            n_events: 0,
            began: false,
            open: Open::Nothing,
            items: Vec::new(),
            linear: Linear::default(),
            whole: None,
        }
    }

    /// The whole response as it was told, once [`Self::encode_done`] has.
    pub fn take_whole(&mut self) -> Option<String> {
        self.whole.take()
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

    /// Appends the first events if they were not sent: a sign of life. Later there is none
    /// on this wire but a comment.
    pub fn encode_alive(&mut self, out: &mut String) {
        if self.began {
            crate::sse::encode_comment("alive", out);
        } else {
            self.begin(out);
        }
    }

    /// Appends the end of the turn: what is open is closed, then the whole response.
    pub fn encode_done(&mut self, reply: &Reply, out: &mut String) {
        self.begin(out);
        let mut ready = Vec::new();
        self.linear.finish(&mut ready);
        for event in &ready {
            self.encode_now(event, out);
        }
        self.close(out);
        if self.items.is_empty() {
            self.open_text(out);
            self.close(out);
        }
        let status = Status::of(&reply.stop_reason);
        let whole = response(&self.meta, status, &self.items, Some(reply));
        self.response_event(&format!("response.{}", status.as_str()), &whole, out);
        self.whole = Some(whole);
    }

    /// Appends an error as the last event of a turn that failed.
    pub fn encode_error(&mut self, error: &ErrorBody, out: &mut String) {
        self.begin(out);
        let code = match error.kind.as_str() {
            "rate_limited" | "quota_exhausted" => "rate_limit_exceeded",
            "context_length" => "context_length_exceeded",
            "bad_request" => "invalid_prompt",
            _ => "server_error",
        };
        let whole = response(&self.meta, Status::Failed, &self.items, None);
        let fault = json!({"code": code, "message": error.message}).to_string();
        let whole = whole.replacen("\"error\":null", &format!("\"error\":{fault}"), 1);
        self.response_event("response.failed", &whole, out);
    }

    fn encode_now(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::ReasoningDelta(text) => {
                if !matches!(self.open, Open::Reasoning(_)) {
                    self.open_reasoning(out);
                }
                if let Open::Reasoning(all) = &mut self.open {
                    all.push_str(text);
                }
                let event = json!({"summary_index": 0, "delta": text});
                self.item_event("response.reasoning_summary_text.delta", event, out);
            }
            Event::ReasoningBlockEnd => {
                if matches!(self.open, Open::Reasoning(_)) {
                    self.close(out);
                }
            }
            Event::TextDelta(text) => {
                if !matches!(self.open, Open::Text(_)) {
                    self.open_text(out);
                }
                if let Open::Text(all) = &mut self.open {
                    all.push_str(text);
                }
                let event = json!({"content_index": 0, "delta": text, "logprobs": []});
                self.item_event("response.output_text.delta", event, out);
            }
            Event::CallStarted { id, name, .. } => self.open_call(id, name, out),
            Event::ArgumentsDelta { text, .. } => self.arguments(text, out),
            Event::CallFinished { call, .. } => {
                let is_open =
                    matches!(&self.open, Open::Call { call_id, .. } if *call_id == call.id);
                if !is_open {
                    self.open_call(&call.id, &call.name, out);
                }
                if let Open::Call { arguments, .. } = &self.open
                    && arguments.is_empty()
                {
                    self.arguments(call.arguments.as_text(), out);
                }
                // The call as it is in the end: it may have been repaired.
                if let Open::Call { arguments, .. } = &mut self.open {
                    call.arguments.as_text().clone_into(arguments);
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

    fn begin(&mut self, out: &mut String) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        let whole = response(&self.meta, Status::InProgress, &[], None);
        self.response_event("response.created", &whole, out);
        self.response_event("response.in_progress", &whole, out);
    }

    fn open_reasoning(&mut self, out: &mut String) {
        self.close(out);
        self.open = Open::Reasoning(String::new());
        let item = reasoning_item(&self.id(), "");
        self.added(&item, out);
        let event = json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}});
        self.item_event("response.reasoning_summary_part.added", event, out);
    }

    fn open_text(&mut self, out: &mut String) {
        self.close(out);
        self.open = Open::Text(String::new());
        let item = message_item(&self.id(), "", "in_progress");
        self.added(&item, out);
        let part = json!({"type": "output_text", "text": "", "annotations": []});
        let event = json!({"content_index": 0, "part": part});
        self.item_event("response.content_part.added", event, out);
    }

    fn open_call(&mut self, call_id: &str, name: &str, out: &mut String) {
        self.close(out);
        self.open = Open::Call {
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            arguments: String::new(),
        };
        let item = call_item(&self.id(), call_id, name, "", "in_progress");
        self.added(&item, out);
    }

    fn arguments(&mut self, text: &str, out: &mut String) {
        if let Open::Call { arguments, .. } = &mut self.open {
            arguments.push_str(text);
            let event = json!({"delta": text});
            self.item_event("response.function_call_arguments.delta", event, out);
        }
    }

    fn close(&mut self, out: &mut String) {
        let id = self.id();
        let item = match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => return,
            Open::Reasoning(text) => {
                let event = json!({"item_id": id, "summary_index": 0, "text": text});
                self.item_event("response.reasoning_summary_text.done", event, out);
                let part = json!({"type": "summary_text", "text": text});
                let event = json!({"item_id": id, "summary_index": 0, "part": part});
                self.item_event("response.reasoning_summary_part.done", event, out);
                reasoning_item(&id, &text)
            }
            Open::Text(text) => {
                let event =
                    json!({"item_id": id, "content_index": 0, "text": text, "logprobs": []});
                self.item_event("response.output_text.done", event, out);
                let part = json!({"type": "output_text", "text": text, "annotations": []});
                let event = json!({"item_id": id, "content_index": 0, "part": part});
                self.item_event("response.content_part.done", event, out);
                message_item(&id, &text, "completed")
            }
            Open::Call {
                call_id,
                name,
                arguments,
            } => {
                let event = json!({"item_id": id, "name": name, "arguments": arguments});
                self.item_event("response.function_call_arguments.done", event, out);
                call_item(&id, &call_id, &name, &arguments, "completed")
            }
        };
        let event = json!({"output_index": self.items.len(), "item": item});
        self.event("response.output_item.done", event, out);
        self.items.push(item.to_string());
    }

    fn added(&mut self, item: &Value, out: &mut String) {
        let event = json!({"output_index": self.items.len(), "item": item});
        self.event("response.output_item.added", event, out);
    }

    /// The id of the item that is open.
    fn id(&self) -> String {
        let prefix = match self.open {
            Open::Reasoning(_) => "rs",
            Open::Text(_) | Open::Nothing => "msg",
            Open::Call { .. } => "fc",
        };
        item_id(prefix, &self.meta, self.items.len())
    }

    /// An event of the item that is open.
    fn item_event(&mut self, kind: &str, fields: Value, out: &mut String) {
        let mut event = json!({"item_id": self.id(), "output_index": self.items.len()});
        merge(&mut event, fields);
        self.event(kind, event, out);
    }

    fn event(&mut self, kind: &str, fields: Value, out: &mut String) {
        let mut event = json!({"type": kind, "sequence_number": self.n_events});
        merge(&mut event, fields);
        self.n_events += 1;
        encode_event(Some(kind), &event.to_string(), out);
    }

    /// An event that holds the whole response.
    fn response_event(&mut self, kind: &str, whole: &str, out: &mut String) {
        let data = format!(
            "{{\"type\":{},\"sequence_number\":{},\"response\":{whole}}}",
            Value::from(kind),
            self.n_events
        );
        self.n_events += 1;
        encode_event(Some(kind), &data, out);
    }
}

fn merge(into: &mut Value, fields: Value) {
    if let (Value::Object(into), Value::Object(fields)) = (into, fields) {
        for (name, value) in fields {
            into.insert(name, value);
        }
    }
}
