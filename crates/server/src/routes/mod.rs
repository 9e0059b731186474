//! The endpoints, one file per family, and what they share.

mod count_tokens;
mod embeddings;
mod health;
mod metrics;
mod models;
mod openapi;
mod responses;

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{FromRef, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use serde_json::Value;

use crate::admission::Gate;
use crate::body::{BodyLimits, JsonBytes};
use crate::caller::Caller;
use crate::certain::Habits;
use crate::faces::{Chat, Completions, Face, Generate, Messages, Responses};
use crate::keys::Budgets;
use crate::layers::Access;
use crate::memory::ReasoningMemory;
use crate::observe::{Metrics, Observers, Watch};
use crate::reload::Live;
use crate::stored::ResponseStore;
use crate::turn::{self, Client};
use crate::{Limits, ServerOptions, Shutdown};

/// What handlers need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    live: Live,
    limits: Limits,
    bodies: BodyLimits,
    gate: Gate,
    shutdown: Shutdown,
    observers: Observers,
    responses: ResponseStore,
    memory: Option<ReasoningMemory>,
    habits: Habits,
    started: SystemTime,
}

impl App {
    pub(crate) fn new(
        live: Live,
        options: &ServerOptions,
        shutdown: Shutdown,
        observers: Observers,
    ) -> Self {
        let limits = options.limits;
        Self(Arc::new(Inner {
            live,
            limits,
            bodies: BodyLimits::new(&limits),
            gate: Gate::new(limits),
            shutdown,
            observers,
            responses: ResponseStore::new(options.store.clone()),
            memory: options.reasoning_memory.then(ReasoningMemory::default),
            habits: Habits::default(),
            started: SystemTime::now(),
        }))
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.0.observers
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.observers.metrics
    }

    pub(crate) fn budgets(&self) -> &Budgets {
        &self.0.observers.budgets
    }

    pub(crate) fn responses(&self) -> &ResponseStore {
        &self.0.responses
    }

    /// What past answers were thought with; none if it is switched off.
    pub(crate) fn memory(&self) -> Option<&ReasoningMemory> {
        self.0.memory.as_ref()
    }

    pub(crate) fn habits(&self) -> &Habits {
        &self.0.habits
    }

    pub(crate) fn shutdown(&self) -> &Shutdown {
        &self.0.shutdown
    }
}

impl FromRef<App> for BodyLimits {
    fn from_ref(app: &App) -> Self {
        app.0.bodies.clone()
    }
}

/// The paths, by who may call them.
pub(crate) fn routers(app: App) -> Vec<(Access, Router)> {
    let open = Router::new()
        .route("/health", get(health::health))
        .route("/health/ready", get(health::health))
        .route("/health/live", get(health::live))
        .route("/openapi.json", get(openapi::openapi))
        .with_state(app.clone());
    let work = Router::new()
        .route("/generate", turns(&Generate))
        .route("/v1/chat/completions", turns(&Chat))
        .route("/chat/completions", turns(&Chat))
        .route("/v1/completions", turns(&Completions))
        .route("/v1/messages", turns(&Messages))
        .route("/v1/messages/count_tokens", post(count_tokens::count))
        .route("/v1/responses", turns(&Responses))
        .route("/v1/embeddings", post(embeddings::embed))
        .with_state(app.clone());
    let guarded = Router::new()
        .route(
            "/v1/responses/{id}",
            get(responses::get).delete(responses::delete),
        )
        .route("/v1/responses/{id}/input_items", get(responses::input))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve))
        .with_state(app);
    vec![
        (Access::Open, open),
        (Access::Work, work),
        (Access::Guarded, guarded),
    ]
}

/// A path whose bodies ask for turns in this format.
fn turns(face: &'static dyn Face) -> MethodRouter<App> {
    post(
        move |State(app): State<App>,
              Extension(watch): Extension<Watch>,
              caller: Caller,
              JsonBytes(body): JsonBytes| async move {
            turn::answer(&app, face, Client { caller, watch }, body).await
        },
    )
}

fn json(value: &Value) -> Response {
    json_text(value.to_string())
}

pub(crate) fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
