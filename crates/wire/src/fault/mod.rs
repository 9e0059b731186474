//! What went wrong upstream: every provider's error bodies, statuses and headers read into
//! one form, and the faults that decoders find in answers.
//!
//! A [`Fault`] never holds a whole body: its message is one line of at most 600 characters.

mod http_date;

use std::fmt;

use serde_json::Value;

use crate::error::ErrorBody;
use crate::json::Lenient;

/// What went wrong. The names are those of the case files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The key is missing, wrong or not allowed.
    Auth,
    /// The request is wrong.
    BadRequest,
    /// The model or the address does not exist.
    NotFound,
    /// The prompt does not fit.
    ContextLength,
    /// Too many requests; later they may pass.
    RateLimited,
    /// The account is used up: waiting does not help.
    QuotaExhausted,
    /// The provider is overloaded.
    Overloaded,
    /// The provider failed.
    UpstreamError,
    /// The answer cannot be read.
    InvalidResponse,
    /// The stream ended before its end.
    StreamTruncated,
    /// A last assistant message is not continued here.
    PrefillUnsupported,
    /// Vectors of another size than was asked for.
    DimensionMismatch,
}

impl FaultKind {
    /// The name on our wires and in case files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::BadRequest => "bad_request",
            Self::NotFound => "not_found",
            Self::ContextLength => "context_length",
            Self::RateLimited => "rate_limited",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Overloaded => "overloaded",
            Self::UpstreamError => "upstream_error",
            Self::InvalidResponse => "invalid_response",
            Self::StreamTruncated => "stream_truncated",
            Self::PrefillUnsupported => "prefill_unsupported",
            Self::DimensionMismatch => "dimension_mismatch",
        }
    }
}

/// A part of the request that the provider refused although others take it: the caller may
/// ask again without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// Thinking.
    Thinking,
    /// Tools.
    Tools,
    /// Continuing the last assistant message.
    Prefill,
}

/// Something that went wrong upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The HTTP status, or the status that an error object named.
    pub status: Option<u16>,
    /// One line for people.
    pub message: String,
    /// The parameter at fault, if the provider named one.
    pub param: Option<String>,
    /// How long to wait, in seconds, if the provider said so.
    pub retry_after_s: Option<f64>,
    /// What the provider cannot do, if that is why.
    pub refused: Option<Refused>,
}

impl Fault {
    /// A fault of this kind.
    #[must_use]
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            message: message.into(),
            param: None,
            retry_after_s: None,
            refused: None,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultKind::InvalidResponse, message)
    }

    /// An answer that ended too early, without anybody saying so.
    #[must_use]
    pub fn truncated() -> Self {
        Self::new(
            FaultKind::StreamTruncated,
            "the stream ended before its end: neither a finish reason nor an end marker came",
        )
    }

    /// True if the same request may pass later. Never retry once output was handed out.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            FaultKind::RateLimited
            | FaultKind::Overloaded
            | FaultKind::UpstreamError
            | FaultKind::StreamTruncated => true,
            FaultKind::Auth
            | FaultKind::BadRequest
            | FaultKind::NotFound
            | FaultKind::ContextLength
            | FaultKind::QuotaExhausted
            | FaultKind::InvalidResponse
            | FaultKind::PrefillUnsupported
            | FaultKind::DimensionMismatch => false,
        }
    }

    /// Reads an answer that is no success: status, headers (names in any case) and body.
    /// A date in `Retry-After` is compared with the answer's `Date`, else with `now_unix_s`.
    #[must_use]
    pub fn from_response<'h>(
        status: u16,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        body: &[u8],
        now_unix_s: f64,
    ) -> Self {
        let text = String::from_utf8_lossy(body);
        let mut fault = match Described::read(&text) {
            Some(described) => described.into_fault(Some(status)),
            None => {
                let message = if looks_like_html(&text) {
                    format!("HTTP {status} with an HTML page: {}", html_text(&text))
                } else if text.trim().is_empty() {
                    format!("HTTP {status} without a body")
                } else {
                    format!("HTTP {status}: {}", one_line(&text))
                };
                let mut fault = Self::new(FaultKind::UpstreamError, message);
                fault.kind = kind_of("", &fault.message, Some(status));
                fault
            }
        };
        fault.status = Some(status);
        fault.retry_after_s = retry_after(headers, now_unix_s).or(fault.retry_after_s);
        fault
    }

    /// Reads an error inside a success: an object with an `error` member, an `error` event,
    /// a failed response. `None` if the text describes no error (case rule 17).
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        Described::read(text).map(|described| described.into_fault(None))
    }

    /// The fault of a success whose body is not JSON.
    #[must_use]
    pub fn not_json(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        if looks_like_html(&text) {
            return Self::invalid(format!(
                "the answer is an HTML page, not JSON: is the base address right, is a proxy \
                 in the way? It says: {}",
                html_text(&text)
            ));
        }
        if text.trim().is_empty() {
            return Self::invalid("the answer is empty");
        }
        let start: String = one_line(&text).chars().take(80).collect();
        Self::invalid(format!("the answer is not JSON; it begins with `{start}`"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.message)
    }
}

impl std::error::Error for Fault {}

/// Arrays around an error, and errors that gateways put into errors, that are looked into.
const MAX_WRAPPINGS: u32 = 4;

/// What an error body says.
struct Described {
    /// Types and codes, lower case, joined by a space.
    names: String,
    message: String,
    param: Option<String>,
    status: Option<u16>,
    retry_after_s: Option<f64>,
}

impl Described {
    /// Reads `{"error": {..}}`, `{"error": "text"}`, `{"type": "error", "error": {..}}`,
    /// `{"errors": [..]}`, `{"detail": ..}`, `{"message": ..}`, `{"object": "error", ..}`
    /// and arrays of one of these.
    fn read(text: &str) -> Option<Self> {
        Self::read_within(text, MAX_WRAPPINGS)
    }

    fn read_within(text: &str, n_wrappings: u32) -> Option<Self> {
        let deeper = n_wrappings.checked_sub(1);
        let text = text.trim();
        if text.starts_with('[') {
            let first: Vec<&serde_json::value::RawValue> = serde_json::from_str(text).ok()?;
            return Self::read_within(first.first()?.get(), deeper?);
        }
        let outer = Lenient::read(text)?;
        let inner = outer
            .object("error")
            .or_else(|| outer.object("response")?.object("error"))
            .or_else(|| Lenient::read(outer.list("errors").first()?));
        let body = ErrorBody::from_json(text.as_bytes());
        let fields = inner.as_ref().unwrap_or(&outer);
        let message = fields
            .text("message")
            .or_else(|| outer.text("error"))
            .or_else(|| body.as_ref().map(|body| body.message.clone()))
            .filter(|message| !message.is_empty());
        if message.is_none() && inner.is_none() {
            return None;
        }
        let mut names = String::new();
        let mut status = None;
        for name in ["type", "code", "status", "kind", "error_type"] {
            if let Some(word) = fields.text(name) {
                names.push_str(&word.to_ascii_lowercase());
                names.push(' ');
                status = status.or_else(|| word.parse().ok());
            }
            if let Some(number) = fields.count(name) {
                status = status.or_else(|| u16::try_from(number).ok());
            }
        }
        // A gateway's error often wraps the provider's own.
        let nested = fields.object("metadata").and_then(|meta| meta.text("raw"));
        let mut message = message.unwrap_or_else(|| "the provider gave no message".to_owned());
        if let Some(nested) = &nested {
            let inner = deeper.and_then(|n| Self::read_within(nested, n));
            let nested = inner.map_or_else(|| nested.clone(), |inner| inner.message);
            if !message.contains(&nested) {
                message = format!("{message}: {nested}");
            }
        }
        let retry_after_s = ["retry_after", "retryAfter", "retry_after_seconds"]
            .iter()
            .find_map(|name| match fields.value(name)? {
                Value::Number(number) => number.as_f64(),
                Value::String(text) => seconds(&text),
                _ => None,
            })
            .or_else(|| retry_delay(fields));
        Some(Self {
            names,
            message: one_line(&message),
            param: fields.text("param"),
            status: status.filter(|status| (400..600).contains(status)),
            retry_after_s,
        })
    }

    fn into_fault(self, status: Option<u16>) -> Fault {
        let status = status.or(self.status);
        let mut kind = kind_of(&self.names, &self.message, status);
        let refused = refused(&self.message, kind);
        if refused == Some(Refused::Prefill) {
            kind = FaultKind::PrefillUnsupported;
        }
        Fault {
            kind,
            status,
            message: self.message,
            param: self.param,
            retry_after_s: self.retry_after_s,
            refused,
        }
    }
}

/// Google's `details: [{"@type": "..RetryInfo", "retryDelay": "7s"}]`.
fn retry_delay(fields: &Lenient<'_>) -> Option<f64> {
    fields
        .list("details")
        .into_iter()
        .find_map(|detail| seconds(&Lenient::read(detail)?.text("retryDelay")?))
}

/// Kinds by type or code; the first that occurs counts. They are more exact than statuses.
const BY_NAME: &[(&str, FaultKind)] = &[
    ("context_length", FaultKind::ContextLength),
    ("exceed_context_size", FaultKind::ContextLength),
    ("string_above_max_length", FaultKind::ContextLength),
    ("insufficient_quota", FaultKind::QuotaExhausted),
    ("billing", FaultKind::QuotaExhausted),
    ("insufficient_balance", FaultKind::QuotaExhausted),
    ("payment_required", FaultKind::QuotaExhausted),
    ("rate_limit", FaultKind::RateLimited),
    ("resource_exhausted", FaultKind::RateLimited),
    ("too_many_requests", FaultKind::RateLimited),
    ("overloaded", FaultKind::Overloaded),
    ("unavailable", FaultKind::Overloaded),
    ("authentication", FaultKind::Auth),
    ("permission", FaultKind::Auth),
    ("invalid_api_key", FaultKind::Auth),
    ("unauthorized", FaultKind::Auth),
    ("unauthenticated", FaultKind::Auth),
    ("forbidden", FaultKind::Auth),
    ("not_found", FaultKind::NotFound),
    ("notfound", FaultKind::NotFound),
    ("invalid_request", FaultKind::BadRequest),
    ("invalid_argument", FaultKind::BadRequest),
    ("badrequest", FaultKind::BadRequest),
    ("bad_request", FaultKind::BadRequest),
    ("api_error", FaultKind::UpstreamError),
    ("server_error", FaultKind::UpstreamError),
    ("internal", FaultKind::UpstreamError),
];

/// Wordings of a prompt that is too long, lower case.
const TOO_LONG: &[&str] = &[
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "context_length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "too many tokens",
    "longer than the maximum model length",
    "maximum model length",
    "exceeds the maximum number of tokens",
    "maximum number of tokens",
    "reduce the length of the",
    "token limit",
];

/// Wordings of an account that is used up, lower case.
const USED_UP: &[&str] = &[
    "exceeded your current quota",
    "insufficient credits",
    "insufficient balance",
    "credit balance is too low",
    "requires more credits",
    "out of credits",
];

fn kind_of(names: &str, message: &str, status: Option<u16>) -> FaultKind {
    let text = message.to_ascii_lowercase();
    let says = |wordings: &[&str]| wordings.iter().any(|wording| text.contains(wording));
    let is_client_fault = status.is_none_or(|status| (400..500).contains(&status));
    let by_name = BY_NAME
        .iter()
        .find(|(name, _)| names.contains(name))
        .map(|(_, kind)| *kind);
    if is_client_fault && status != Some(429) && says(TOO_LONG) {
        return FaultKind::ContextLength;
    }
    if is_client_fault && (says(USED_UP) || status == Some(402)) {
        return FaultKind::QuotaExhausted;
    }
    match (by_name, status) {
        (Some(kind @ (FaultKind::ContextLength | FaultKind::QuotaExhausted)), _) => kind,
        // A status says more than a general type such as `invalid_request_error`.
        (by_name, Some(status)) => by_status(status, by_name),
        (Some(kind), None) => kind,
        (None, None) if text.contains("overloaded") => FaultKind::Overloaded,
        (None, None) => FaultKind::UpstreamError,
    }
}

fn by_status(status: u16, by_name: Option<FaultKind>) -> FaultKind {
    match status {
        // 407: a proxy on the way, whose login is the operator's too.
        401 | 403 | 407 => FaultKind::Auth,
        402 => FaultKind::QuotaExhausted,
        404 => FaultKind::NotFound,
        429 => FaultKind::RateLimited,
        408 | 409 | 425 => FaultKind::UpstreamError,
        400 | 422 => match by_name {
            Some(kind @ (FaultKind::Auth | FaultKind::NotFound | FaultKind::RateLimited)) => kind,
            _ => FaultKind::BadRequest,
        },
        405..=499 => FaultKind::BadRequest,
        503 | 529 => FaultKind::Overloaded,
        500..=599 => match by_name {
            Some(kind @ (FaultKind::Overloaded | FaultKind::RateLimited)) => kind,
            _ => FaultKind::UpstreamError,
        },
        _ => FaultKind::InvalidResponse,
    }
}

fn refused(message: &str, kind: FaultKind) -> Option<Refused> {
    if !matches!(kind, FaultKind::BadRequest | FaultKind::UpstreamError) {
        return None;
    }
    let text = message.to_ascii_lowercase();
    let not = [
        "not support",
        "unsupported",
        "unrecognized",
        "not allowed",
        "cannot",
        "must end",
        "must be last",
        "incompatible",
    ]
    .iter()
    .any(|wording| text.contains(wording));
    if !not {
        return None;
    }
    let prefill = [
        "prefill",
        "continue_final_message",
        "final message",
        "last message",
        "assistant message",
        "must end with a user message",
    ];
    if prefill.iter().any(|wording| text.contains(wording)) {
        Some(Refused::Prefill)
    } else if text.contains("thinking") || text.contains("reasoning") {
        Some(Refused::Thinking)
    } else if text.contains("tool") {
        Some(Refused::Tools)
    } else {
        None
    }
}

/// `Retry-After` as seconds or date, or the milliseconds that some send beside it.
fn retry_after<'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    now_unix_s: f64,
) -> Option<f64> {
    let mut found = None;
    let headers: Vec<_> = headers.into_iter().collect();
    // A date is meant by the sender's clock, which the answer tells.
    let sent = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("date"));
    let sent = sent.and_then(|(_, date)| http_date::unix_seconds(date.trim()));
    #[expect(clippy::cast_precision_loss, reason = "dates are far below 2^52")]
    let now_unix_s = sent.map_or(now_unix_s, |at| at as f64);
    for (name, value) in headers {
        let value = value.trim();
        if name.eq_ignore_ascii_case("retry-after-ms") {
            let wait = value.parse::<f64>().ok().map(|ms| ms / 1000.0);
            if let Some(wait) = wait.filter(|wait| wait.is_finite() && *wait >= 0.0) {
                return Some(wait);
            }
        }
        if name.eq_ignore_ascii_case("retry-after") {
            found = seconds(value).or_else(|| {
                let at = http_date::unix_seconds(value)?;
                #[expect(clippy::cast_precision_loss, reason = "dates are far below 2^52")]
                let at = at as f64;
                Some((at - now_unix_s).max(0.0))
            });
        }
    }
    found
}

/// `7`, `0.5`, `7s`.
fn seconds(text: &str) -> Option<f64> {
    let number = text.trim().trim_end_matches('s').parse::<f64>().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn looks_like_html(text: &str) -> bool {
    let start: String = text.trim_start().chars().take(64).collect();
    let start = start.to_ascii_lowercase();
    start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<head")
}

/// The words of a page without its tags, cut.
fn html_text(text: &str) -> String {
    let mut words = String::new();
    let mut in_tag = false;
    for c in text.chars().take(4096) {
        match c {
            '<' => in_tag = true,
            '>' => {
                in_tag = false;
                words.push(' ');
            }
            c if !in_tag => words.push(c),
            _ => {}
        }
    }
    let words: Vec<_> = words.split_whitespace().collect();
    words.join(" ").chars().take(200).collect()
}

fn one_line(text: &str) -> String {
    const MOST: usize = 500;
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST)
        .collect();
    if text.chars().nth(MOST).is_some() {
        line.push('…');
    }
    line.trim().to_owned()
}
