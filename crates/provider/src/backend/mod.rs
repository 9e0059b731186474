//! What turns a request into events: one trait, one file per backend.

mod chat;
mod completions;
mod decide;
#[cfg(feature = "embedded")]
mod binding;
#[cfg(feature = "embedded")]
mod embedded;
mod exchange;
mod format;
mod markup;
#[cfg(feature = "embedded")]
mod open_place;
mod passes;
mod stream;
mod text_turn;
mod unread;
mod vllm_native;

pub use chat::Chat;
pub use completions::Completions;
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, Recital};
pub use stream::{TurnItem, TurnSource, TurnStream};
pub use text_turn::{PassStep, TextEngine, run_raw, run_text_turn};
pub use vllm_native::VllmNative;

pub(crate) use decide::decide;
pub(crate) use exchange::Endpoint;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use twopass_core::chat::{Delivery, Request, Sampling, TurnBudget};
use twopass_core::chat_template::{Prompt, Segment};
use twopass_core::control::PassRequest;

#[cfg(feature = "embedded")]
use crate::catalogue::Catalogue;
use crate::config::{BackendKind, Config, ProviderConfig};
use crate::{ErrorKind, ProviderError};

/// A raw text to go on from.
#[derive(Debug, Clone, PartialEq)]
pub struct RawRequest {
    /// The text, control tokens in it included.
    pub prompt: String,
    /// The cap; `None` = until the context is full.
    pub max_tokens: Option<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Strings that end the output.
    pub stop: Vec<String>,
    /// Asks for the probabilities of its tokens, as [`Request::logprobs`] does.
    pub logprobs: Option<u32>,
    /// How a service is asked to hand over its reply.
    pub delivery: Delivery,
}

impl RawRequest {
    /// The parts that the engine's side of a turn needs; there is no conversation.
    fn to_request(&self) -> Request {
        Request {
            budget: TurnBudget::OnePass {
                max_tokens: self.max_tokens,
            },
            sampling: self.sampling,
            logprobs: self.logprobs,
            delivery: self.delivery,
            ..Request::new(Vec::new())
        }
    }

    /// The one pass of it.
    #[must_use]
    pub fn pass(&self) -> PassRequest {
        PassRequest {
            name: "answer",
            continuation: String::new(),
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
            thinking: None,
        }
    }

    fn prompt(&self) -> Prompt {
        Prompt {
            segments: vec![Segment::Markup(self.prompt.clone())],
        }
    }
}

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

    /// Goes on from a raw text, with nothing read into what comes: one event per piece of text.
    ///
    /// Errors: as [`Backend::open`]; kind [`ErrorKind::BadRequest`] if the backend takes
    /// conversations only.
    fn complete(&self, request: RawRequest) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        let _ = request;
        let message = "this provider takes conversations only, no raw text";
        let error = ProviderError::new(ErrorKind::BadRequest, message).with_param("model");
        ready(Err(error)).boxed()
    }

    /// Tokens of the request's prompt; `None` if this backend cannot count them.
    fn count_prompt(&self, request: Request) -> BoxFuture<'_, Result<Option<u64>, ProviderError>> {
        let _ = request;
        ready(Ok(None)).boxed()
    }

    /// A backend of this entry that goes on with what this one has loaded; `None` if there is
    /// nothing to go on with.
    fn heir(&self, _entry: &ProviderConfig) -> Option<Arc<dyn Backend>> {
        None
    }

    /// What went wrong so far without stopping anything: sentences for the operator.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The most turns that can be under way or wait at one time; `None` if that is not known.
    fn most_turns(&self) -> Option<usize> {
        None
    }

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
