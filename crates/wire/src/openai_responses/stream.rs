use twopass_core::chat::{Event, OpaqueItem, OpaqueKind, Reply, StopReason};

use super::items::reasoning_text;
use crate::calls::Fragment;
use crate::fault::{Fault, FaultKind};
use crate::json::Lenient;
use crate::openai_chat::read_usage;
use crate::request::DecodeContext;
use crate::sse::SseEvent;
use crate::turn::Turn;

/// Reads a streamed answer, event by event.
///
/// What was streamed is not read again from the items and the response that repeat it; what
/// was not streamed is. Text is handed on raw. Calls are finished at the end only, so half a
/// call is never handed out (case rule 16).
#[derive(Debug)]
pub struct StreamDecoder {
    turn: Turn,
    items: Vec<Item>,
    /// The reasoning part that deltas came for last.
    part: Option<Part>,
    stop: Option<StopReason>,
    done: bool,
}

/// Output index, field and part index of a reasoning delta.
type Part = (u64, &'static str, u64);

/// One output item while it is read.
#[derive(Debug, Default)]
struct Item {
    index: u64,
    id: Option<String>,
    /// The field that its reasoning is taken from: one source, not two.
    reasoning_from: Option<&'static str>,
    has_text: bool,
    has_arguments: bool,
    is_done: bool,
    kind: String,
    /// The item as it came in the end.
    json: Option<String>,
}

impl StreamDecoder {
    /// A decoder for the answer to a request with this context.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            turn: Turn::new(context),
            items: Vec::new(),
            part: None,
            stop: None,
            done: false,
        }
    }

    /// What came so far, for use after an error; it holds no calls.
    #[must_use]
    pub fn partial(&self) -> &Reply {
        self.turn.partial()
    }

    /// True once a terminal event came.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Reads one event and appends what it says. Unknown events and items pass.
    ///
    /// # Errors
    /// The event is an error or a failed response, or it cannot be read.
    pub fn push(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<(), Fault> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
        }
        if data.is_empty() || data.starts_with(':') || self.done {
            return Ok(());
        }
        let fields = Lenient::read(data).ok_or_else(|| Fault::not_json(data.as_bytes()))?;
        let kind = fields.text("type").unwrap_or_else(|| event.event.clone());
        match kind.as_str() {
            "response.output_item.added" => self.begin_item(&fields, out),
            "response.output_item.done" => {
                if let Some(item) = fields.raw("item") {
                    let at = self.item_of(&fields, Some(item));
                    self.whole_item(at, item, out);
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                let at = self.item_of(&fields, None);
                if let Some(delta) = fields.text("delta") {
                    self.items[at].has_text = true;
                    self.turn.text(&delta, out);
                }
            }
            "response.reasoning_summary_text.delta" => self.reasoning(&fields, "summary", out),
            "response.reasoning_text.delta" => self.reasoning(&fields, "content", out),
            "response.function_call_arguments.delta" => {
                let at = self.item_of(&fields, None);
                self.items[at].has_arguments = true;
                self.arguments(at, fields.raw("delta"), out);
            }
            "response.function_call_arguments.done" => {
                let at = self.item_of(&fields, None);
                if !self.items[at].has_arguments {
                    self.items[at].has_arguments = true;
                    self.arguments(at, fields.raw("arguments"), out);
                }
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                let response = fields.object("response").unwrap_or_default();
                self.take_response(&response, out)?;
                self.done = true;
            }
            "response.failed" | "response.cancelled" | "error" | "response.error" => {
                return Err(failed(data));
            }
            _ if fields.raw("error").is_some() => return Err(failed(data)),
            _ => {}
        }
        Ok(())
    }

    /// Reads a whole answer, also one that came although a stream was asked for.
    ///
    /// # Errors
    /// The body is not JSON, is an error or a failed response, or has no output.
    pub fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), Fault> {
        let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
        let fields = Lenient::read(text).ok_or_else(|| Fault::not_json(body))?;
        if fields.raw("error").is_some() {
            return Err(failed(text));
        }
        if fields.raw("output").is_none() {
            return Err(Fault::invalid("the answer has no `output`"));
        }
        self.take_response(&fields, out)?;
        self.done = true;
        Ok(())
    }

    /// The item that an event is about: by output index, else by item id, else the last one.
    fn item_of(&mut self, fields: &Lenient<'_>, item: Option<&str>) -> usize {
        let id = fields
            .text("item_id")
            .or_else(|| item.and_then(|item| Lenient::read(item)?.text("id")));
        let index = fields.count("output_index");
        let known = match (index, &id) {
            (Some(index), _) => self.items.iter().position(|item| item.index == index),
            (None, Some(_)) => self.items.iter().position(|item| item.id == id),
            (None, None) if item.is_none() => self.items.len().checked_sub(1),
            (None, None) => None,
        };
        known.unwrap_or_else(|| {
            let index = index.unwrap_or(self.items.len() as u64);
            self.items.push(Item {
                index,
                id,
                ..Item::default()
            });
            self.items.len() - 1
        })
    }

    fn begin_item(&mut self, fields: &Lenient<'_>, out: &mut Vec<Event>) {
        let raw = fields.raw("item");
        let at = self.item_of(fields, raw);
        let Some(item) = raw.and_then(Lenient::read) else {
            return;
        };
        self.items[at].id = item.text("id");
        self.items[at].kind = item.text("type").unwrap_or_default();
        if self.items[at].kind == "function_call" {
            let arguments = item.raw("arguments").filter(|raw| *raw != "\"\"");
            self.items[at].has_arguments |= arguments.is_some();
            self.begin_call(at, &item, arguments, out);
        }
    }

    fn begin_call(
        &mut self,
        at: usize,
        item: &Lenient<'_>,
        arguments: Option<&str>,
        out: &mut Vec<Event>,
    ) {
        self.turn.call(
            Fragment {
                index: Some(self.items[at].index),
                // The item's own id is no call id; results are refused under it.
                id: item.text("call_id"),
                name: item.text("name"),
                arguments,
                extra: None,
            },
            out,
        );
    }

    fn arguments(&mut self, at: usize, arguments: Option<&str>, out: &mut Vec<Event>) {
        self.turn.call(
            Fragment {
                index: Some(self.items[at].index),
                arguments,
                ..Fragment::default()
            },
            out,
        );
    }

    fn reasoning(&mut self, fields: &Lenient<'_>, from: &'static str, out: &mut Vec<Event>) {
        let at = self.item_of(fields, None);
        let item = &mut self.items[at];
        if *item.reasoning_from.get_or_insert(from) != from {
            return;
        }
        let number = fields
            .count("summary_index")
            .or_else(|| fields.count("content_index"))
            .unwrap_or(0);
        let part = (item.index, from, number);
        if self.part.replace(part).is_some_and(|last| last != part) {
            self.turn.end_reasoning(out);
        }
        self.turn
            .reasoning(&fields.text("delta").unwrap_or_default(), out);
    }

    /// An item that is complete: what was not streamed of it is read now.
    fn whole_item(&mut self, at: usize, raw: &str, out: &mut Vec<Event>) {
        let Some(item) = Lenient::read(raw) else {
            return;
        };
        let kind = item.text("type").unwrap_or_default();
        self.items[at].json = Some(raw.to_owned());
        self.items[at].kind.clone_from(&kind);
        if std::mem::replace(&mut self.items[at].is_done, true) {
            return;
        }
        match kind.as_str() {
            "message" if !self.items[at].has_text => {
                for part in item.list("content") {
                    if let Some(part) = Lenient::read(part) {
                        let text = part.text("text").or_else(|| part.text("refusal"));
                        self.turn.text(&text.unwrap_or_default(), out);
                    }
                }
            }
            "reasoning" if self.items[at].reasoning_from.is_none() => {
                for text in reasoning_text(&item) {
                    self.turn.end_reasoning(out);
                    self.turn.reasoning(&text, out);
                }
            }
            "function_call" => {
                let whole = item.raw("arguments");
                let unread = whole.filter(|_| !self.items[at].has_arguments);
                self.begin_call(at, &item, unread, out);
                if let (Some(whole), None) = (whole, unread) {
                    self.turn.whole_arguments(self.items[at].index, whole);
                }
            }
            _ => {}
        }
        if kind == "reasoning" {
            self.turn.end_reasoning(out);
        }
    }

    fn take_response(&mut self, response: &Lenient<'_>, out: &mut Vec<Event>) -> Result<(), Fault> {
        if let Some(usage) = response.object("usage") {
            *self.turn.usage() = read_usage(&usage);
        }
        let output = response.list("output");
        for (index, raw) in output.into_iter().enumerate() {
            let index = index as u64;
            let at = match self.items.iter().position(|item| item.index == index) {
                Some(at) => at,
                None => {
                    self.items.push(Item {
                        index,
                        ..Item::default()
                    });
                    self.items.len() - 1
                }
            };
            self.whole_item(at, raw, out);
        }
        let reason = response
            .object("incomplete_details")
            .and_then(|details| details.text("reason"));
        self.stop = Some(match response.text("status").as_deref() {
            Some("failed") => {
                return Err(Fault::new(
                    FaultKind::UpstreamError,
                    "the response failed without saying why",
                ));
            }
            Some("cancelled") => StopReason::Cancelled,
            Some("incomplete") => match reason.as_deref() {
                Some("content_filter") => StopReason::ContentFilter,
                Some("max_output_tokens" | "max_tokens") | None => StopReason::Length,
                Some(other) => StopReason::Unknown(other.to_owned()),
            },
            _ => StopReason::EndTurn,
        });
        Ok(())
    }

    /// Ends the turn.
    ///
    /// # Errors
    /// No terminal event came (case rule 16); what came is in [`StreamDecoder::partial`].
    pub fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, Fault> {
        if self.stop.is_none() && !self.done {
            return Err(Fault::truncated());
        }
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_key(|item| item.index);
        let must_keep = |item: &Item| !matches!(item.kind.as_str(), "message" | "function_call");
        if items.iter().any(must_keep) {
            for json in items.into_iter().filter_map(|item| item.json) {
                let item = OpaqueItem::new(OpaqueKind::ResponsesItem, json);
                self.turn.item(item, out);
            }
        }
        let stop = self.stop.take().unwrap_or(StopReason::EndTurn);
        Ok(self.turn.finish(stop, out))
    }
}

fn failed(data: &str) -> Fault {
    Fault::from_json(data).unwrap_or_else(|| {
        Fault::new(
            FaultKind::UpstreamError,
            "the response failed without saying why",
        )
    })
}
