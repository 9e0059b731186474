//! Harmony, the format of gpt-oss.
//!
//! ```text
//! <|channel|>analysis<|message|>R<|end|>
//! <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|>
//! <|start|>assistant<|channel|>final<|message|>A<|return|>
//! ```
//! Some servers drop the tokens and leave `analysisR..assistantfinalA`: that is read, too.
//! The completion starts right after `<|start|>assistant`; the last token is usually missing.
//! The recipient may stand in the role part. Commentary without a recipient is shown.

use super::super::block::{At, Input};
use super::super::calls::Calls;
use super::super::json_args::{ArgsStep, JsonArgs};
use super::{Route, Show, is_mention};
use crate::chat::Event;
use crate::text::{Marker, MarkerScanner, Scan};

/// Longest header, in bytes.
const MAX_HEADER_BYTES: usize = 1024;

const START: usize = 0;
const CHANNEL: usize = 1;
const MESSAGE: usize = 2;

const LEAKED: [&str; 3] = ["assistantfinal", "assistantanalysis", "assistantcommentary"];
const LEAKED_START: &str = "analysis";

enum State {
    /// Text whose tokens were dropped.
    Leaked(Route),
    /// The start of the completion, or the place after a message.
    Between {
        is_start: bool,
    },
    /// Up to `<|message|>`; the header so far.
    Header(String),
    Body(Route),
    Call(Box<JsonArgs>),
    /// After the arguments, up to the next token.
    AfterCall,
}

pub(super) struct Harmony {
    state: State,
    tokens: MarkerScanner,
    /// The names that are left where the tokens were dropped.
    leaked: MarkerScanner,
    prev: u8,
}

impl Harmony {
    pub(super) fn new(in_reasoning: bool) -> Self {
        let tokens = [
            "<|start|>",
            "<|channel|>",
            "<|message|>",
            "<|end|>",
            "<|return|>",
            "<|call|>",
        ];
        Self {
            state: if in_reasoning {
                State::Body(Route::Reasoning)
            } else {
                State::Between { is_start: true }
            },
            tokens: MarkerScanner::new(tokens.into_iter().map(Marker::exact).collect()),
            leaked: MarkerScanner::new(LEAKED.into_iter().map(Marker::exact).collect()),
            prev: 0,
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
            let goes_on = match &mut self.state {
                State::Between { is_start } => {
                    let is_start = *is_start;
                    self.read_between(is_start, input, show)
                }
                State::Header(header) => {
                    let header = std::mem::take(header);
                    self.read_header(header, input, show, calls, out)
                }
                State::Body(route) => {
                    let route = *route;
                    self.read_body(route, input, show, out)
                }
                State::Leaked(route) => {
                    let route = *route;
                    self.read_leaked(route, input, show, out)
                }
                State::Call(args) => match args.read(input, calls, out) {
                    ArgsStep::Need => false,
                    ArgsStep::Done | ArgsStep::Refused => {
                        self.state = State::AfterCall;
                        true
                    }
                },
                State::AfterCall => self.read_after_call(input, calls, out),
            };
            if !goes_on {
                return;
            }
        }
    }

    fn read_between(&mut self, is_start: bool, input: &mut Input<'_>, show: &mut Show) -> bool {
        let from = input.pos;
        input.skip_space();
        if input.peek().is_none() {
            input.pos = if input.at_end { input.pos } else { from };
            return false;
        }
        match self
            .tokens
            .scan(input.text.as_bytes(), input.pos, input.at_end)
        {
            Scan::Found { at, idx, len } if at == input.pos => {
                input.pos += len;
                self.state = match idx {
                    START | CHANNEL => State::Header(if idx == CHANNEL {
                        "<|channel|>".to_owned()
                    } else {
                        String::new()
                    }),
                    MESSAGE => {
                        show.begin(Route::Text);
                        State::Body(Route::Text)
                    }
                    _ => State::Between { is_start: false },
                };
                return true;
            }
            Scan::Partial(at) if at == input.pos => {
                input.pos = from;
                return false;
            }
            _ => {}
        }
        let rest = input.rest();
        if is_start && !input.at_end && rest.len() < 3 && "to=".starts_with(rest) {
            input.pos = from;
            return false;
        }
        if is_start && input.at(LEAKED_START) != At::No {
            match rest.as_bytes().get(LEAKED_START.len()) {
                // A sentence that begins with this word goes on with a space.
                Some(next) if next.is_ascii_uppercase() => {
                    input.pos += LEAKED_START.len();
                    show.begin(Route::Reasoning);
                    self.state = State::Leaked(Route::Reasoning);
                    return true;
                }
                None if !input.at_end => {
                    input.pos = from;
                    return false;
                }
                _ => {}
            }
        }
        self.state = if is_start && rest.starts_with("to=") {
            State::Header(String::new())
        } else {
            // No markup: plain text.
            input.pos = from;
            show.begin(Route::Text);
            State::Body(Route::Text)
        };
        true
    }

    fn read_header(
        &mut self,
        mut header: String,
        input: &mut Input<'_>,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        let bytes = input.text.as_bytes();
        let (end, next) = match self.tokens.scan(bytes, input.pos, input.at_end) {
            Scan::Found { at, idx, len } => (at, Some((idx, len))),
            Scan::Partial(at) => (at, None),
            Scan::None => (bytes.len(), None),
        };
        header.push_str(&input.text[input.pos..end]);
        input.pos = end;
        let too_long = header.len() > MAX_HEADER_BYTES;
        match next {
            None if too_long => {
                show.text(Route::Text, &header, out);
                self.state = State::Body(Route::Text);
                true
            }
            None => {
                self.state = State::Header(header);
                false
            }
            Some((CHANNEL, len)) => {
                header.push_str("<|channel|>");
                input.pos += len;
                self.state = State::Header(header);
                true
            }
            Some((MESSAGE, len)) => {
                input.pos += len;
                self.begin_message(&header, show, calls, out);
                true
            }
            Some((START, len)) => {
                input.pos += len;
                self.state = State::Header(String::new());
                true
            }
            Some((_, len)) => {
                input.pos += len;
                self.state = State::Between { is_start: false };
                true
            }
        }
    }

    fn begin_message(
        &mut self,
        header: &str,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) {
        let channel = header
            .rsplit_once("<|channel|>")
            .map_or("final", |(_, channel)| channel.trim_start());
        let recipient = header.split_once("to=").map(|(_, rest)| {
            let end = rest.find(|c: char| c.is_whitespace() || c == '<');
            &rest[..end.unwrap_or(rest.len())]
        });
        let is_tool = recipient.is_some_and(|to| !matches!(to, "" | "user" | "assistant" | "all"));
        self.prev = 0;
        if is_tool && show.may_call(calls, out) {
            calls.begin(recipient.unwrap_or_default(), None, out);
            self.state = State::Call(Box::new(JsonArgs::new(calls)));
            return;
        }
        let route = if channel.starts_with("analysis") {
            Route::Reasoning
        } else {
            Route::Text
        };
        show.begin(route);
        self.state = State::Body(route);
    }

    fn read_body(
        &mut self,
        route: Route,
        input: &mut Input<'_>,
        show: &mut Show,
        out: &mut Vec<Event>,
    ) -> bool {
        let from = input.pos;
        let bytes = input.text.as_bytes();
        let mut search = from;
        let (end, found) = loop {
            match self.tokens.scan(bytes, search, input.at_end) {
                Scan::None => break (bytes.len(), None),
                Scan::Partial(at) => break (at, None),
                Scan::Found { at, idx, len } => {
                    let prev = if at > from { bytes[at - 1] } else { self.prev };
                    match is_mention(input, prev, at, len) {
                        Some(true) => search = at + len,
                        Some(false) => break (at, Some((idx, len))),
                        None => break (at, None),
                    }
                }
            }
        };
        show.text(route, &input.text[from..end], out);
        if end > from {
            self.prev = bytes[end - 1];
        }
        input.pos = end;
        let Some((idx, len)) = found else {
            return false;
        };
        input.pos += len;
        self.prev = 0;
        if idx == MESSAGE {
            return true;
        }
        show.end(route, out);
        self.state = match idx {
            START => State::Header(String::new()),
            CHANNEL => State::Header("<|channel|>".to_owned()),
            _ => State::Between { is_start: false },
        };
        true
    }

    fn read_leaked(
        &mut self,
        route: Route,
        input: &mut Input<'_>,
        show: &mut Show,
        out: &mut Vec<Event>,
    ) -> bool {
        let bytes = input.text.as_bytes();
        let (end, found) = match self.leaked.scan(bytes, input.pos, input.at_end) {
            Scan::None => (bytes.len(), None),
            Scan::Partial(at) => (at, None),
            Scan::Found { at, idx, len } => (at, Some((idx, len))),
        };
        show.text(route, &input.text[input.pos..end], out);
        input.pos = end;
        let Some((idx, len)) = found else {
            return false;
        };
        input.pos += len;
        show.end(route, out);
        let next = if LEAKED[idx].ends_with("analysis") {
            Route::Reasoning
        } else {
            Route::Text
        };
        show.begin(next);
        self.state = State::Leaked(next);
        true
    }

    /// Text behind the arguments says nothing: up to the next token it is dropped.
    fn read_after_call(
        &mut self,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        match self
            .tokens
            .scan(input.text.as_bytes(), input.pos, input.at_end)
        {
            Scan::Found { at, idx, len } => {
                calls.settle(false, out);
                input.pos = at + len;
                self.state = match idx {
                    START => State::Header(String::new()),
                    CHANNEL => State::Header("<|channel|>".to_owned()),
                    _ => State::Between { is_start: false },
                };
                true
            }
            Scan::Partial(at) => {
                input.pos = at;
                false
            }
            Scan::None => {
                input.pos = input.text.len();
                false
            }
        }
    }
}
