use serde_json::{Map, Number, Value};

use crate::chat::CallErrorKind;

/// Limits for reading one JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// Longest text, in bytes. Default 1 MiB: a longer one is refused before it is parsed.
    pub max_bytes: usize,
    /// Deepest nesting. Default 128, which is also the most that is possible.
    pub max_depth: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self {
            max_bytes: 1 << 20,
            max_depth: MAX_DEPTH,
        }
    }
}

/// serde_json refuses deeper values, which keeps every later reader of ours safe, too.
const MAX_DEPTH: usize = 128;

/// Arguments as read.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedArguments {
    /// The object.
    pub object: Map<String, Value>,
    /// The strict JSON text of the object, if the model wrote it so.
    pub text: Option<String>,
    /// True if only the lenient reader could read it.
    pub repaired: bool,
}

/// Why arguments could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentError {
    /// `MalformedArguments` or `ArgumentsTooLarge`.
    pub kind: CallErrorKind,
    /// What is wrong, for people and for the model.
    pub message: String,
}

impl ArgumentError {
    fn malformed(message: impl Into<String>) -> Self {
        Self {
            kind: CallErrorKind::MalformedArguments,
            message: message.into(),
        }
    }
}

/// Reads the argument text of one call: strict JSON first, the lenient reader if that fails.
///
/// Nothing, white space and `null` mean no arguments. A JSON string that holds an object is
/// decoded once more. A code fence around the object and text after it are ignored (and
/// count as a repair).
///
/// # Errors
/// The text is over the limits, or no object even when read leniently.
pub fn decode_arguments(raw: &str, limits: &JsonLimits) -> Result<DecodedArguments, ArgumentError> {
    if raw.len() > limits.max_bytes {
        return Err(ArgumentError {
            kind: CallErrorKind::ArgumentsTooLarge,
            message: format!(
                "arguments have {} bytes, at most {} are allowed",
                raw.len(),
                limits.max_bytes
            ),
        });
    }
    decode_once(raw, limits, true)
}

fn decode_once(
    raw: &str,
    limits: &JsonLimits,
    unwrap: bool,
) -> Result<DecodedArguments, ArgumentError> {
    let trimmed = raw.trim();
    if trimmed.is_empty() {
        return Ok(DecodedArguments {
            object: Map::new(),
            text: None,
            repaired: false,
        });
    }
    let (value, repaired) = match read_json(trimmed, limits.max_depth) {
        Ok(value) => (value, false),
        Err(strict) => match read_lenient(without_fence(trimmed), limits.max_depth) {
            Ok((value, _)) => (value, true),
            Err(lenient) => {
                return Err(ArgumentError::malformed(format!(
                    "not JSON: {strict}; read leniently: {lenient}"
                )));
            }
        },
    };
    match value {
        Value::Object(object) => Ok(DecodedArguments {
            object,
            text: (!repaired).then(|| trimmed.to_owned()),
            repaired,
        }),
        Value::Null => Ok(DecodedArguments {
            object: Map::new(),
            text: None,
            repaired,
        }),
        Value::String(inner) if unwrap => {
            let mut decoded = decode_once(&inner, limits, false)?;
            decoded.repaired |= repaired;
            Ok(decoded)
        }
        Value::String(_) => Err(ArgumentError::malformed(
            "arguments must be an object, not a string",
        )),
        Value::Array(_) => Err(ArgumentError::malformed(
            "arguments must be an object, not an array",
        )),
        Value::Bool(_) | Value::Number(_) => Err(ArgumentError::malformed(
            "arguments must be an object, not a number or boolean",
        )),
    }
}

/// The text behind the first line of a code fence.
fn without_fence(text: &str) -> &str {
    match text.strip_prefix("```") {
        Some(fenced) => fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric()),
        None => text,
    }
}

/// Reads strict JSON of at most this depth.
///
/// # Errors
/// What is wrong and where.
pub fn read_json(text: &str, max_depth: usize) -> Result<Value, String> {
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if max_depth < MAX_DEPTH && depth_of(&value) > max_depth {
        return Err(format!("nested deeper than {max_depth}"));
    }
    Ok(value)
}

fn depth_of(value: &Value) -> usize {
    // Recursion is bounded: no value of ours is deeper than `MAX_DEPTH`.
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}

/// Reads one value as a careless model writes it; returns the value and the bytes it took.
///
/// Beyond JSON it takes Python literals (`True`, `False`, `None`, tuples), strings in single
/// quotes, trailing commas and raw control characters in strings; what follows the value is
/// left alone. It never closes an open string or bracket, and refuses `NaN` and `Infinity`.
///
/// # Errors
/// What is wrong and where.
pub fn read_lenient(text: &str, max_depth: usize) -> Result<(Value, usize), String> {
    let mut reader = Lenient {
        text,
        at: 0,
        depth_left: max_depth.min(MAX_DEPTH),
    };
    let value = reader.value()?;
    Ok((value, reader.at))
}

struct Lenient<'a> {
    text: &'a str,
    at: usize,
    depth_left: usize,
}

impl Lenient<'_> {
    fn value(&mut self) -> Result<Value, String> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(|reader| reader.items(b']')),
            Some(b'(') => self.nested(|reader| reader.items(b')')),
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(Value::String),
            Some(_) => self.literal(),
            None => Err(self.wrong("the text ends where a value is expected")),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let Some(left) = self.depth_left.checked_sub(1) else {
            return Err(self.wrong("nested too deep"));
        };
        self.depth_left = left;
        self.at += 1;
        let value = read(self)?;
        self.depth_left += 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut members = Map::new();
        loop {
            self.skip_space();
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(members));
                }
                Some(quote @ (b'"' | b'\'')) => {
                    let key = self.string(quote)?;
                    self.skip_space();
                    if self.peek() != Some(b':') {
                        return Err(self.wrong("`:` expected"));
                    }
                    self.at += 1;
                    let value = self.value()?;
                    members.insert(key, value);
                }
                Some(_) => return Err(self.wrong("a key in quotes or `}` expected")),
                None => return Err(self.wrong("an object is not closed")),
            }
            self.separator(b'}')?;
        }
    }

    fn items(&mut self, close: u8) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                Some(_) => items.push(self.value()?),
                None => return Err(self.wrong("an array is not closed")),
            }
            self.separator(close)?;
        }
    }

    /// After a member: a comma is taken, a closing bracket is left for the caller.
    fn separator(&mut self, close: u8) -> Result<(), String> {
        self.skip_space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(())
            }
            Some(byte) if byte == close => Ok(()),
            Some(_) => Err(self.wrong("`,` or a closing bracket expected")),
            None => Err(self.wrong("a bracket is not closed")),
        }
    }

    fn string(&mut self, quote: u8) -> Result<String, String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(len) = rest.bytes().position(|byte| byte == quote || byte == b'\\') else {
                return Err(self.wrong("a string is not closed"));
            };
            out.push_str(&rest[..len]);
            self.at += len + 1;
            if rest.as_bytes()[len] == quote {
                return Ok(out);
            }
            self.escape(&mut out)?;
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), String> {
        let Some(kind) = self.text[self.at..].chars().next() else {
            return Err(self.wrong("a string is not closed"));
        };
        self.at += kind.len_utf8();
        let decoded = match kind {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '0' => '\0',
            '"' | '\'' | '\\' | '/' => kind,
            // A Python line continuation.
            '\n' => return Ok(()),
            'x' => self
                .hex(2)
                .and_then(char::from_u32)
                .ok_or_else(|| self.wrong("bad `\\x` escape"))?,
            'U' => self
                .hex(8)
                .and_then(char::from_u32)
                .ok_or_else(|| self.wrong("bad `\\U` escape"))?,
            'u' => self.utf16_escape()?,
            other => {
                // Python keeps an unknown escape as it stands; models mean that, too.
                out.push('\\');
                other
            }
        };
        out.push(decoded);
        Ok(())
    }

    fn utf16_escape(&mut self) -> Result<char, String> {
        let high = self.hex(4).ok_or_else(|| self.wrong("bad `\\u` escape"))?;
        if let Some(single) = char::from_u32(high) {
            return Ok(single);
        }
        if (0xD800..0xDC00).contains(&high) && self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            if let Some(low) = self.hex(4)
                && (0xDC00..0xE000).contains(&low)
            {
                let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return char::from_u32(code).ok_or_else(|| self.wrong("bad surrogate pair"));
            }
        }
        Err(self.wrong("lone surrogate"))
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let text = self.text.get(self.at..self.at + digits)?;
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += digits;
        u32::from_str_radix(text, 16).ok()
    }

    fn literal(&mut self) -> Result<Value, String> {
        let rest = &self.text[self.at..];
        let len = rest
            .bytes()
            .position(|byte| {
                !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_'))
            })
            .unwrap_or(rest.len());
        let word = &rest[..len];
        let value = match word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ => Value::Number(number(word).ok_or_else(|| self.wrong("a value expected"))?),
        };
        self.at += len;
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what} at byte {}", self.at)
    }
}

/// A JSON number, or one as Python writes it (`1_000`, `.5`, `5.`, `+3`).
fn number(word: &str) -> Option<Number> {
    if let Ok(number) = word.parse::<Number>() {
        return Some(number);
    }
    let plain = word.replace('_', "");
    let plain = plain.strip_prefix('+').unwrap_or(&plain);
    if !plain.bytes().any(|byte| byte.is_ascii_digit())
        || plain
            .bytes()
            .any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E'))
    {
        return None;
    }
    if let Ok(number) = plain.parse::<Number>() {
        return Some(number);
    }
    let number: f64 = plain.parse().ok()?;
    Number::from_f64(number)
}

/// Deepest value that one argument of an XML-like notation may hold, in levels.
const MAX_VALUE_DEPTH: usize = 64;

/// A text that is one JSON value as a whole, strictly or leniently read.
pub(crate) fn whole_json(text: &str) -> Option<Value> {
    let text = text.trim();
    read_json(text, MAX_VALUE_DEPTH).ok().or_else(|| {
        let (value, len) = read_lenient(text, MAX_VALUE_DEPTH).ok()?;
        (len == text.len()).then_some(value)
    })
}
