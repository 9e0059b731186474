//! Gemma's bodies: `call:f{key:value, ..}` with bare keys and strings in a quote token.

use serde_json::{Map, Number, Value};

use super::block::{BlockRules, read_close};
use super::calls::Calls;
use super::input::{At, ENDED, Head, Input, Progress};
use super::object_args::ObjectArgs;
use crate::chat::{CallErrorKind, Event};

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
}

pub(crate) struct GemmaBody {
    state: State,
    call_at: usize,
    member_at: usize,
    brackets: Vec<u8>,
    in_quote: bool,
    arguments: ObjectArgs,
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
                arguments: ObjectArgs::default(),
            }),
            _ => Head::No,
        }
    }
}

impl GemmaBody {
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
                State::AfterCall => Some(read_close(rules, input, calls, out)),
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
                    self.arguments
                        .end(&input.text[self.call_at..input.pos], calls, out);
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
                    return Some(Progress::Broken);
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
        calls.reject_truncated(raw, out);
        Some(ENDED)
    }

    fn take_member(
        &mut self,
        text: &str,
        gemma: &GemmaRules,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) {
        if text.trim().is_empty() || self.arguments.is_faulty() {
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
                self.arguments.add(key, value, calls, out);
            }
            _ => {
                let place = self.arguments.n_read() + 1;
                self.arguments
                    .fail(format!("argument {place} cannot be read"));
            }
        }
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
