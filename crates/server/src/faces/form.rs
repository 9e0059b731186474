use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use twopass_wire::error::ErrorBody;

use crate::api_error::ApiError;

/// How a path's clients want to read of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// `{"error": {"kind", "message", "param"}}`
    Native,
    /// `{"error": {"message", "type", "param", "code"}}`
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
}

impl ErrorForm {
    /// The form of a path, whether or not anything is served there.
    pub(crate) fn of_path(path: &str) -> Self {
        let is_under = |root: &str| {
            let rest = path.strip_prefix(root);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is_under("/v1/messages") {
            Self::Anthropic
        } else if is_under("/v1") || is_under("/chat/completions") {
            Self::OpenAi
        } else {
            Self::Native
        }
    }

    fn encode(self, error: &ErrorBody) -> String {
        match self {
            Self::Native => error.to_json(),
            Self::OpenAi => error.to_openai_json(),
            Self::Anthropic => error.to_anthropic_json(),
        }
    }

    /// The layer that writes every error, whoever answered it, as the path's clients read it.
    pub(crate) async fn write(request: Request, next: Next) -> Response {
        let form = Self::of_path(request.uri().path());
        let mut response = next.run(request).await;
        if form == Self::Native {
            return response;
        }
        if let Some(error) = response.extensions().get::<ApiError>() {
            let body = form.encode(&error.to_body());
            *response.body_mut() = Body::from(body);
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        response
    }
}
