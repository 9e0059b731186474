//! The trace that a request belongs to, as its client says.

use axum::http::HeaderMap;

use crate::ids::new_id;

/// Where a request's span stands. Ids are lower-case hex, as OTLP's JSON has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    /// 32 digits.
    pub(super) trace_id: String,
    /// 16 digits: the client's own span.
    pub(super) parent_id: Option<String>,
    /// False: the client has chosen not to record this trace.
    pub(super) is_sampled: bool,
}

impl TraceContext {
    /// Reads `traceparent`; without one, or with one that is none, a trace begins here.
    ///
    /// Source: W3C Trace Context, Recommendation of 2021-11-23, section 3.2.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let header = headers.get("traceparent");
        let read = header.and_then(|value| Self::parse(value.to_str().ok()?.trim()));
        read.unwrap_or_else(|| Self {
            trace_id: new_id(),
            parent_id: None,
            is_sampled: true,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('-');
        let version = fields.next().filter(|field| is_hex(field, 2))?;
        let trace_id = fields.next().filter(|field| is_id(field, 32))?;
        let parent_id = fields.next().filter(|field| is_id(field, 16))?;
        let flags = fields.next().filter(|field| is_hex(field, 2))?;
        // Later versions may have more fields, the first one has not; `ff` is none.
        if version == "ff" || version == "00" && fields.next().is_some() {
            return None;
        }
        Some(Self {
            trace_id: trace_id.to_owned(),
            parent_id: Some(parent_id.to_owned()),
            is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        })
    }
}

/// A new id of a span, 16 hex digits.
pub(super) fn new_span_id() -> String {
    let mut id = new_id();
    id.truncate(16);
    id
}

fn is_hex(text: &str, n_digits: usize) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == n_digits && text.bytes().all(is_digit)
}

fn is_id(text: &str, n_digits: usize) -> bool {
    is_hex(text, n_digits) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_client_may_name_its_trace() {
        for (header, expect) in [
            (format!("00-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-00"), Some(false)),
            (format!("00-{TRACE}-{SPAN}-03"), Some(true)),
            (format!("cc-{TRACE}-{SPAN}-01-more"), Some(true)),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            ("é-".to_owned(), None),
            (String::new(), None),
        ] {
            let read = TraceContext::parse(&header);
            assert_eq!(
                read.as_ref().map(|read| read.is_sampled),
                expect,
                "{header}"
            );
            if let Some(read) = read {
                assert_eq!(read.trace_id, TRACE);
                assert_eq!(read.parent_id.as_deref(), Some(SPAN));
            }
        }
        let begun = TraceContext::of(&HeaderMap::new());
        assert!(is_id(&begun.trace_id, 32) && is_id(&new_span_id(), 16));
    }
}
