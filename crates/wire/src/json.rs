//! JSON objects read field by field, so that every error can name its place.
//!
//! Parts that only pass through stay text (`RawValue`): call arguments keep integers beyond
//! 64 bits and the order of their keys.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use twopass_core::chat::BadRequest;
use twopass_core::text::find_byte;

/// A JSON object whose values have not been read yet, and where it stands.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    path: String,
    all: Lenient<'a>,
}

impl<'a> Fields<'a> {
    /// Reads an object from text.
    pub(crate) fn read(path: impl Into<String>, text: &'a str) -> Result<Self, BadRequest> {
        let path = path.into();
        match serde_json::from_str(text) {
            Ok(all) => Ok(Self { path, all }),
            Err(error) if error.is_data() => Err(BadRequest::new(
                path,
                format!("must be an object, got {}", brief(text)),
            )),
            Err(error) => Err(BadRequest::new(path, format!("is not JSON: {error}"))),
        }
    }

    /// The place of a field, as a caller would write it.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() || self.path == "body" {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// A field's text; absent and null are the same.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.all.raw(name)
    }

    /// The fields that nobody reads, in the order of their names, as they stand.
    pub(crate) fn extra(&self, known: &[&str]) -> Vec<(String, String)> {
        let fields = self.all.0.iter().rev();
        let mut others: Vec<_> = fields
            .filter(|(name, _)| !known.contains(&&**name))
            .collect();
        // Stable, and from the last on: of two fields of one name the last counts.
        others.sort_by(|(one, _), (other, _)| one.cmp(other));
        others.dedup_by(|(later, _), (kept, _)| later == kept);
        let others = others.into_iter().filter(|(_, raw)| raw.get() != "null");
        others
            .map(|(name, raw)| (name.to_string(), raw.get().to_owned()))
            .collect()
    }

    /// A field's value; absent and null are the same.
    pub(crate) fn value(&self, name: &str) -> Result<Option<Value>, BadRequest> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        serde_json::from_str(raw).map(Some).map_err(|error| {
            BadRequest::new(self.path_of(name), format!("cannot be read: {error}"))
        })
    }

    pub(crate) fn fault(&self, name: &str, allowed: &str) -> BadRequest {
        let got = self.raw(name).map_or_else(|| "nothing".to_owned(), brief);
        BadRequest::new(self.path_of(name), format!("must be {allowed}, got {got}"))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, BadRequest> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.fault(name, "a string")),
        }
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, BadRequest> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.fault(name, "true or false")),
        }
    }

    pub(crate) fn float(&self, name: &str) -> Result<Option<f32>, BadRequest> {
        match self.value(name)? {
            None => Ok(None),
            Some(Value::Number(number)) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "sampling values need no more"
                )]
                let value = number.as_f64().map(|value| value as f32);
                value
                    .filter(|value| value.is_finite())
                    .map(Some)
                    .ok_or_else(|| self.fault(name, "a number"))
            }
            Some(_) => Err(self.fault(name, "a number")),
        }
    }

    /// A whole number from `least` to `most`; `8.0` counts as 8.
    pub(crate) fn whole(
        &self,
        name: &str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, BadRequest> {
        let Some(value) = self.value(name)? else {
            return Ok(None);
        };
        let whole = match &value {
            Value::Number(number) => number
                .as_u64()
                .or_else(|| number.as_f64().and_then(whole_float)),
            _ => None,
        };
        match whole {
            Some(whole) if (least..=most).contains(&whole) => Ok(Some(whole)),
            Some(whole) if whole > most => {
                Err(self.fault(name, &format!("a whole number from {least} to {most}")))
            }
            _ => Err(self.fault(name, &format!("a whole number of at least {least}"))),
        }
    }

    /// A cap in tokens.
    pub(crate) fn cap(&self, name: &str, least: u32) -> Result<Option<u32>, BadRequest> {
        let value = self.whole(name, u64::from(least), u64::from(u32::MAX))?;
        Ok(value.and_then(|value| u32::try_from(value).ok()))
    }

    /// The elements of an array, unread, with their places.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<(String, &'a str)>, BadRequest> {
        let Some(raw) = self.raw(name) else {
            return Ok(Vec::new());
        };
        let items: Vec<&'a RawValue> =
            serde_json::from_str(raw).map_err(|_| self.fault(name, "an array"))?;
        let path = self.path_of(name);
        Ok(items
            .into_iter()
            .enumerate()
            .map(|(idx, item)| (format!("{path}[{idx}]"), item.get().trim()))
            .collect())
    }
}

fn whole_float(value: f64) -> Option<u64> {
    // 2^53: beyond it a float no longer says which whole number was meant.
    if value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        return Some(value as u64);
    }
    None
}

/// What was given, short enough for a message: scalars as they stand, the rest by kind.
pub(crate) fn brief(text: &str) -> String {
    match text.as_bytes().first() {
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "an array".to_owned(),
        Some(b'"') if text.len() > 42 => "a longer string".to_owned(),
        _ => format!("`{}`", text.chars().take(40).collect::<String>()),
    }
}

/// A short decimal of a sampling value: `0.3`, not `0.30000001192092896`.
pub(crate) fn decimal(value: f32) -> Value {
    value
        .to_string()
        .parse::<f64>()
        .map_or(Value::Null, Value::from)
}

/// Room that an object begins with: most have so much to say.
const OBJECT_BYTES: usize = 256;

/// A JSON object written field by field, for parts whose text passes through unchanged.
#[derive(Debug, Default)]
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn raw(&mut self, name: &str, json: &str) {
        if self.0.is_empty() {
            self.0.reserve(OBJECT_BYTES);
            self.0.push('{');
        } else {
            self.0.push(',');
        }
        push_text(name, &mut self.0);
        self.0.push(':');
        self.0.push_str(json);
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.raw(name, "");
        push_text(text, &mut self.0);
    }

    pub(crate) fn value(&mut self, name: &str, value: &Value) {
        self.raw(name, &text_of(value));
    }

    /// These JSON texts as an array.
    pub(crate) fn list(&mut self, name: &str, items: &[String]) {
        let bytes: usize = items.iter().map(|item| item.len() + 1).sum();
        self.0.reserve(bytes + name.len() + 8);
        self.raw(name, "[");
        for (idx, item) in items.iter().enumerate() {
            if idx > 0 {
                self.0.push(',');
            }
            self.0.push_str(item);
        }
        self.0.push(']');
    }

    pub(crate) fn finish(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        // One valid object by construction: names are quoted and every value is JSON text.
        debug_assert!(serde_json::from_str::<&RawValue>(&self.0).is_ok());
        self.0
    }
}

impl Object {
    pub(crate) fn count(&mut self, name: &str, value: u64) {
        self.raw(name, &value.to_string());
    }
}

/// Appends a text as a JSON string. Runs that need no escape are copied whole.
pub(crate) fn push_text(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let stop = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
        let at = from + find_byte(&bytes[from..], stop);
        out.push_str(&text[from..at]);
        let Some(&byte) = bytes.get(at) else { break };
        from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            other => {
                let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
                out.push_str("\\u00");
                out.push(digit(other >> 4));
                out.push(digit(other & 15));
            }
        }
    }
    out.push('"');
}

/// A value as JSON, without the detour that `Display` takes.
pub(crate) fn text_of(value: &impl Serialize) -> String {
    // What has texts for keys can always be written.
    serde_json::to_string(value).unwrap_or_default()
}

/// JSON texts as one array.
pub(crate) fn array(items: &[String]) -> String {
    format!("[{}]", items.join(","))
}

/// A JSON object from outside whose values are text: for readers that take what they can
/// use and pass over the rest, whatever its type. Of two fields of one name the last counts.
#[derive(Debug, Default)]
pub(crate) struct Lenient<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Lenient<'a> {
    /// Reads an object, behind a byte order mark if there is one; `None` if the text is
    /// something else.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        serde_json::from_str(text).ok()
    }

    /// A field's text; absent and null are the same.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        let field = self.0.iter().rev().find(|(known, _)| known == name);
        field
            .map(|(_, raw)| raw.get().trim())
            .filter(|text| *text != "null")
    }

    /// A string that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.raw(name)
            .and_then(string)
            .filter(|text| !text.is_empty())
    }

    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        let number: serde_json::Number = serde_json::from_str(self.raw(name)?).ok()?;
        number
            .as_u64()
            .or_else(|| number.as_f64().and_then(whole_float))
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    pub(crate) fn value(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    pub(crate) fn object(&self, name: &str) -> Option<Lenient<'a>> {
        Self::read(self.raw(name)?)
    }

    /// The elements of an array; a single object counts as an array of one.
    pub(crate) fn list(&self, name: &str) -> Vec<&'a str> {
        self.raw(name).map(elements).unwrap_or_default()
    }
}

/// The elements of an array; anything else counts as an array of one.
pub(crate) fn elements(text: &str) -> Vec<&str> {
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(items) => items.into_iter().map(|item| item.get().trim()).collect(),
        Err(_) => vec![text],
    }
}

/// The text of a JSON string; `None` if it is something else. Half a surrogate pair, which
/// servers that count UTF-16 cut from its other half, becomes U+FFFD.
pub(crate) fn string(text: &str) -> Option<String> {
    match serde_json::from_str(text) {
        Ok(text) => Some(text),
        Err(_) if text.starts_with('"') => serde_json::from_str(&without_lone_halves(text)).ok(),
        Err(_) => None,
    }
}

/// JSON text in which escapes of lone surrogates stand for U+FFFD.
fn without_lone_halves(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match (surrogate(rest), rest.get(6..).and_then(surrogate)) {
            (Some(Half::High), Some(Half::Low)) => 12,
            (Some(_), _) => {
                out.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            // Any other escape, its second character taken along.
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out.push_str(rest);
    out
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// The half of a surrogate pair whose escape the text begins with.
fn surrogate(text: &str) -> Option<Half> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xD800..0xDC00 => Some(Half::High),
        0xDC00..0xE000 => Some(Half::Low),
        _ => None,
    }
}

/// Reads a text that comes in JSON strings and may be cut within a surrogate pair.
#[derive(Debug, Default)]
pub(crate) struct SplitText {
    /// The escape of a high half that ended the last string.
    high: String,
}

impl SplitText {
    /// The next piece; `None` if this is no JSON string.
    pub(crate) fn read(&mut self, json: &str) -> Option<String> {
        let mut text = Cow::Borrowed(json);
        if !self.high.is_empty() {
            let rest = json.strip_prefix('"')?;
            text = Cow::Owned(format!("\"{}{rest}", std::mem::take(&mut self.high)));
        }
        if let Some((head, high)) = ends_in_high(&text) {
            self.high = high.to_owned();
            return string(&format!("{head}\""));
        }
        string(&text)
    }

    /// What is left at the end of the input.
    pub(crate) fn rest(&mut self) -> Option<char> {
        let is_left = !std::mem::take(&mut self.high).is_empty();
        is_left.then_some(char::REPLACEMENT_CHARACTER)
    }
}

/// A JSON string without its closing quote, split before the escape of a high half that it
/// ends in.
fn ends_in_high(json: &str) -> Option<(&str, &str)> {
    let cut = json.len().checked_sub(7)?;
    let (head, high) = (json.get(..cut)?, json.get(cut..json.len() - 1)?);
    let slashes = head.bytes().rev().take_while(|byte| *byte == b'\\');
    let is_escape = slashes.count() % 2 == 0;
    (is_escape && surrogate(high) == Some(Half::High)).then_some((head, high))
}

impl<'de: 'a, 'a> Deserialize<'de> for Lenient<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fill;
        impl<'de> Visitor<'de> for Fill {
            type Value = Lenient<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(Key(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(Lenient(fields))
            }
        }
        deserializer.deserialize_map(Fill)
    }
}

/// A field's name, borrowed where it holds no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_surrogate_pair_is_one_replacement() {
        for (json, text) in [
            ("\"a\\ud83d\\ude00b\"", "a\u{1F600}b"),
            ("\"a\\ud83d b\"", "a\u{FFFD} b"),
            ("\"\\ude00\"", "\u{FFFD}"),
            ("\"\\ud83d\\ud83d\\ude00\"", "\u{FFFD}\u{1F600}"),
            ("\"\\\\ud83d\"", "\\ud83d"),
        ] {
            assert_eq!(string(json).as_deref(), Some(text), "{json}");
        }
    }
}
