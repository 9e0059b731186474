use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// Who asks, as far as what is kept for him must not be shown to others: a digest of his key,
/// or nothing where no keys are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Caller(Arc<str>);

impl Caller {
    /// The holder of the key with this digest.
    pub(crate) fn of_key(digest: &[u8]) -> Self {
        let mut name = String::with_capacity(digest.len() * 2);
        for byte in digest {
            // Writing to a string does not fail.
            let _ = write!(name, "{byte:02x}");
        }
        Self(name.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
