use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::keys::Key;

/// Who asks: the holder of a key, or anybody where no keys are used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller(Option<Arc<Key>>);

impl Caller {
    pub(crate) fn of_key(key: Arc<Key>) -> Self {
        Self(Some(key))
    }

    pub(crate) fn key(&self) -> Option<&Arc<Key>> {
        self.0.as_ref()
    }

    /// What is kept for him is kept under this, and not shown to others: a digest of his key,
    /// or nothing.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_ref().map_or("", |key| key.owner())
    }

    /// True if he may use the model that requests call by these names.
    pub(crate) fn may_use<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        self.0.as_ref().is_none_or(|key| key.may_use(names))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
