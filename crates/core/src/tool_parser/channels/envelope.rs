//! Messages whose header tells where they go: gpt-oss, Beam, Muse.
//!
//! ```text
//! <|channel|>analysis<|message|>R<|end|>
//! <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|>
//! <|start|>assistant<|channel|>final<|message|>A<|return|>
//! ```
//! The completion starts right after `<|start|>assistant`; the last token is usually missing.
//! The recipient may stand in the role part. Commentary without a recipient is shown.
//! Some servers drop gpt-oss's tokens and leave `analysisR..assistantfinalA`: that is read, too.
//!
//! Beam calls in the analysis channel, an element per argument:
//! ` to=f<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="x">..<|call|>`.
//!
//! Muse has recipients and no channels: `self` gets the thoughts, `user`, `commentary` and
//! nobody the answer, a tool its calls:
//! ` to=f<|message|><atem:function_calls><atem:invoke name="f">..<|eom|>`.

use std::sync::Arc;

use super::super::block::{BlockReader, BlockRules, BodyRules, RawStart};
use super::super::calls::Calls;
use super::super::dialects::XmlForm;
use super::super::input::{At, Input, Place, Progress};
use super::super::json_args::{ArgsStep, JsonArgs};
use super::super::xml_values::{ValueFraming, ValueTyping};
use super::{Route, Show, take_text};
use crate::chat::Event;
use crate::text::{Marker, MarkerScanner, Scan};

/// Longest header, in bytes.
const MAX_HEADER_BYTES: usize = 1024;

const START: &str = "<|start|>";
const MESSAGE: &str = "<|message|>";

/// White space that is waited through before a message.
const MAX_SPACE_BYTES: usize = 256;

const LEAKED: [&str; 3] = ["assistantfinal", "assistantanalysis", "assistantcommentary"];
const LEAKED_START: &str = "analysis";

/// What a token does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Start,
    Channel,
    Message,
    End,
}

/// A format of this kind.
pub(super) struct Form {
    tokens: &'static [(&'static str, Token)],
    /// Recipients that are no tools; `self` gets reasoning.
    people: &'static [&'static str],
    /// What calls are written in where the header does not say `xml`.
    body: BodyKind,
    /// The tokens may have been dropped by a server.
    may_leak: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    /// The arguments as JSON.
    Json,
    /// An element for each argument.
    Parameters,
    /// The same, in elements of the calls.
    Invokes,
}

pub(super) const HARMONY: Form = Form {
    tokens: &[
        (START, Token::Start),
        ("<|channel|>", Token::Channel),
        (MESSAGE, Token::Message),
        ("<|end|>", Token::End),
        ("<|return|>", Token::End),
        ("<|call|>", Token::End),
    ],
    people: &["user", "assistant", "all"],
    body: BodyKind::Json,
    may_leak: true,
};

pub(super) const BEAM: Form = Form {
    tokens: &[
        (START, Token::Start),
        // Ends a thought as well.
        ("<|constrain|><|start|>", Token::Start),
        ("<|channel|>", Token::Channel),
        (MESSAGE, Token::Message),
        ("<|end|>", Token::End),
        ("<|return|>", Token::End),
        ("<|call|>", Token::End),
    ],
    body: BodyKind::Parameters,
    may_leak: false,
    ..HARMONY
};

pub(super) const MUSE: Form = Form {
    tokens: &[
        (START, Token::Start),
        (MESSAGE, Token::Message),
        ("<|eom|>", Token::End),
        ("<|eot|>", Token::End),
    ],
    people: &["self", "user", "assistant", "commentary"],
    body: BodyKind::Invokes,
    may_leak: false,
};

/// The elements of Beam's arguments. The call's name stands in the header.
pub(in super::super) const BEAM_PARAMETERS: XmlForm = XmlForm {
    call_open: "",
    name_end: "",
    call_close: "<|call|>",
    param_open: "<rfl:parameter name=\"",
    key_end: "\">",
    value_open: "",
    param_close: "</rfl:parameter>",
    typing: ValueTyping::Schema,
    framing: ValueFraming::Lines,
    noise: &[],
    gap: "\n",
    one_group: false,
};

/// The elements of Muse's calls.
pub(in super::super) const MUSE_INVOKES: XmlForm = XmlForm {
    call_open: "<atem:invoke name=\"",
    name_end: "\">",
    call_close: "</atem:invoke>",
    param_open: "<atem:parameter name=\"",
    key_end: "\">",
    value_open: "",
    param_close: "</atem:parameter>",
    typing: ValueTyping::SchemaOrJson,
    framing: ValueFraming::Verbatim,
    noise: &["<atem:function_calls>", "</atem:function_calls>"],
    gap: "\n",
    one_group: true,
};

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
    Json(Box<JsonArgs>),
    /// Elements; where they begin.
    Block {
        reader: Box<BlockReader>,
        from: usize,
    },
    /// After JSON arguments, up to the next token.
    AfterJson,
}

pub(super) struct Envelope {
    form: &'static Form,
    state: State,
    tokens: MarkerScanner,
    /// The names that are left where the tokens were dropped.
    leaked: MarkerScanner,
    prev: u8,
}

/// Where a header sends its message.
enum Target<'a> {
    Text(Route),
    Tool(&'a str),
}

impl Form {
    fn target<'a>(&self, header: &'a str) -> Target<'a> {
        let recipient = header.split_once("to=").map(|(_, rest)| {
            let end = rest.find(|c: char| c.is_whitespace() || c == '<');
            &rest[..end.unwrap_or(rest.len())]
        });
        let recipient = recipient.unwrap_or_default();
        if !recipient.is_empty() && !self.people.contains(&recipient) {
            return Target::Tool(recipient);
        }
        let channel = header.rsplit_once("<|channel|>");
        let is_analysis =
            channel.is_some_and(|(_, channel)| channel.trim_start().starts_with("analysis"));
        if is_analysis || recipient == "self" && self.people.contains(&"self") {
            Target::Text(Route::Reasoning)
        } else {
            Target::Text(Route::Text)
        }
    }

    fn body_of(&self, header: &str) -> BodyKind {
        if header.trim_end().ends_with("<|constrain|>xml") {
            BodyKind::Parameters
        } else {
            self.body
        }
    }
}

impl Envelope {
    pub(super) fn new(form: &'static Form, in_reasoning: bool) -> Self {
        let tokens = form.tokens.iter().map(|(text, _)| Marker::exact(*text));
        Self {
            form,
            state: if in_reasoning {
                State::Body(Route::Reasoning)
            } else {
                State::Between { is_start: true }
            },
            tokens: MarkerScanner::new(tokens.collect()),
            leaked: MarkerScanner::new(LEAKED.into_iter().map(Marker::exact).collect()),
            prev: 0,
        }
    }

    pub(super) fn keeps_text(&self) -> bool {
        matches!(&self.state, State::Block { reader, .. } if !reader.is_skipping())
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
                State::Json(args) => match args.read(input, calls, out) {
                    ArgsStep::Need => false,
                    ArgsStep::Done | ArgsStep::Refused => {
                        self.state = State::AfterJson;
                        true
                    }
                },
                State::Block { reader, from } => match reader.read(input, calls, out) {
                    Progress::Need => false,
                    Progress::Ended { .. } | Progress::Broken => {
                        calls.settle(false, out);
                        self.state = State::Between { is_start: false };
                        true
                    }
                    Progress::NotACall => {
                        input.pos = *from;
                        show.begin(Route::Text);
                        self.state = State::Body(Route::Text);
                        true
                    }
                },
                State::AfterJson => self.read_after_json(input, calls, out),
            };
            if !goes_on {
                return;
            }
        }
    }

    fn read_between(&mut self, is_start: bool, input: &mut Input<'_>, show: &mut Show) -> bool {
        let from = input.pos;
        input.skip_space();
        if input.pos - from > MAX_SPACE_BYTES {
            // So much white space is text: to wait for its end would be to read it again
            // with every piece.
            input.pos = from;
            show.begin(Route::Text);
            self.state = State::Body(Route::Text);
            return true;
        }
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
                if self.token(idx) == Token::Message {
                    show.begin(Route::Text);
                    self.state = State::Body(Route::Text);
                } else {
                    self.state = self.after_token(idx);
                }
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
        if self.form.may_leak && is_start && input.at(LEAKED_START) != At::No {
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

    fn token(&self, idx: usize) -> Token {
        self.form.tokens[idx].1
    }

    /// The state that a token leads to outside a header.
    fn after_token(&self, idx: usize) -> State {
        match self.token(idx) {
            Token::Start => State::Header(String::new()),
            Token::Channel => State::Header(self.form.tokens[idx].0.to_owned()),
            Token::Message | Token::End => State::Between { is_start: false },
        }
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
        // No header, whatever may follow: the same bytes are judged however they come.
        if header.len() > MAX_HEADER_BYTES {
            show.text(Route::Text, &header, out);
            self.state = State::Body(Route::Text);
            return true;
        }
        match next {
            None => {
                self.state = State::Header(header);
                false
            }
            Some((idx, len)) => {
                input.pos += len;
                match self.token(idx) {
                    Token::Channel => {
                        header.push_str(self.form.tokens[idx].0);
                        self.state = State::Header(header);
                    }
                    Token::Message => self.begin_message(&header, input.pos, show, calls, out),
                    Token::Start | Token::End => self.state = self.after_token(idx),
                }
                true
            }
        }
    }

    fn begin_message(
        &mut self,
        header: &str,
        at: usize,
        show: &mut Show,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) {
        self.prev = 0;
        let route = match self.form.target(header) {
            Target::Tool(name) if show.may_call(calls, out) => {
                self.state = self.begin_call(header, name, at, calls, out);
                return;
            }
            Target::Text(route) => route,
            // Not allowed: shown as what its channel is.
            Target::Tool(_) if header.contains("<|channel|>analysis") => Route::Reasoning,
            Target::Tool(_) => Route::Text,
        };
        show.begin(route);
        self.state = State::Body(route);
    }

    fn begin_call(
        &self,
        header: &str,
        name: &str,
        at: usize,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> State {
        let reader = match self.form.body_of(header) {
            BodyKind::Json => {
                calls.begin(name, None, out);
                return State::Json(Box::new(JsonArgs::new(calls)));
            }
            BodyKind::Parameters => {
                calls.begin(name, None, out);
                let rules = block_rules(&BEAM_PARAMETERS, None, &["<|call|>", "<|end|>"]);
                BlockReader::of_parameters(rules, at)
            }
            BodyKind::Invokes => {
                let open = Some(MESSAGE.to_owned());
                let rules = block_rules(&MUSE_INVOKES, open, &["<|eom|>", "<|eot|>"]);
                BlockReader::after_open(vec![rules], Place::Special, MESSAGE, at)
            }
        };
        State::Block {
            reader: Box::new(reader),
            from: at,
        }
    }

    fn read_body(
        &mut self,
        route: Route,
        input: &mut Input<'_>,
        show: &mut Show,
        out: &mut Vec<Event>,
    ) -> bool {
        let (text, token) = take_text(&self.tokens, &mut self.prev, input);
        show.text(route, text, out);
        let Some(idx) = token else {
            return false;
        };
        if self.token(idx) != Token::Message {
            show.end(route, out);
            self.state = self.after_token(idx);
        }
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
    fn read_after_json(
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
                self.state = self.after_token(idx);
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

/// The calls of one message. A broken one ends with it, or where the next message starts.
fn block_rules(form: &XmlForm, open: Option<String>, closes: &[&'static str]) -> Arc<BlockRules> {
    let body = BodyRules::Xml(form.rules(open, closes));
    let closes = closes.iter().map(|close| Marker::exact(*close)).collect();
    let opens = vec![Marker::exact(START)];
    Arc::new(BlockRules::new(opens, closes, body, RawStart::No))
}
