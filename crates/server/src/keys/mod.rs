//! Keys: who asks, what he may, and how much.
//!
//! Only digests are held. They are plain SHA-256 on purpose: a slow hash protects passwords,
//! which can be guessed; a key of 256 random bits cannot, and is hashed with each request.
//! [`check_key`] is asked before everything that needs a key.

mod budget;
mod file;
mod known;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use twopass_provider::config::KeyScope;

use crate::api_error::{ApiError, ApiErrorKind};
use crate::caller::Caller;
use crate::observe::Watch;

pub(crate) use budget::{Allowance, Budgets};
pub use file::{NewKey, add_key, read_keys};
pub(crate) use known::{Key, Keys};

/// Whether the request's key is known, opens the path, and is within its limits; and what is
/// left of them, for the answer to tell.
pub(crate) async fn check_key(
    (keys, budgets): (&Keys, &Budgets),
    request: &mut Request,
) -> (Allowance, Result<(), ApiError>) {
    match identify(keys, request) {
        Ok(caller) => {
            if let (Some(watch), Some(key)) = (request.extensions().get::<Watch>(), caller.key()) {
                watch.identified(key);
            }
            let route = request.extensions().get::<MatchedPath>();
            let scope = route.and_then(|route| scope_of(route.as_str()));
            let admitted = admit(&caller, scope, budgets).await;
            request.extensions_mut().insert(caller);
            admitted
        }
        Err(refused) => (Allowance::default(), Err(refused)),
    }
}

/// Tells clients how to show a key, where one is missing.
pub(crate) fn refusal(error: ApiError) -> Response {
    let mut response = error.into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

/// Whose key the request carries, as `Authorization: Bearer` or `x-api-key`.
fn identify(keys: &Keys, request: &Request) -> Result<Caller, ApiError> {
    let unauthorized = |message: &str| ApiError::new(ApiErrorKind::Unauthorized, message);
    let presented = presented_key(request.headers()).ok_or_else(|| {
        unauthorized("a key is needed: `Authorization: Bearer KEY` or `x-api-key: KEY`")
    })?;
    let key = keys
        .find(presented)
        .ok_or_else(|| unauthorized("the key is not known"))?;
    if key.has_expired() {
        let message = format!("the key `{}` has expired", key.name());
        return Err(unauthorized(&message));
    }
    Ok(Caller::of_key(key))
}

/// Whether the caller's key has the scope of the path, and something left.
async fn admit(
    caller: &Caller,
    scope: Option<KeyScope>,
    budgets: &Budgets,
) -> (Allowance, Result<(), ApiError>) {
    let (Some(scope), Some(key)) = (scope, caller.key()) else {
        return (Allowance::default(), Ok(()));
    };
    if !key.opens(scope) {
        let message = format!("the key `{}` has not the scope `{scope}`", key.name());
        let refused = ApiError::new(ApiErrorKind::Forbidden, message);
        return (Allowance::default(), Err(refused));
    }
    match scope {
        KeyScope::Chat | KeyScope::Embeddings => budgets.admit(key).await,
        KeyScope::Metrics => (Allowance::default(), Ok(())),
    }
}

/// What opens this path; `None` = every key. A path that nobody thought of is work.
fn scope_of(route: &str) -> Option<KeyScope> {
    match route {
        "/metrics" => Some(KeyScope::Metrics),
        "/v1/embeddings" => Some(KeyScope::Embeddings),
        "/v1/models" | "/v1/models/{*id}" => None,
        _ => Some(KeyScope::Chat),
    }
}

fn presented_key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.as_bytes();
        let (scheme, key) = value.split_at_checked(7)?;
        return scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then(|| key.trim_ascii());
    }
    headers
        .get("x-api-key")
        .map(|value| value.as_bytes().trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_read_from_both_headers() {
        for (name, value, expect) in [
            ("authorization", "Bearer k", Some("k")),
            ("authorization", "bearer  k ", Some("k")),
            ("authorization", "Basic k", None),
            ("authorization", "Bearer", None),
            ("authorization", "", None),
            ("x-api-key", "k", Some("k")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(
                presented_key(&headers),
                expect.map(str::as_bytes),
                "{name}: {value}"
            );
        }
        assert_eq!(presented_key(&HeaderMap::new()), None);
    }
}
