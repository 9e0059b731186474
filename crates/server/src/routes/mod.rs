//! The endpoints, one file per family, and what they share.

mod health;
mod metrics;
mod models;

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{FromRef, State};
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use serde_json::Value;

use crate::admission::{Gate, admit};
use crate::body::{BodyLimits, JsonBytes};
use crate::faces::{Chat, Face, Generate};
use crate::models::Models;
use crate::observe::{Metrics, Watch};
use crate::{Limits, Shutdown, turn};

/// What handlers need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    models: Models,
    limits: Limits,
    bodies: BodyLimits,
    shutdown: Shutdown,
    metrics: Metrics,
    started: SystemTime,
}

impl App {
    pub(crate) fn new(models: Models, limits: Limits, shutdown: Shutdown) -> Self {
        Self(Arc::new(Inner {
            models,
            limits,
            bodies: BodyLimits::new(&limits),
            shutdown,
            metrics: Metrics::new(),
            started: SystemTime::now(),
        }))
    }

    pub(crate) fn models(&self) -> &Models {
        &self.0.models
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
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

/// The paths for everyone and the paths behind keys.
pub(crate) fn routers(app: App) -> (Router, Router) {
    let open = Router::new()
        .route("/health", get(health::health))
        .with_state(app.clone());
    let guarded = Router::new()
        .route("/generate", turns(&Generate))
        .route("/v1/chat/completions", turns(&Chat))
        .route("/chat/completions", turns(&Chat))
        // What stands above this line is work, and waits at the gate.
        .route_layer(from_fn_with_state(Gate::new(*app.limits()), admit))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve))
        .with_state(app);
    (open, guarded)
}

/// A path whose bodies ask for turns in this format.
fn turns(face: &'static dyn Face) -> MethodRouter<App> {
    post(
        move |State(app): State<App>,
              Extension(watch): Extension<Watch>,
              JsonBytes(body): JsonBytes| async move {
            turn::answer(app, face, body, watch).await
        },
    )
}

fn json(value: &Value) -> Response {
    json_text(value.to_string())
}

pub(crate) fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
