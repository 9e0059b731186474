//! The errors of requests, and the one table that gives each kind its status.

use std::collections::BTreeSet;

use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use twopass_core::chat::BadRequest;
use twopass_provider::{ErrorKind, ProviderError};
use twopass_wire::error::ErrorBody;

/// What a request met: a kind of our own, or one of the provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ApiErrorKind {
    /// The body is not JSON.
    InvalidJson,
    /// A key is missing or unknown.
    Unauthorized,
    /// This host name is not served, or the key does not open this.
    Forbidden,
    /// The path has no such method.
    MethodNotAllowed,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The body is over the limit.
    BodyTooLarge,
    /// The body does not say that it is JSON.
    UnsupportedMediaType,
    /// The server ends.
    ShuttingDown,
    /// A call was demanded and none came.
    ToolChoiceViolation,
    /// The answer has not the form that was demanded.
    SchemaViolation,
    /// A call was shown before it failed its checks, or nothing but such calls came.
    InvalidToolCall,
    /// Text was shown before it turned out to be reasoning.
    Reclassified,
    /// As the provider says.
    Provider(ErrorKind),
}

use ApiErrorKind as K;
use ErrorKind as P;

/// Seconds after which a client should come again, where coming again helps.
const SOON: Option<u32> = Some(1);
const LATER: Option<u32> = Some(5);

/// Words by which clients tell a prompt that does not fit from other bad requests. Source:
/// langchain-openai 1.7 and langchain-anthropic 1.7, which search error texts for them.
const TOO_LONG: &str = "prompt is too long";

/// Kind, status, and when to come again (a provider that knows better is believed). A
/// provider's `auth` is the operator's key refused upstream, hence no 401.
const TABLE: [(ApiErrorKind, StatusCode, Option<u32>); 38] = [
    (K::InvalidJson, StatusCode::BAD_REQUEST, None),
    (K::Provider(P::BadRequest), StatusCode::BAD_REQUEST, None),
    (K::Provider(P::ContextLength), StatusCode::BAD_REQUEST, None),
    (K::Unauthorized, StatusCode::UNAUTHORIZED, None),
    (K::Forbidden, StatusCode::FORBIDDEN, None),
    (K::Provider(P::NotFound), StatusCode::NOT_FOUND, None),
    (K::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED, None),
    (K::RequestTimeout, StatusCode::REQUEST_TIMEOUT, None),
    (K::BodyTooLarge, StatusCode::PAYLOAD_TOO_LARGE, None),
    (
        K::UnsupportedMediaType,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        None,
    ),
    (
        K::Provider(P::QueueFull),
        StatusCode::TOO_MANY_REQUESTS,
        SOON,
    ),
    (
        K::Provider(P::RateLimited),
        StatusCode::TOO_MANY_REQUESTS,
        SOON,
    ),
    (
        K::Provider(P::QuotaExhausted),
        StatusCode::TOO_MANY_REQUESTS,
        None,
    ),
    (
        K::Provider(P::Config),
        StatusCode::INTERNAL_SERVER_ERROR,
        None,
    ),
    (
        K::Provider(P::Model),
        StatusCode::INTERNAL_SERVER_ERROR,
        None,
    ),
    (
        K::Provider(P::Checksum),
        StatusCode::INTERNAL_SERVER_ERROR,
        None,
    ),
    (K::Provider(P::Io), StatusCode::INTERNAL_SERVER_ERROR, None),
    (
        K::Provider(P::Internal),
        StatusCode::INTERNAL_SERVER_ERROR,
        None,
    ),
    (K::Provider(P::NotBuilt), StatusCode::NOT_IMPLEMENTED, None),
    (K::Provider(P::Auth), StatusCode::BAD_GATEWAY, None),
    (K::Provider(P::Connect), StatusCode::BAD_GATEWAY, None),
    (K::Provider(P::UpstreamError), StatusCode::BAD_GATEWAY, None),
    (
        K::Provider(P::InvalidResponse),
        StatusCode::BAD_GATEWAY,
        None,
    ),
    (
        K::Provider(P::StreamTruncated),
        StatusCode::BAD_GATEWAY,
        None,
    ),
    (K::Provider(P::EventTooLarge), StatusCode::BAD_GATEWAY, None),
    (
        K::Provider(P::PrefillUnsupported),
        StatusCode::BAD_GATEWAY,
        None,
    ),
    (
        K::Provider(P::DimensionMismatch),
        StatusCode::BAD_GATEWAY,
        None,
    ),
    (K::ToolChoiceViolation, StatusCode::BAD_GATEWAY, None),
    (K::SchemaViolation, StatusCode::BAD_GATEWAY, None),
    (K::InvalidToolCall, StatusCode::BAD_GATEWAY, None),
    (K::Reclassified, StatusCode::BAD_GATEWAY, None),
    (
        K::Provider(P::Overloaded),
        StatusCode::SERVICE_UNAVAILABLE,
        SOON,
    ),
    (
        K::Provider(P::Cancelled),
        StatusCode::SERVICE_UNAVAILABLE,
        None,
    ),
    (K::ShuttingDown, StatusCode::SERVICE_UNAVAILABLE, LATER),
    (
        K::Provider(P::TimeoutConnect),
        StatusCode::GATEWAY_TIMEOUT,
        None,
    ),
    (
        K::Provider(P::TimeoutFirstToken),
        StatusCode::GATEWAY_TIMEOUT,
        None,
    ),
    (
        K::Provider(P::TimeoutIdle),
        StatusCode::GATEWAY_TIMEOUT,
        None,
    ),
    (
        K::Provider(P::TimeoutTotal),
        StatusCode::GATEWAY_TIMEOUT,
        None,
    ),
];

/// Every status that a refusal of ours has, in order.
pub(crate) fn all_statuses() -> BTreeSet<StatusCode> {
    TABLE.iter().map(|(_, status, _)| *status).collect()
}

impl ApiErrorKind {
    /// The name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::ShuttingDown => "shutting_down",
            Self::ToolChoiceViolation => "tool_choice_violation",
            Self::SchemaViolation => "schema_violation",
            Self::InvalidToolCall => "invalid_tool_call",
            Self::Reclassified => "reclassified",
            Self::Provider(kind) => kind.as_str(),
        }
    }

    /// Its status and retry hint. A kind that the table lacks is our fault: 500.
    fn row(self) -> (StatusCode, Option<u32>) {
        let row = TABLE.iter().find(|(kind, ..)| *kind == self);
        row.map_or(
            (StatusCode::INTERNAL_SERVER_ERROR, None),
            |(_, status, after)| (*status, *after),
        )
    }
}

/// The answer to a request that could not be carried out.
///
/// As a response it is `{"error": {"kind", "message", "param"}}`. The value also travels in
/// the response's extensions, so that the layer of another endpoint family can write it in
/// that family's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) kind: ApiErrorKind,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    pub(crate) retry_after_s: Option<u32>,
    /// The upstream's own status, which wins over the table's.
    upstream_status: Option<StatusCode>,
}

impl ApiError {
    pub(crate) fn new(kind: ApiErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
            retry_after_s: kind.row().1,
            upstream_status: None,
        }
    }

    pub(crate) fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// A bug of ours. What it was went to stderr, not to the client.
    pub(crate) fn bug() -> Self {
        Self::new(K::Provider(P::Internal), "the server met a bug of its own")
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(K::ShuttingDown, "the server is shutting down")
    }

    /// The status of its answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.upstream_status.unwrap_or(self.kind.row().0)
    }

    /// What a body tells, in whatever form.
    pub(crate) fn to_body(&self) -> ErrorBody {
        ErrorBody {
            kind: self.kind.as_str().to_owned(),
            message: self.message.clone(),
            param: self.param.clone(),
            ..ErrorBody::default()
        }
    }

    /// What the last event of a stream tells, whose head is out already.
    pub(crate) fn to_event(&self) -> ErrorBody {
        ErrorBody {
            status: Some(self.status().as_u16()),
            retry_after_s: self.retry_after_s,
            ..self.to_body()
        }
    }
}

impl From<BadRequest> for ApiError {
    /// `body` is what decoders name when the bytes are no JSON object at all.
    fn from(bad: BadRequest) -> Self {
        if bad.param == "body" {
            return Self::new(K::InvalidJson, format!("the body {}", bad.message));
        }
        let message = format!("`{}`: {}", bad.param, bad.message);
        Self::new(K::Provider(P::BadRequest), message).with_param(bad.param)
    }
}

impl From<ProviderError> for ApiError {
    /// An upstream's refusal keeps its status and its pause. Not where it refuses our own key:
    /// that is the operator's matter, and not the caller's.
    fn from(error: ProviderError) -> Self {
        let mut out = Self::new(K::Provider(error.kind()), error.to_string());
        if error.kind() == P::ContextLength && !out.message.contains(TOO_LONG) {
            out.message = format!("{TOO_LONG}: {}", out.message);
        }
        out.upstream_status = error
            .status()
            .filter(|_| error.kind() != P::Auth)
            .and_then(|status| StatusCode::from_u16(status).ok())
            .filter(|status| status.is_client_error() || status.is_server_error());
        out.param = error.param().map(str::to_owned);
        if let Some(wait) = error.retry_after() {
            let seconds = wait.as_millis().div_ceil(1000);
            out.retry_after_s = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
        out
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (
            self.status(),
            [(header::CONTENT_TYPE, "application/json")],
            self.to_body().to_json(),
        )
            .into_response();
        if let Some(after) = self.retry_after_s {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(after));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The answer to a path that nobody serves.
pub(crate) async fn not_found<B>(request: Request<B>) -> ApiError {
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::new(K::Provider(P::NotFound), format!("no such path: {path}"))
}

/// The answer to a method that the path does not have.
pub(crate) async fn method_not_allowed<B>(request: Request<B>) -> ApiError {
    ApiError::new(
        K::MethodNotAllowed,
        format!("{} is not allowed here", request.method()),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_kind_has_one_row_and_its_own_name() {
        for (idx, (kind, ..)) in TABLE.iter().enumerate() {
            for (other, ..) in &TABLE[idx + 1..] {
                assert_ne!(kind, other);
                assert_ne!(kind.as_str(), other.as_str());
            }
        }
        for kind in P::ALL {
            let rows = TABLE
                .iter()
                .filter(|(row, ..)| *row == K::Provider(kind))
                .count();
            assert_eq!(rows, 1, "{kind:?}");
        }
        let own = TABLE
            .iter()
            .filter(|(row, ..)| !matches!(row, K::Provider(_)))
            .count();
        assert_eq!(own + P::ALL.len(), TABLE.len());
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let mut rows: Vec<(StatusCode, String)> = Vec::new();
        for (kind, status, _) in TABLE {
            match rows.last_mut() {
                Some((last, kinds)) if *last == status => {
                    *kinds += &format!(", `{}`", kind.as_str());
                }
                _ => rows.push((status, format!("`{}`", kind.as_str()))),
            }
        }
        let table: String = rows
            .iter()
            .map(|(status, kinds)| format!("| {} | {kinds} |\n", status.as_u16()))
            .collect();
        let document = include_str!("../../../COMPATIBILITY.md");
        assert!(
            document.contains(&table),
            "COMPATIBILITY.md should hold\n{table}"
        );
    }

    #[test]
    fn an_error_is_json_with_its_status_and_retry_hint() {
        let full = ProviderError::new(P::QueueFull, "64 turns wait").with_provider("local");
        let response = ApiError::from(full).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");

        let known = ProviderError::new(P::RateLimited, "slow down")
            .with_retry_after(Some(Duration::from_millis(2100)));
        assert_eq!(
            ApiError::from(known).into_response().headers()[header::RETRY_AFTER],
            "3"
        );

        let bad = ApiError::from(BadRequest::new("stop[0]", "may not be empty"));
        assert_eq!(
            bad.to_body().to_json(),
            r#"{"error":{"kind":"bad_request","message":"`stop[0]`: may not be empty","param":"stop[0]"}}"#
        );
        assert_eq!(bad.into_response().headers().get(header::RETRY_AFTER), None);
    }
}
