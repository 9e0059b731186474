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
    /// The HTTP status that it would have, in an event of a stream whose status is out already.
    pub status: Option<u16>,
    /// Seconds after which to come again, in an event likewise.
    pub retry_after_s: Option<u32>,
}

impl ErrorBody {
    /// The body as JSON text. `param` is present and null if there is none; status and pause
    /// are present only if known.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.with_status(json!({"kind": self.kind, "message": self.message, "param": self.param}))
    }

    fn with_status(&self, mut error: Value) -> String {
        if let Some(status) = self.status {
            error["status"] = status.into();
        }
        if let Some(seconds) = self.retry_after_s {
            error["retry_after_s"] = seconds.into();
        }
        json!({ "error": error }).to_string()
    }

    /// The body as the OpenAI family has it: `{"error": {"message", "type", "param", "code"}}`.
    /// `code` is our kind where the API has no word of its own for it.
    ///
    /// Source: OpenAI API reference, error codes, read 2026-11.
    #[must_use]
    pub fn to_openai_json(&self) -> String {
        let (class, code) = match self.kind.as_str() {
            "unauthorized" => ("invalid_request_error", "invalid_api_key"),
            "context_length" => ("invalid_request_error", "context_length_exceeded"),
            "not_found" if self.param.as_deref() == Some("model") => {
                ("invalid_request_error", "model_not_found")
            }
            "rate_limited" => ("rate_limit_error", "rate_limit_exceeded"),
            "quota_exhausted" => ("insufficient_quota", "insufficient_quota"),
            kind @ "queue_full" => ("rate_limit_error", kind),
            kind if is_callers(kind) => ("invalid_request_error", kind),
            kind => ("server_error", kind),
        };
        self.with_status(json!({
            "message": self.message,
            "type": class,
            "param": self.param,
            "code": code,
        }))
    }

    /// The body as Anthropic Messages has it: `{"type": "error", "error": {"type", "message"}}`.
    ///
    /// Source: Anthropic API reference, errors, read 2026-11.
    #[must_use]
    pub fn to_anthropic_json(&self) -> String {
        let class = match self.kind.as_str() {
            "unauthorized" | "auth" => "authentication_error",
            "forbidden" => "permission_error",
            "not_found" => "not_found_error",
            "body_too_large" => "request_too_large",
            "rate_limited" | "queue_full" | "quota_exhausted" => "rate_limit_error",
            "overloaded" | "shutting_down" => "overloaded_error",
            kind if kind.starts_with("timeout_") => "timeout_error",
            kind if is_callers(kind) => "invalid_request_error",
            _ => "api_error",
        };
        json!({"type": "error", "error": {"type": class, "message": self.message}}).to_string()
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
                status: error.get("status").and_then(whole),
                retry_after_s: error.get("retry_after_s").and_then(whole),
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
                ..Self::default()
            },
            Some(_) => return None,
        };
        Some(Self {
            message: one_line(&body.message),
            ..body
        })
    }
}

fn whole<N: TryFrom<u64>>(value: &Value) -> Option<N> {
    N::try_from(value.as_u64()?).ok()
}

/// True for kinds on which the caller must act.
fn is_callers(kind: &str) -> bool {
    matches!(
        kind,
        "invalid_json"
            | "bad_request"
            | "context_length"
            | "forbidden"
            | "not_found"
            | "method_not_allowed"
            | "request_timeout"
            | "body_too_large"
            | "unsupported_media_type"
            | "prefill_unsupported"
    )
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
