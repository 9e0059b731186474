//! Gemma's bodies: `call:f{key:value, ..}` with bare keys and strings in a quote token.

use serde_json::{Map, Number, Value};

use super::block::{At, BlockRules, ENDED, Head, Input, Progress, skip_to_close};
use super::calls::{ArgumentBody, Calls};
use crate::chat::{CallErrorKind, Event};
use crate::text::to_python_json;

const CALL: &str = "call:";
const MAX_NAME_BYTES: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct GemmaRules {
    /// The token around strings.
    pub(crate) quote: String,
}

enum State {
    Name,
    Members,
    AfterCall,
    Skip,
}

pub(crate) struct GemmaBody {
    state: State,
    call_at: usize,
    member_at: usize,
    brackets: Vec<u8>,
    in_quote: bool,
    arguments: Map<String, Value>,
    n_members: usize,
    fault: Option<String>,
}

impl GemmaRules {
    /// Whether a call begins at the input's position.
    pub(crate) fn head(&self, input: &Input<'_>) -> Head<GemmaBody> {
        let mut ahead = Input {
            text: input.text,
            pos: input.pos,
            at_end: input.at_end,
        };
        match ahead.at(CALL) {
            At::Yes => ahead.pos += CALL.len(),
            At::Cut => return Head::More,
            At::No => return Head::No,
        }
        let name = ahead.identifier();
        match ahead.text.as_bytes().get(ahead.pos + name.len()) {
            None if name.len() <= MAX_NAME_BYTES => Head::More,
            Some(b'{') if !name.is_empty() => Head::Yes(GemmaBody {
                state: State::Name,
                call_at: input.pos,
                member_at: input.pos,
                brackets: Vec::new(),
                in_quote: false,
                arguments: Map::new(),
                n_members: 0,
                fault: None,
            }),
            _ => Head::No,
        }
    }
}

impl GemmaBody {
    /// The block is over the limit and was refused: its end is still looked for.
    pub(crate) fn skip(&mut self) {
        self.state = State::Skip;
    }

    pub(crate) fn is_skipping(&self) -> bool {
        matches!(self.state, State::Skip)
    }

    pub(crate) fn read(
        &mut self,
        rules: &BlockRules,
        gemma: &GemmaRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        loop {
            let step = match self.state {
                State::Name => {
                    input.pos += CALL.len();
                    let name = input.identifier();
                    calls.begin(name, None, out);
                    input.pos += name.len() + 1;
                    self.member_at = input.pos;
                    self.state = State::Members;
                    None
                }
                State::Members => self.read_members(gemma, input, calls, out),
                State::AfterCall => Some(after_call(rules, input, calls, out)),
                State::Skip => Some(skip_to_close(rules, input)),
            };
            if let Some(progress) = step {
                return progress;
            }
        }
    }

    fn read_members(
        &mut self,
        gemma: &GemmaRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let bytes = input.text.as_bytes();
        let quote = gemma.quote.as_bytes();
        while let Some(&byte) = bytes.get(input.pos) {
            if byte == quote[0] {
                match input.at(&gemma.quote) {
                    At::Yes => {
                        self.in_quote = !self.in_quote;
                        input.pos += quote.len();
                        continue;
                    }
                    At::Cut if !input.at_end => return Some(Progress::Need),
                    At::Cut | At::No => {}
                }
            }
            input.pos += 1;
            if self.in_quote {
                continue;
            }
            match byte {
                b'{' | b'[' => self.brackets.push(byte),
                b',' if self.brackets.is_empty() => {
                    self.take_member(
                        &input.text[self.member_at..input.pos - 1],
                        gemma,
                        calls,
                        out,
                    );
                    self.member_at = input.pos;
                }
                b'}' if self.brackets.is_empty() => {
                    self.take_member(
                        &input.text[self.member_at..input.pos - 1],
                        gemma,
                        calls,
                        out,
                    );
                    self.end_call(&input.text[self.call_at..input.pos], calls, out);
                    self.state = State::AfterCall;
                    return None;
                }
                b'}' | b']' if self.brackets.pop() != Some(byte - 2) => {
                    let raw = &input.text[self.call_at..input.pos];
                    calls.reject_block(
                        CallErrorKind::MalformedArguments,
                        raw,
                        "brackets do not match",
                        out,
                    );
                    self.state = State::Skip;
                    return None;
                }
                _ => {}
            }
        }
        self.read_on(input, calls, out)
    }

    /// All text is read and the call is still open.
    fn read_on(
        &mut self,
        input: &Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let raw = &input.text[self.call_at..];
        if !input.at_end {
            return Some(Progress::Need);
        }
        calls.reject_block(
            CallErrorKind::TruncatedToolCall,
            raw,
            "the turn ended before the call did",
            out,
        );
        Some(ENDED)
    }

    fn take_member(
        &mut self,
        text: &str,
        gemma: &GemmaRules,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) {
        if text.trim().is_empty() || self.fault.is_some() {
            return;
        }
        let depth = calls.limits().arguments.max_depth;
        let mut reader = Reader {
            text,
            at: 0,
            quote: &gemma.quote,
            depth_left: depth,
        };
        match reader.member() {
            Some((key, value)) if reader.at_end() => {
                let value = match (&value, calls.open_schema()) {
                    // An unquoted word is a string unless the schema says otherwise.
                    (Value::String(_), _) | (_, None) => value,
                    (_, Some(schema)) => as_schema_wants(schema, &key, value, text),
                };
                let head = if self.n_members == 0 { "{" } else { ", " };
                self.n_members += 1;
                let piece = format!(
                    "{head}{}: {}",
                    Value::from(key.as_str()),
                    to_python_json(&value, None)
                );
                calls.delta(&piece, out);
                self.arguments.insert(key, value);
            }
            _ => self.fault = Some(format!("argument {} cannot be read", self.n_members + 1)),
        }
    }

    fn end_call(&mut self, raw: &str, calls: &mut Calls, out: &mut Vec<Event>) {
        let body = match self.fault.take() {
            Some(message) => ArgumentBody::Malformed {
                raw: raw.to_owned(),
                message,
            },
            None => {
                calls.delta(if self.n_members == 0 { "{}" } else { "}" }, out);
                let object = std::mem::take(&mut self.arguments);
                ArgumentBody::Object {
                    object,
                    repaired: false,
                }
            }
        };
        calls.end(body, out);
    }
}

/// A bare number or word where the schema wants a string is that string.
fn as_schema_wants(schema: &Value, key: &str, value: Value, text: &str) -> Value {
    let kind = schema
        .get("properties")
        .and_then(|properties| properties.get(key)?.get("type"));
    if kind == Some(&Value::from("string")) && !matches!(value, Value::Object(_) | Value::Array(_))
    {
        let bare = text.split_once(':').map_or(text, |(_, bare)| bare);
        return Value::from(bare.trim());
    }
    value
}

fn after_call(
    rules: &BlockRules,
    input: &mut Input<'_>,
    calls: &mut Calls,
    out: &mut Vec<Event>,
) -> Progress {
    let from = input.pos;
    input.skip_space();
    match input.at_any(rules.closes()) {
        At::Yes => {
            input.pos += input.len_of_any(rules.closes());
            calls.settle(false, out);
            ENDED
        }
        At::Cut if !input.at_end => {
            input.pos = from;
            Progress::Need
        }
        _ if input.peek().is_none() && !input.at_end => {
            input.pos = from;
            Progress::Need
        }
        At::Cut | At::No => {
            input.pos = from;
            Progress::Ended { owed_close: true }
        }
    }
}

/// Reads values in Gemma's notation.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    quote: &'a str,
    depth_left: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    fn take(&mut self, what: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(what);
        self.at += if found { what.len() } else { 0 };
        found
    }

    fn member(&mut self) -> Option<(String, Value)> {
        self.skip_space();
        let key = if self.rest().starts_with(self.quote) {
            self.quoted()?
        } else {
            let len = self.rest().find([':', ',', '{', '}'])?;
            let key = self.rest()[..len].trim().trim_matches('"').to_owned();
            self.at += len;
            key
        };
        if !self.take(":") {
            return None;
        }
        Some((key, self.value()?))
    }

    fn quoted(&mut self) -> Option<String> {
        self.at += self.quote.len();
        let len = self.rest().find(self.quote)?;
        let text = self.rest()[..len].to_owned();
        self.at += len + self.quote.len();
        Some(text)
    }

    fn value(&mut self) -> Option<Value> {
        self.skip_space();
        if self.rest().starts_with(self.quote) {
            return self.quoted().map(Value::String);
        }
        self.depth_left = self.depth_left.checked_sub(1)?;
        let value = if self.take("{") {
            let mut members = Map::new();
            while !self.take("}") {
                let (key, value) = self.member()?;
                members.insert(key, value);
                self.take(",");
            }
            Value::Object(members)
        } else if self.take("[") {
            let mut items = Vec::new();
            while !self.take("]") {
                items.push(self.value()?);
                self.take(",");
            }
            Value::Array(items)
        } else {
            let len = self
                .rest()
                .find([',', '{', '}', '[', ']'])
                .unwrap_or(self.rest().len());
            let word = self.rest()[..len].trim().to_owned();
            if word.is_empty() {
                return None;
            }
            self.at += len;
            bare(&word)
        };
        self.depth_left += 1;
        Some(value)
    }
}

fn bare(word: &str) -> Value {
    match word {
        "true" | "True" => Value::Bool(true),
        "false" | "False" => Value::Bool(false),
        "null" | "None" => Value::Null,
        _ => match word.parse::<Number>() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::from(word.trim_matches('"')),
        },
    }
}
