//! What holds for every endpoint: panics, the end of the server, foreign pages, keys and host
//! names.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::api_error::{ApiError, method_not_allowed, not_found};
use crate::faces::ErrorForm;
use crate::host_guard::check_host;
use crate::keys::{Allowance, check_key, refusal};
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

/// Who may call a path, and whether its requests are work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Open,
    /// Those who have a key, or, without keys, those of this machine.
    Guarded,
    /// The same, one of so many at one time.
    Work,
}

/// The whole application: these paths, and answers where there is none.
///
/// Two layers and no more, because each costs boxes and copies per request: what is seen of a request,
/// and the way through [`answer`]. Between them stands CORS, where it is wanted.
pub(crate) fn wrap(paths: Vec<(Access, Router)>, app: &App, cors: Option<CorsLayer>) -> Router {
    let mut all = Router::new();
    for (access, router) in paths {
        let router = router.method_not_allowed_fallback(method_not_allowed);
        let router = match access {
            // Who may not come in does not learn what there is.
            Access::Guarded => router.fallback(not_found),
            Access::Open | Access::Work => router,
        };
        all = all.merge(router.layer(from_fn_with_state((app.clone(), access), answer)));
    }
    if let Some(cors) = cors {
        all = all.layer(cors);
    }
    all.layer(from_fn_with_state(app.observers().clone(), observe::watch))
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

/// Answers a request whatever happens: a panic, and the end of the server, too; an error is
/// written as the path's clients read it.
async fn answer(
    State((app, access)): State<(App, Access)>,
    request: Request,
    next: Next,
) -> Response {
    let form = ErrorForm::of_path(request.uri().path());
    let admitted = AssertUnwindSafe(admit((&app, access), request, next)).catch_unwind();
    let response = tokio::select! {
        biased;
        // The message of a panic goes to stderr by the panic hook, never to the client.
        response = admitted => response.unwrap_or_else(|_| ApiError::bug().into_response()),
        () = app.shutdown().cut_off() => ApiError::shutting_down().into_response(),
    };
    form.write(response)
}

/// Lets those in who may.
async fn admit((app, access): (&App, Access), mut request: Request, next: Next) -> Response {
    if access == Access::Open {
        return next.run(request).await;
    }
    let served = app.live().now();
    let (allowance, admitted) = match &served.keys {
        Some(keys) => check_key((keys, app.budgets()), &mut request).await,
        None => (Allowance::default(), check_host(request.headers())),
    };
    drop(served);
    let mut response = match admitted {
        Err(refused) => refusal(refused),
        // Nothing else is work, even where work is done.
        Ok(()) if access == Access::Work && request.method() == Method::POST => {
            app.gate().pass(request, next).await
        }
        Ok(()) => next.run(request).await,
    };
    allowance.write(response.headers_mut());
    response
}
