//! Kimi K3: elements of tokens.
//!
//! ```text
//! <|open|>think<|sep|>R<|close|>think<|sep|><|open|>response<|sep|>A<|close|>response<|sep|>
//! <|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>
//! <|open|>argument key="x" type="number"<|sep|>1<|close|>argument<|sep|>
//! <|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>
//! ```
//! A call may hold `<|open|>json<|sep|>{..}<|close|>json<|sep|>` instead of arguments.

use serde_json::Value;

use super::super::calls::Calls;
use super::super::input::Input;
use super::super::json_args::{ArgsStep, JsonArgs};
use super::super::object_args::ObjectArgs;
use super::{Route, Show, take_text};
use crate::chat::{CallErrorKind, Diagnostic, DiagnosticKind, Event};
use crate::text::{Marker, MarkerScanner, Scan, prefix_within, whole_json};

const OPEN: usize = 0;
const CLOSE: usize = 1;
const SEP: &str = "<|sep|>";

/// Longest head of an element, in bytes.
const MAX_HEAD_BYTES: usize = 1024;

enum State {
    Body(Route),
    /// Inside `tools` or `call`, where text means nothing.
    Silent,
    /// The head of an element, up to `<|sep|>`.
    Head {
        opens: bool,
        head: String,
    },
    Argument {
        key: String,
        is_text: bool,
        value: String,
    },
    Json(Box<JsonArgs>),
}

pub(super) struct KimiK3 {
    state: State,
    tokens: MarkerScanner,
    sep: MarkerScanner,
    prev: u8,
    seen_open: bool,
    in_call: bool,
    arguments: ObjectArgs,
    call_text: String,
}

impl KimiK3 {
    pub(super) fn new(in_reasoning: bool) -> Self {
        Self {
            state: State::Body(if in_reasoning {
                Route::Reasoning
            } else {
                Route::Text
            }),
            tokens: MarkerScanner::new(vec![Marker::exact("<|open|>"), Marker::exact("<|close|>")]),
            sep: MarkerScanner::new(vec![Marker::exact(SEP)]),
            prev: 0,
            seen_open: in_reasoning,
            in_call: false,
            arguments: ObjectArgs::default(),
            call_text: String::new(),
        }
    }

    pub(super) fn read(
        &mut self,
        input: &mut Input<'_>,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) {
        loop {
            let goes_on = match std::mem::replace(&mut self.state, State::Silent) {
                State::Json(mut args) => match args.read(input, calls, out) {
                    ArgsStep::Need => {
                        self.state = State::Json(args);
                        false
                    }
                    ArgsStep::Done | ArgsStep::Refused => {
                        self.in_call = false;
                        true
                    }
                },
                State::Head { opens, head } => self.read_head(opens, head, input, show, calls, out),
                State::Body(route) => self.read_text(Some(route), input, show, out),
                State::Silent => self.read_text(None, input, show, out),
                State::Argument {
                    key,
                    is_text,
                    value,
                } => self.read_argument(key, is_text, value, input, calls, out),
            };
            if !goes_on {
                break;
            }
        }
        if input.at_end && calls.is_open() {
            let raw = std::mem::take(&mut self.call_text);
            calls.reject_truncated(&raw, out);
        }
    }

    fn read_text(
        &mut self,
        route: Option<Route>,
        input: &mut Input<'_>,
        show: &mut Show,
        out: &mut Vec<Event>,
    ) -> bool {
        let (text, token) = take_text(&self.tokens, &mut self.prev, input);
        if let Some(route) = route {
            show.text(route, text, out);
        }
        let Some(idx) = token else {
            self.state = route.map_or(State::Silent, State::Body);
            return false;
        };
        if route == Some(Route::Reasoning) && idx == OPEN {
            show.end(Route::Reasoning, out);
        }
        self.state = State::Head {
            opens: idx != CLOSE,
            head: String::new(),
        };
        true
    }

    fn read_head(
        &mut self,
        opens: bool,
        mut head: String,
        input: &mut Input<'_>,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        let (end, len) = match self
            .sep
            .scan(input.text.as_bytes(), input.pos, input.at_end)
        {
            Scan::Found { at, len, .. } => (at, Some(len)),
            Scan::Partial(at) => (at, None),
            Scan::None => (input.text.len(), None),
        };
        // No head beyond the limit, whatever follows: the same bytes are judged however they come.
        let room = MAX_HEAD_BYTES - head.len();
        let more = prefix_within(&input.text[input.pos..end], room);
        head.push_str(more);
        input.pos += more.len();
        if input.pos < end {
            show.text(Route::Text, &head, out);
            self.state = State::Body(Route::Text);
            return true;
        }
        let Some(len) = len else {
            self.state = State::Head { opens, head };
            return false;
        };
        input.pos += len;
        let name = head.split_whitespace().next().unwrap_or_default();
        if opens {
            self.open(name, &head, show, calls, out);
        } else {
            self.close(name, show, calls, out);
        }
        true
    }

    fn open(
        &mut self,
        name: &str,
        head: &str,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) {
        self.seen_open = true;
        self.state = match name {
            "think" => {
                show.begin(Route::Reasoning);
                State::Body(Route::Reasoning)
            }
            "call" if show.may_call(calls, out) => {
                self.in_call = true;
                self.arguments = ObjectArgs::default();
                self.call_text.clear();
                calls.begin(attribute(head, "tool").unwrap_or_default(), None, out);
                State::Silent
            }
            "argument" if self.in_call => State::Argument {
                key: attribute(head, "key").unwrap_or_default().to_owned(),
                is_text: attribute(head, "type").is_none_or(|kind| kind == "string"),
                value: String::new(),
            },
            "json" if self.in_call => State::Json(Box::new(JsonArgs::new(calls))),
            "tools" | "call" | "message" | "argument" | "json" => State::Silent,
            _ => {
                show.begin(Route::Text);
                State::Body(Route::Text)
            }
        };
    }

    fn close(&mut self, name: &str, show: &mut Show, calls: &mut Calls, out: &mut Vec<Event>) {
        match name {
            "think" => {
                if !self.seen_open && !show.in_reasoning {
                    // The prompt had opened the block and nobody said so.
                    out.push(Event::Reclassified);
                    show.any_text = false;
                    let message = "a closing tag came without an opening one: the text before it is reasoning";
                    out.push(Event::Diagnostic(Diagnostic::new(
                        DiagnosticKind::OrphanClose,
                        message,
                    )));
                }
                show.end(Route::Reasoning, out);
            }
            "call" if calls.is_open() => {
                self.arguments.end(&self.call_text, calls, out);
                calls.settle(false, out);
                self.in_call = false;
            }
            _ => {}
        }
        self.state = match name {
            "think" | "response" => State::Body(Route::Text),
            _ => State::Silent,
        };
    }

    fn read_argument(
        &mut self,
        key: String,
        is_text: bool,
        mut value: String,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        let close = MarkerScanner::new(vec![Marker::exact("<|close|>argument<|sep|>")]);
        let (end, len) = match close.scan(input.text.as_bytes(), input.pos, input.at_end) {
            Scan::Found { at, len, .. } => (at, Some(len)),
            Scan::Partial(at) => (at, None),
            Scan::None => (input.text.len(), None),
        };
        value.push_str(&input.text[input.pos..end]);
        input.pos = end;
        let most = calls.limits().max_block_bytes;
        if value.len() > most {
            value.truncate(prefix_within(&value, most).len());
            calls.reject_block(
                CallErrorKind::ArgumentsTooLarge,
                &value,
                "the block is over the byte limit",
                out,
            );
            self.in_call = false;
            self.state = State::Silent;
            return true;
        }
        let Some(len) = len else {
            self.state = State::Argument {
                key,
                is_text,
                value,
            };
            return false;
        };
        input.pos += len;
        let read = if is_text { None } else { whole_json(&value) };
        let read = read.unwrap_or(Value::String(value));
        let piece = self.arguments.add(key, read, calls, out);
        self.call_text.push_str(&piece);
        self.state = State::Silent;
        true
    }
}

fn attribute<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = head.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}
