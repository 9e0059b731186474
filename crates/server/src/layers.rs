//! What holds for every endpoint: panics, the end of the server, keys and host names.

use std::any::Any;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;

use crate::Shutdown;
use crate::api_error::{ApiError, method_not_allowed, not_found};
use crate::auth::require_key;
use crate::faces::ErrorForm;
use crate::host_guard::require_local_host;
use crate::observe;
use crate::reload::Live;
use crate::routes::App;

/// The whole application: `open` paths for everyone, `guarded` ones (and unknown ones) for
/// those who may.
pub(crate) fn wrap(open: Router, guarded: Router, app: &App) -> Router {
    let guarded = guarded
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(app.live().clone(), guard));
    open.method_not_allowed_fallback(method_not_allowed)
        .merge(guarded)
        .layer(from_fn_with_state(app.shutdown().clone(), answer_until_cut))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(ErrorForm::write))
        .layer(from_fn_with_state(app.observers().clone(), observe::watch))
}

/// Lets those in who have a key, or, without keys, those of this machine.
async fn guard(State(live): State<Live>, request: Request, next: Next) -> Response {
    match &live.now().keys {
        Some(keys) => require_key(keys, request, next).await,
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
