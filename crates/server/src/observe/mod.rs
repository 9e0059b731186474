//! What became of each request: counted for `/metrics`, told in the access log.
//!
//! The layer [`watch`] gives every request a [`Watch`]. The way of a turn notes on it what it
//! learns (provider, first output, usage, a failure after the head). When the last byte of the
//! reply has left, or the client has gone, the watch is closed: once for every request, so
//! that each is accounted for.

mod access_log;
mod body;
mod metrics;
mod trace;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;
use twopass_core::chat::{Message, Part, Reply, Usage};
use twopass_store::Usage as Used;

use crate::api_error::{ApiError, ApiErrorKind};
use crate::idle::Working;
use crate::keys::{Budgets, Key};
use body::Watched;
use trace::Traced;

pub use access_log::AccessLog;
pub(crate) use metrics::{CONTENT_TYPE as METRICS_TYPE, Metrics};
pub(crate) use trace::{Exporter, Traces};

/// Methods that are told as they are; a client may write anything.
const METHODS: [(Method, &str); 7] = [
    (Method::GET, "GET"),
    (Method::POST, "POST"),
    (Method::PUT, "PUT"),
    (Method::PATCH, "PATCH"),
    (Method::DELETE, "DELETE"),
    (Method::HEAD, "HEAD"),
    (Method::OPTIONS, "OPTIONS"),
];
/// Bytes of text for each token, where nobody counted.
const BYTES_PER_TOKEN: u64 = 4;
/// The outcome of a request whose client went away before the end.
const CLIENT_GONE: &str = "client_gone";
/// The outcome of a request that was answered.
const OK: &str = "ok";

/// Who is told of each request.
#[derive(Clone, Debug)]
pub(crate) struct Observers {
    pub(crate) metrics: Metrics,
    pub(crate) budgets: Budgets,
    pub(crate) log: Option<AccessLog>,
    pub(crate) traces: Option<Traces>,
}

impl Observers {
    fn closed(&self, facts: &Facts, outcome: &'static str) {
        self.metrics.closed(facts, outcome);
        if let Some(key) = &facts.key {
            let used = facts.used(outcome);
            self.metrics.used(key.name(), used, outcome);
            self.budgets.spend(key.name(), used);
        }
        if let Some(log) = &self.log {
            log.closed(facts, outcome);
        }
        if let Some(traces) = &self.traces {
            traces.closed(facts, outcome);
        }
    }
}

/// What is known of one request. Clones are the same request.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Inner>);

struct Inner {
    facts: Mutex<Facts>,
    held: Mutex<Held>,
}

/// What is known of a request at its end.
#[derive(Debug, Clone)]
struct Facts {
    started: Instant,
    method: &'static str,
    /// The path's pattern, or `unknown`: never what a client wrote.
    route: String,
    key: Option<Arc<Key>>,
    provider: Option<String>,
    model: Option<String>,
    first_output: Option<Duration>,
    usage: Usage,
    seen: Seen,
    status: Option<u16>,
    failed: Option<&'static str>,
    traced: Option<Traced>,
}

/// What was seen of a turn, whatever is told of it in the end.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Bytes of the texts that were asked.
    asked_bytes: u64,
    /// Pieces of the answer.
    n_outputs: u64,
}

impl Facts {
    /// What the request used: as it was told, or, of a turn that broke off before, about what
    /// was seen of it.
    fn used(&self, outcome: &str) -> Used {
        let told = &self.usage;
        let used = Used {
            requests: 1,
            prompt_tokens: told.prompt_tokens,
            completion_tokens: told.thinking_tokens + told.response_tokens,
        };
        let is_told = used.prompt_tokens + used.completion_tokens > 0;
        let worked = outcome == OK || outcome == CLIENT_GONE || self.seen.n_outputs > 0;
        if is_told || !worked {
            return used;
        }
        Used {
            prompt_tokens: self.seen.asked_bytes.div_ceil(BYTES_PER_TOKEN),
            completion_tokens: self.seen.n_outputs,
            ..used
        }
    }
}

/// What is given back when a request has ended.
#[derive(Default)]
struct Held {
    working: Option<Working>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Watch {
    pub(crate) fn new(method: &Method, route: String) -> Self {
        Self(Arc::new(Inner {
            facts: Mutex::new(Facts {
                started: Instant::now(),
                method: method_name(method),
                route,
                key: None,
                provider: None,
                model: None,
                first_output: None,
                usage: Usage::default(),
                seen: Seen::default(),
                status: None,
                failed: None,
                traced: None,
            }),
            held: Mutex::default(),
        }))
    }

    /// The request carries this key.
    pub(crate) fn identified(&self, key: &Arc<Key>) {
        self.note(|facts| facts.key = Some(Arc::clone(key)));
    }

    /// A provider was picked.
    pub(crate) fn picked(&self, provider: &str, model: &str) {
        self.note(|facts| {
            facts.provider = Some(provider.to_owned());
            facts.model = Some(model.to_owned());
        });
    }

    /// Output came.
    pub(crate) fn output(&self) {
        self.note(|facts| {
            facts.first_output.get_or_insert(facts.started.elapsed());
            facts.seen.n_outputs += 1;
        });
    }

    /// A turn begins with these messages, or with this prompt.
    pub(crate) fn asked(&self, messages: &[Message], prompt: Option<&str>) {
        let texts = messages.iter().flat_map(|message| &message.content);
        let texts = texts.map(|part| match part {
            Part::Text(text) => text.len(),
            _ => 0,
        });
        let n_bytes = texts.sum::<usize>() + prompt.map_or(0, str::len);
        self.note(|facts| {
            facts.seen.asked_bytes = n_bytes as u64;
            if let Some(traced) = &mut facts.traced {
                traced.asked(messages);
            }
        });
    }

    /// A turn ended.
    pub(crate) fn answered(&self, reply: &Reply) {
        self.note(|facts| {
            facts.usage = Usage::of_choices([facts.usage, reply.usage]);
            if let Some(traced) = &mut facts.traced {
                traced.answered(reply, facts.started);
            }
        });
    }

    /// Texts of so many tokens became vectors.
    pub(crate) fn embedded(&self, prompt_tokens: u64) {
        self.note(|facts| facts.usage.prompt_tokens = prompt_tokens);
    }

    /// The request failed, if need be after its head had left.
    pub(crate) fn failed(&self, kind: ApiErrorKind) {
        self.note(|facts| {
            facts.failed.get_or_insert(kind.as_str());
        });
    }

    /// The place among the requests that are worked on, until this one has ended.
    pub(crate) fn admitted(&self, permit: OwnedSemaphorePermit) {
        self.held().permit = Some(permit);
    }

    fn note(&self, note: impl FnOnce(&mut Facts)) {
        note(&mut self.facts());
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The method's name; of one that we do not know, `other`.
fn method_name(method: &Method) -> &'static str {
    METHODS
        .into_iter()
        .find(|(known, _)| known == method)
        .map_or("other", |(_, name)| name)
}

/// Closes the watch when it is dropped: at the end of the reply, or wherever it broke off.
struct Closing {
    watch: Watch,
    observers: Observers,
    /// The reply's last byte was taken.
    complete: bool,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let facts = self.watch.facts();
        let outcome = match facts.failed {
            Some(kind) => kind,
            None if self.complete => OK,
            None => CLIENT_GONE,
        };
        self.observers.closed(&facts, outcome);
        drop(facts);
        *self.watch.held() = Held::default();
    }
}

/// The layer: around everything that may answer.
pub(crate) async fn watch(
    State(observers): State<Observers>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("unknown", MatchedPath::as_str).to_owned();
    let watch = Watch::new(request.method(), route);
    if let Some(traces) = &observers.traces {
        watch.note(|facts| facts.traced = traces.begin(request.headers()));
    }
    watch.held().working = request.extensions_mut().remove::<Working>();
    request.extensions_mut().insert(watch.clone());
    observers.metrics.opened();
    let closing = Closing {
        watch,
        observers,
        complete: false,
    };
    let response = next.run(request).await;
    let status = response.status().as_u16();
    closing.watch.note(|facts| facts.status = Some(status));
    if let Some(error) = response.extensions().get::<ApiError>() {
        closing.watch.failed(error.kind);
    }
    response.map(|body| axum::body::Body::new(Watched::new(body, closing)))
}
