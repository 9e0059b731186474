//! Engines with raw completions behind HTTP: vLLM, llama.cpp's server.
//!
//! ```text
//!  Request -> plan_turn -> token ids -> pass 1 -> its very ids + the close -> pass 2
//! ```
//! We render the chat template, so the prompt is the same as on the embedded engine, and
//! tokenise it through the engine's own `/tokenize`. Pass 2 goes on from the ids that pass 1
//! gave back: nothing is tokenised twice, and the engine's prefix cache holds (row M2).

mod pass;
mod remote;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;
use twopass_core::chat::{Diagnostic, DiagnosticKind, Request};
use twopass_core::control::{Means, OnUnboundSchema, TurnSettings, plan_turn};

use super::text_turn::{run_raw, run_text_turn, unix_now};
use super::{Backend, RawRequest, TurnStream};
use crate::config::ProviderConfig;
use crate::prompt::turn_settings;
use crate::{ErrorKind, ProviderError};

use pass::Side;
use remote::Remote;

/// Why no probabilities come.
const NO_LOGPROBS: &str = "this backend reads no probabilities of tokens";

/// The backend of `provider_backend: completions`.
#[derive(Debug)]
pub struct Completions {
    entry: ProviderConfig,
    settings: TurnSettings,
    remote: OnceCell<Arc<Remote>>,
}

impl Completions {
    /// A client of the configured engine. Opens no connection.
    ///
    /// # Errors
    /// Kind [`crate::ErrorKind::Config`]: `api_config.base_url` is missing, or the dialect is
    /// unknown.
    pub fn new(entry: &ProviderConfig) -> Result<Self, ProviderError> {
        crate::endpoint::turn_url(entry)?;
        Ok(Self {
            entry: entry.clone(),
            settings: TurnSettings {
                means: Means::Continuation,
                // What binds is the server's own engine, whose limits are not ours.
                on_unbound_schema: OnUnboundSchema::Check,
                ..turn_settings(entry)?
            },
            remote: OnceCell::new(),
        })
    }

    /// The engine, asked once what it is and which template its model has.
    async fn remote(&self) -> Result<&Arc<Remote>, ProviderError> {
        let discover = || async { Remote::discover(&self.entry).await.map(Arc::new) };
        self.remote.get_or_try_init(discover).await
    }

    async fn start(&self, request: Request) -> Result<TurnStream, ProviderError> {
        let remote = Arc::clone(self.remote().await?);
        let mut planned = plan_turn(&request, &remote.model, &self.settings, unix_now())?;
        if request.logprobs.is_some() {
            planned.diagnostics.push(Diagnostic::new(
                DiagnosticKind::Degraded,
                format!("`logprobs` was not sent: {NO_LOGPROBS}"),
            ));
        }
        let side = Side::new(remote, request, &planned.prompt).await?;
        run_text_turn(planned, side).await
    }
}

impl Backend for Completions {
    fn open(&self, request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        self.start(request).boxed()
    }

    fn complete(&self, request: RawRequest) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        async move {
            if request.logprobs.is_some() {
                return Err(
                    ProviderError::new(ErrorKind::BadRequest, NO_LOGPROBS).with_param("logprobs")
                );
            }
            let remote = Arc::clone(self.remote().await?);
            let side = Side::new(remote, request.to_request(), &request.prompt()).await?;
            run_raw(request.pass(), side).await
        }
        .boxed()
    }

    fn count_prompt(&self, request: Request) -> BoxFuture<'_, Result<Option<u64>, ProviderError>> {
        async move {
            let remote = self.remote().await?;
            let planned = plan_turn(&request, &remote.model, &self.settings, unix_now())?;
            let limit = remote.endpoint.total_deadline();
            let ids = remote.tokenize_prompt(&planned.prompt, limit).await?;
            Ok(Some(ids.len() as u64))
        }
        .boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { self.remote().await.map(|_| ()) }.boxed()
    }

    fn is_ready(&self) -> bool {
        self.remote.initialized()
    }
}
