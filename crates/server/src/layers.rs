//! What holds for every endpoint: panics, the end of the server, foreign pages, keys and host
//! names.

use std::any::Any;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower::util::option_layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::Shutdown;
use crate::api_error::{ApiError, method_not_allowed, not_found};
use crate::faces::ErrorForm;
use crate::host_guard::require_local_host;
use crate::keys::require_key;
use crate::observe;
use crate::routes::App;

/// How long a browser need not ask again.
const PREFLIGHT_AGE: Duration = Duration::from_secs(60 * 60);
/// Headers of answers that pages may read.
const EXPOSED: [&str; 7] = [
    "retry-after",
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
];

/// The whole application: `open` paths for everyone, `guarded` ones (and unknown ones) for
/// those who may.
pub(crate) fn wrap(
    (open, guarded): (Router, Router),
    app: &App,
    cors: Option<CorsLayer>,
) -> Router {
    let guarded = guarded
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(app.clone(), guard));
    open.method_not_allowed_fallback(method_not_allowed)
        .merge(guarded)
        .layer(from_fn_with_state(app.shutdown().clone(), answer_until_cut))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(ErrorForm::write))
        .layer(option_layer(cors))
        .layer(from_fn_with_state(app.observers().clone(), observe::watch))
}

/// Lets pages from these origins in; their browsers ask before, without a key. Cookies are not
/// among what they may send: nobody here reads any. `None`: no page is let in, and nothing is
/// said.
pub(crate) fn cors(origins: &[String]) -> Option<CorsLayer> {
    let names = origins.iter().map(|origin| HeaderValue::from_str(origin));
    let names: Vec<_> = names.filter_map(Result::ok).collect();
    let origin = match names.as_slice() {
        [] => return None,
        [any] if any == "*" => AllowOrigin::any(),
        _ => AllowOrigin::list(names),
    };
    let layer = CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED.map(HeaderName::from_static))
        .max_age(PREFLIGHT_AGE);
    Some(layer)
}

/// Lets those in who have a key, or, without keys, those of this machine.
async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let served = app.live().now();
    match &served.keys {
        Some(keys) => require_key((keys, app.budgets()), request, next).await,
        None => require_local_host(request, next).await,
    }
}

/// Ends a request that is still without an answer when the server must go.
async fn answer_until_cut(
    State(shutdown): State<Shutdown>,
    request: Request,
    next: Next,
) -> Response {
    tokio::select! {
        biased;
        response = next.run(request) => response,
        () = shutdown.cut_off() => {
            ApiError::shutting_down().into_response()
        }
    }
}

/// The message of the panic goes to stderr by the panic hook, never to the client.
fn panicked(_: Box<dyn Any + Send>) -> Response {
    ApiError::bug().into_response()
}
