//! The JSON readers: the boundary finds what the strict and the lenient reader read.

use serde_json::Value;
use twopass_core::text::{
    JsonBoundary, JsonEvent, JsonLimits, decode_arguments, read_json, read_lenient,
};

use crate::Target;
use crate::random::{Random, pieces};

const MAX_DEPTH: usize = 16;

pub(crate) struct Json;

const PARTS: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    "\\",
    ":",
    ",",
    " ",
    "\n",
    "\"a\"",
    "\"k\": ",
    "'s'",
    "1",
    "-2.5e3",
    "9223372036854775808",
    "1_000",
    ".5",
    "true",
    "True",
    "null",
    "None",
    "NaN",
    "\\u00e9",
    "\\ud83d\\ude00",
    "\\ud800",
    "\\x41",
    "😀",
    "ß",
    "\u{1}",
    "x",
];

impl Json {
    fn value(random: &mut Random, depth: usize, out: &mut String) {
        match random.below(if depth > 4 { 5 } else { 8 }) {
            0 => out.push_str("null"),
            1 => out.push_str("12345678901234567890123"),
            2 => out.push_str("\"a \\\" ] } \\\\\""),
            3 => out.push_str("\"ß\\n\""),
            4 => out.push_str("-0.5"),
            5 | 6 => {
                out.push('{');
                for idx in 0..random.below(4) {
                    if idx > 0 {
                        out.push_str(", ");
                    }
                    out.push_str(&format!("\"k{idx}\": "));
                    Self::value(random, depth + 1, out);
                }
                out.push('}');
            }
            _ => {
                out.push('[');
                for idx in 0..random.below(4) {
                    if idx > 0 {
                        out.push(',');
                    }
                    Self::value(random, depth + 1, out);
                }
                out.push(']');
            }
        }
    }
}

/// The events with the offset of each.
fn events(bytes: &[u8], lens: &[usize]) -> Vec<(usize, JsonEvent)> {
    let mut boundary = JsonBoundary::new(2, MAX_DEPTH);
    let mut events = Vec::new();
    let mut at = 0;
    for piece in pieces(bytes, lens) {
        let mut rest = piece;
        loop {
            let (taken, event) = boundary.feed(rest);
            at += taken;
            rest = &rest[taken..];
            if event == JsonEvent::More {
                break;
            }
            events.push((at, event));
            if matches!(event, JsonEvent::End { level: 0 } | JsonEvent::Error) {
                return events;
            }
        }
    }
    events
}

impl Target for Json {
    fn name(&self) -> String {
        "json".to_owned()
    }

    fn input(&self, random: &mut Random) -> Vec<u8> {
        let mut text = String::new();
        if random.one_in(2) {
            Self::value(random, 0, &mut text);
        }
        for _ in 0..random.below(if text.is_empty() { 20 } else { 3 }) {
            let part = *random.pick(&PARTS);
            let mut at = random.below(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.insert_str(at, part);
        }
        text.into_bytes()
    }

    fn check(&self, input: &[u8], random: &mut Random) -> Result<(), String> {
        let whole = events(input, &[input.len()]);
        for lens in [vec![1; input.len()], random.cuts(input.len())] {
            let cut = events(input, &lens);
            // At the very end a number may still go on; nothing else may differ.
            if cut != whole {
                return Err(format!("boundary: whole {whole:?}, cut {cut:?}"));
            }
        }
        let Ok(text) = std::str::from_utf8(input) else {
            return Ok(());
        };
        let limits = JsonLimits {
            max_bytes: 4096,
            max_depth: MAX_DEPTH,
        };
        let arguments = decode_arguments(text, &limits);
        let lenient = read_lenient(text, MAX_DEPTH);
        let Ok(strict) = read_json(text, MAX_DEPTH) else {
            return Ok(());
        };
        if let Ok(own) = serde_json::from_str::<Value>(text)
            && own != strict
        {
            return Err(format!("strict reader: {strict} instead of {own}"));
        }
        match lenient {
            Ok((value, _)) if value == strict => {}
            other => return Err(format!("lenient reader: {other:?} instead of {strict}")),
        }
        if strict.is_object() && !arguments.is_ok_and(|decoded| !decoded.repaired) {
            return Err("strict arguments were refused or repaired".to_owned());
        }
        let ended = whole.last();
        let is_whole = matches!(
            strict,
            Value::Object(_) | Value::Array(_) | Value::String(_)
        );
        if is_whole
            && !ended.is_some_and(|(at, event)| {
                *event == JsonEvent::End { level: 0 } && text[*at..].trim().is_empty()
            })
        {
            return Err(format!("boundary: ended with {ended:?}"));
        }
        Ok(())
    }
}
