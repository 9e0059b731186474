//! Error bodies: `{"error": {"kind", "message", "param"}}` out, that and its common
//! relatives in.

use serde_json::{Map, Value, json};

/// The most characters of an outside error text that we keep.
const MAX_MESSAGE_CHARS: usize = 600;

/// An error as it stands in a body or in an `error` event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorBody {
    /// The machine-readable kind; empty if the sender gave none.
    pub kind: String,
    /// What is wrong, for people. One line.
    pub message: String,
    /// The request's parameter at fault.
    pub param: Option<String>,
}

impl ErrorBody {
    /// The body as JSON text. `param` is present and null if there is none.
    #[must_use]
    pub fn to_json(&self) -> String {
        json!({"error": {"kind": self.kind, "message": self.message, "param": self.param}})
            .to_string()
    }

    /// Reads an error body: ours, `{"error": {"type", "message", "code", "param"}}`,
    /// `{"error": "text"}`, `{"detail": ..}` or `{"message": ..}`. `None` if the bytes are
    /// none of these.
    #[must_use]
    pub fn from_json(body: &[u8]) -> Option<Self> {
        match serde_json::from_slice(body).ok()? {
            Value::Object(object) => Self::from_object(&object),
            _ => None,
        }
    }

    fn from_object(object: &Map<String, Value>) -> Option<Self> {
        let body = match object.get("error") {
            Some(Value::Object(error)) => Self {
                kind: first_text(error, &["kind", "type", "code"]).unwrap_or_default(),
                message: first_text(error, &["message", "detail"]).unwrap_or_default(),
                param: first_text(error, &["param"]),
            },
            Some(Value::String(message)) => Self {
                message: message.clone(),
                ..Self::default()
            },
            Some(Value::Null) | None => Self {
                kind: String::new(),
                message: match object.get("detail") {
                    Some(Value::String(text)) => text.clone(),
                    Some(detail @ (Value::Array(_) | Value::Object(_))) => detail.to_string(),
                    _ => first_text(object, &["message"])?,
                },
                param: None,
            },
            Some(_) => return None,
        };
        Some(Self {
            message: one_line(&body.message),
            ..body
        })
    }
}

fn first_text(object: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| match object.get(*name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    })
}

/// The text on one line, control characters as spaces, at most [`MAX_MESSAGE_CHARS`] long.
fn one_line(text: &str) -> String {
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_MESSAGE_CHARS)
        .collect();
    if text.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        line.push('…');
    }
    line.trim().to_owned()
}
