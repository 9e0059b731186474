use axum::body::Body;
use axum::http::header;
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

    /// Writes an error, whoever answered it, as the path's clients read it.
    pub(crate) fn write(self, mut response: Response) -> Response {
        if self == Self::Native {
            return response;
        }
        if let Some(error) = response.extensions().get::<ApiError>() {
            let body = self.encode(&error.to_body());
            *response.body_mut() = Body::from(body);
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        response
    }
}
