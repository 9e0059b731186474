//! What turns a request into events: one trait, one file per backend.

mod chat;
mod completions;
mod decide;
#[cfg(feature = "embedded")]
mod embedded;
mod exchange;
mod format;
mod markup;
mod passes;
mod stream;
mod text_turn;
mod vllm_native;

pub use chat::Chat;
pub use completions::Completions;
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, Recital};
pub use stream::{TurnItem, TurnStream};
pub use text_turn::{PassStep, TextEngine, run_text_turn};
pub use vllm_native::VllmNative;

pub(crate) use decide::decide;
pub(crate) use exchange::Endpoint;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use twopass_core::chat::Request;

#[cfg(not(feature = "embedded"))]
use crate::ErrorKind;
use crate::ProviderError;
#[cfg(feature = "embedded")]
use crate::catalogue::Catalogue;
use crate::config::{BackendKind, Config, ProviderConfig};

/// What turns a checked request into a turn.
///
/// A backend decides the route; the shape of what comes back never depends on it. Shared
/// code reads facts of the configuration, not which backend this is.
pub trait Backend: Send + Sync {
    /// Starts a turn. The stream gives events in order and ends with
    /// [`TurnItem::Done`] or one error. Dropping the future or the stream cancels the turn:
    /// the embedded engine frees its slot at the next step, HTTP backends close their
    /// connection.
    ///
    /// Errors: whatever stops the turn before its first event.
    fn open(&self, request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>>;

    /// Loads what the first turn would load, so that it starts at once and a broken model
    /// shows before any request.
    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>>;

    /// True if a turn could start now without loading anything.
    fn is_ready(&self) -> bool;

    /// Counters for people and tests, name and value; empty if the backend keeps none.
    fn stats(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// The backend of an entry. Opens no connection and loads no model.
///
/// # Errors
/// Kind [`crate::ErrorKind::NotBuilt`] names a backend that this build lacks; kind
/// [`crate::ErrorKind::Config`] a setting that the backend needs.
pub fn from_config(
    entry: &ProviderConfig,
    config: &Config,
) -> Result<Arc<dyn Backend>, ProviderError> {
    #[cfg(not(feature = "embedded"))]
    let _ = config;
    match entry.backend {
        BackendKind::VllmNative => Ok(Arc::new(VllmNative::new(entry)?)),
        #[cfg(feature = "embedded")]
        BackendKind::Embedded => Ok(Arc::new(Embedded::of_catalogue(
            entry,
            Catalogue::new(config),
        )?)),
        #[cfg(not(feature = "embedded"))]
        BackendKind::Embedded => Err(not_built(entry)),
        BackendKind::OpenAi
        | BackendKind::OpenAiResponses
        | BackendKind::Anthropic
        | BackendKind::Ollama => Ok(Arc::new(Chat::new(entry)?)),
        BackendKind::Completions => Ok(Arc::new(Completions::new(entry)?)),
    }
}

#[cfg(not(feature = "embedded"))]
fn not_built(entry: &ProviderConfig) -> ProviderError {
    ProviderError::new(
        ErrorKind::NotBuilt,
        format!(
            "`provider_backend: {}` is not in this build: it lacks the feature `embedded`",
            entry.backend
        ),
    )
    .with_param("provider_backend")
}
