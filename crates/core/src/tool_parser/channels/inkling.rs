//! Inkling: messages of typed content.
//!
//! ```text
//! <|message_model|><|content_thinking|>R<|end_message|>
//! <|message_model|><|content_text|>A<|end_message|>
//! <|message_model|>f<|content_invoke_tool_json|>{"name": "f", "args": {..}}<|end_message|>
//! ```
//! The name before the JSON is framing.

use std::sync::Arc;

use super::super::block::{BlockReader, BlockRules, BodyRules, RawStart};
use super::super::calls::Calls;
use super::super::input::{Input, Place, Progress};
use super::super::json_body::JsonRules;
use super::{Route, Show, take_text};
use crate::chat::Event;
use crate::text::{Marker, MarkerScanner, Scan, prefix_within};

const INVOKE: &str = "<|content_invoke_tool_json|>";
const END: &str = "<|end_message|>";

const MESSAGE: usize = 0;
const THINKING: usize = 1;
const TEXT: usize = 2;
const CALL: usize = 3;

/// Longest name before a content token, in bytes.
const MAX_HEADER_BYTES: usize = 512;

enum State {
    /// Before a message; text here is plain answer text.
    Between,
    /// After `<|message_model|>`, up to the content token.
    Header {
        n_bytes: usize,
    },
    Body(Route),
    Call(Box<BlockReader>),
}

pub(super) struct Inkling {
    state: State,
    tokens: MarkerScanner,
    rules: Arc<BlockRules>,
    prev: u8,
}

impl Inkling {
    pub(super) fn new(in_reasoning: bool) -> Self {
        let tokens = [
            "<|message_model|>",
            "<|content_thinking|>",
            "<|content_text|>",
            INVOKE,
            END,
        ];
        let body = BodyRules::Json(JsonRules {
            name_keys: vec!["name".to_owned()],
            argument_keys: vec![
                "args".to_owned(),
                "arguments".to_owned(),
                "parameters".to_owned(),
            ],
            key_is_name: false,
            separator: None,
            array_only: false,
        });
        let rules = BlockRules::new(
            vec![Marker::exact(INVOKE)],
            vec![Marker::exact(END)],
            body,
            RawStart::No,
        );
        Self {
            state: if in_reasoning {
                State::Body(Route::Reasoning)
            } else {
                State::Between
            },
            tokens: MarkerScanner::new(tokens.into_iter().map(Marker::exact).collect()),
            rules: Arc::new(rules),
            prev: 0,
        }
    }

    pub(super) fn keeps_text(&self) -> bool {
        matches!(&self.state, State::Call(reader) if !reader.is_skipping())
    }

    pub(super) fn read(
        &mut self,
        input: &mut Input<'_>,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) {
        loop {
            let goes_on = match &mut self.state {
                State::Call(reader) => match reader.read(input, calls, out) {
                    Progress::Need => false,
                    Progress::Ended { .. } | Progress::Broken | Progress::NotACall => {
                        self.state = State::Between;
                        true
                    }
                },
                State::Header { n_bytes } => {
                    let n_bytes = *n_bytes;
                    self.read_header(n_bytes, input, show, calls, out)
                }
                State::Between => self.read_body(Route::Text, input, show, calls, out),
                State::Body(route) => {
                    let route = *route;
                    self.read_body(route, input, show, calls, out)
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn read_header(
        &mut self,
        n_bytes: usize,
        input: &mut Input<'_>,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        let from = input.pos;
        let (end, found) = match self.tokens.scan(input.text.as_bytes(), from, input.at_end) {
            Scan::Found { at, idx, len } => (at, Some((idx, len))),
            Scan::Partial(at) => (at, None),
            Scan::None => (input.text.len(), None),
        };
        // Beyond the limit it is no header, wherever the text was cut.
        let header = prefix_within(&input.text[from..end], MAX_HEADER_BYTES - n_bytes);
        input.pos = from + header.len();
        if input.pos < end {
            self.state = State::Body(Route::Text);
            return true;
        }
        let Some((idx, len)) = found else {
            let n_bytes = n_bytes + header.len();
            self.state = State::Header { n_bytes };
            return false;
        };
        input.pos += len;
        self.enter(idx, input.pos, show, calls, out);
        true
    }

    fn enter(
        &mut self,
        idx: usize,
        at: usize,
        show: &mut Show,
        calls: &Calls,
        out: &mut Vec<Event>,
    ) {
        self.prev = 0;
        let route = |route, show: &mut Show| {
            show.begin(route);
            State::Body(route)
        };
        self.state = match idx {
            MESSAGE => State::Header { n_bytes: 0 },
            THINKING => route(Route::Reasoning, show),
            TEXT => route(Route::Text, show),
            CALL if show.may_call(calls, out) => {
                let reader =
                    BlockReader::after_open(vec![self.rules.clone()], Place::Special, INVOKE, at);
                State::Call(Box::new(reader))
            }
            CALL => route(Route::Text, show),
            _ => State::Between,
        };
    }

    fn read_body(
        &mut self,
        route: Route,
        input: &mut Input<'_>,
        show: &mut Show,
        calls: &Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        let (text, token) = take_text(&self.tokens, &mut self.prev, input);
        show.text(route, text, out);
        let Some(idx) = token else {
            return false;
        };
        if matches!(self.state, State::Body(_)) {
            show.end(route, out);
        }
        self.enter(idx, input.pos, show, calls, out);
        true
    }
}
