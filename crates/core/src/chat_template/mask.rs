//! Control strings in untrusted text: out before rendering, back as literals after it.

use serde_json::{Map, Value};

use super::{Piece, Prompt, RenderInput, Segment};

/// The strings that act as control tokens or as markup for one model: the vocabulary's
/// control and user-defined tokens, the dialect's markers, the think tags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlStrings {
    /// Longest first, so that the longest match wins; no empty string, no duplicate.
    strings: Vec<String>,
    /// Which first bytes occur, to skip quickly.
    first_bytes: Vec<u8>,
}

impl ControlStrings {
    /// Takes the strings in any order. Ones without any visible character are left out:
    /// vocabularies define runs of spaces or line ends as tokens, and these are harmless.
    #[must_use]
    pub fn new(strings: impl IntoIterator<Item = String>) -> Self {
        let mut strings: Vec<String> = strings
            .into_iter()
            .filter(|s| !s.trim().is_empty())
            .collect();
        strings.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        strings.dedup();
        let mut first_bytes: Vec<u8> = strings.iter().map(|s| s.as_bytes()[0]).collect();
        first_bytes.sort_unstable();
        first_bytes.dedup();
        Self {
            strings,
            first_bytes,
        }
    }

    /// The control string that starts at this text, if any.
    fn at_start(&self, text: &str) -> Option<&str> {
        let first = *text.as_bytes().first()?;
        self.first_bytes.binary_search(&first).ok()?;
        self.strings
            .iter()
            .find(|s| text.starts_with(s.as_str()))
            .map(String::as_str)
    }
}

/// Placeholder alphabet: private-use characters that no tokenizer treats specially.
const OPEN: char = '\u{F8F0}';
const CLOSE: char = '\u{F8F1}';

/// Replaces control strings by placeholders that occur nowhere in the input.
pub(super) struct Mask<'a> {
    control: &'a ControlStrings,
    /// Makes the placeholders unlike anything in the input, however it was made up.
    nonce: u32,
}

impl<'a> Mask<'a> {
    pub(super) fn new(input: &RenderInput<'a>) -> Self {
        let mut mask = Self {
            control: input.control,
            nonce: 0,
        };
        // The nonce is chosen after the input is known, so that nobody can guess it.
        let mut haystack = String::new();
        for message in input.messages {
            for piece in &message.content {
                let (Piece::Trusted(text) | Piece::Untrusted(text)) = piece;
                collect_private(text, &mut haystack);
            }
            let head = &message.head;
            let texts = [&head.name, &head.reasoning, &head.tool_call_id];
            for text in texts.into_iter().flatten() {
                collect_private(text, &mut haystack);
            }
            for call in &head.tool_calls {
                collect_private(&call.id, &mut haystack);
                collect_private(&call.name, &mut haystack);
                let arguments = Value::Object(call.arguments.as_object().clone());
                collect_private(&arguments.to_string(), &mut haystack);
            }
        }
        for tool in input.tools {
            collect_private(&tool.name, &mut haystack);
            collect_private(&tool.description, &mut haystack);
            collect_private(&tool.parameters.to_string(), &mut haystack);
        }
        for (_, value) in input.kwargs {
            collect_private(&value.to_string(), &mut haystack);
        }
        while haystack.contains(&mask.prefix()) {
            mask.nonce += 1;
        }
        mask
    }

    fn prefix(&self) -> String {
        format!("{OPEN}{}.", self.nonce)
    }

    /// This text with every control string replaced.
    pub(super) fn text(&self, text: &str) -> String {
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(control) = self.control.at_start(rest) {
                let idx = self
                    .control
                    .strings
                    .iter()
                    .position(|s| s == control)
                    .unwrap_or(0);
                masked.push_str(&format!("{}{idx}{CLOSE}", self.prefix()));
                rest = &rest[control.len()..];
            } else {
                masked.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        masked
    }

    /// This JSON value with every control string in strings and keys replaced.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => Value::Array(items.iter().map(|v| self.value(v)).collect()),
            Value::Object(object) => Value::Object(
                object
                    .iter()
                    .map(|(key, v)| (self.text(key), self.value(v)))
                    .collect::<Map<_, _>>(),
            ),
            other => other.clone(),
        }
    }

    /// The rendered text as a prompt, control strings back as literals.
    pub(super) fn unmask(&self, rendered: &str) -> Prompt {
        let prefix = self.prefix();
        let mut prompt = Prompt::default();
        let mut rest = rendered;
        while let Some(at) = rest.find(&prefix) {
            let after = &rest[at + prefix.len()..];
            let literal = after.find(CLOSE).and_then(|end| {
                let idx: usize = after[..end].parse().ok()?;
                Some((self.control.strings.get(idx)?, end))
            });
            let Some((literal, end)) = literal else {
                // A template that cut a placeholder: nothing of it may reach the model.
                prompt.push_markup(&rest[..at]);
                rest = after;
                continue;
            };
            prompt.push_markup(&rest[..at]);
            prompt.segments.push(Segment::Literal(literal.clone()));
            rest = &after[end + CLOSE.len_utf8()..];
        }
        prompt.push_markup(rest);
        prompt
    }
}

/// Appends the runs of `text` that could be placeholders.
fn collect_private(text: &str, out: &mut String) {
    if text.contains(OPEN) {
        out.push_str(text);
    }
}
