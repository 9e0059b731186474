use std::iter;
use std::path::Path;
use std::sync::Arc;

use twopass_core::chat::{BadRequest, Message, Reply, Request, TurnBudget};
use twopass_core::control::split_reasoning;
use twopass_core::reasoning_parser::ReasoningSyntax;

use crate::backend::{self, Backend, RawRequest, TurnStream};
use crate::client::ChatClient;
use crate::config::{Config, OnError, ParsingFormat, ProviderConfig};
use crate::embeddings::{Embedder, Embeddings};
use crate::fallback;
use crate::plan::{CallOptions, Planned, Thinking};
use crate::{ErrorKind, ProviderError};

/// One configured entry, ready to be asked. Cheap to clone; clones share the backend.
#[derive(Clone)]
pub struct Provider {
    config: Arc<ProviderConfig>,
    backend: Arc<dyn Backend>,
    embedder: Embedder,
    fallbacks: Arc<[Provider]>,
}

/// What [`Provider::invoke`] gives: exactly these two texts, on every path (row B1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Invocation {
    /// The public answer.
    pub response: String,
    /// The private trace; empty if thinking was not asked for.
    pub thinking: String,
}

impl Provider {
    /// Reads the configuration and opens the entry of this name (or the default one).
    ///
    /// `path` `None` follows the search order of [`Config::load`]. Loads no model yet: the
    /// first turn or [`Provider::prepare`] does.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: the file, a key or a value is wrong, or the name unknown.
    /// Kind [`ErrorKind::NotBuilt`]: the entry's backend does not exist yet.
    pub fn from_config(path: Option<&Path>, name: Option<&str>) -> Result<Self, ProviderError> {
        let config = Config::load(path)?;
        Self::from_entry(&config, name)
    }

    /// Opens one entry of a configuration that was read already.
    ///
    /// Loads no model yet: the first turn or [`Provider::prepare`] does.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: the name is unknown or a needed key is missing.
    /// Kind [`ErrorKind::NotBuilt`]: the entry's backend does not exist yet.
    pub fn from_entry(config: &Config, name: Option<&str>) -> Result<Self, ProviderError> {
        let name = name.unwrap_or(&config.default_provider);
        let opened = Self::from_entries(config, &[name])?;
        opened.into_iter().next().ok_or_else(|| {
            ProviderError::new(ErrorKind::Internal, "an entry was lost while it was opened")
        })
    }

    /// Opens these entries, and each of their fallbacks once, so that a model of this process
    /// that several of them name is loaded once. Loads none yet.
    ///
    /// # Errors
    /// As [`Provider::from_entry`], of a fallback too.
    pub fn from_entries(config: &Config, names: &[&str]) -> Result<Vec<Self>, ProviderError> {
        Self::reopen(config, names, &[])
    }

    /// [`Provider::from_entries`] beside providers that run: what they have loaded is not
    /// loaded again.
    ///
    /// # Errors
    /// The same.
    pub fn reopen(
        config: &Config,
        names: &[&str],
        running: &[Self],
    ) -> Result<Vec<Self>, ProviderError> {
        let mut opened: Vec<Self> = Vec::new();
        for name in names {
            let entry = config.provider(Some(name))?;
            for name in iter::once(&entry.name).chain(&entry.fallbacks) {
                if !opened.iter().any(|known| known.name() == name) {
                    opened.push(Self::open(config, config.provider(Some(name))?, running)?);
                }
            }
        }
        let find = |name: &str| opened.iter().find(|known| known.name() == name).cloned();
        let with_fallbacks = |name: &&str| {
            let entry = find(name)?;
            let fallbacks = entry.config.fallbacks.iter();
            Some(Self {
                fallbacks: fallbacks.filter_map(|name| find(name)).collect(),
                ..entry
            })
        };
        Ok(names.iter().filter_map(with_fallbacks).collect())
    }

    /// The entry alone.
    fn open(
        config: &Config,
        entry: &ProviderConfig,
        running: &[Self],
    ) -> Result<Self, ProviderError> {
        if let Some(fault) = &entry.api.key_fault {
            return Err(ProviderError::new(ErrorKind::Config, fault.clone())
                .with_provider(&entry.name)
                .with_param("api_config.api_key_env"));
        }
        let mut running = running
            .iter()
            .flat_map(|known| iter::once(known).chain(known.fallbacks()));
        let backend = match running.find_map(|known| known.backend.heir(entry)) {
            Some(backend) => backend,
            None => backend::from_config(entry, config)
                .map_err(|error| error.with_provider(&entry.name))?,
        };
        let embedder = Embedder::new(config, entry);
        Ok(Self {
            embedder,
            ..Self::new(entry.clone(), backend)
        })
    }

    /// A provider of this entry over a backend that stands already. It makes no vectors.
    #[must_use]
    pub fn new(config: ProviderConfig, backend: Arc<dyn Backend>) -> Self {
        Self {
            embedder: Embedder::new(&Config::default(), &config),
            config: Arc::new(config),
            backend,
            fallbacks: Arc::new([]),
        }
    }

    /// The same entry, and each of its fallbacks, over another backend made of its own.
    #[must_use]
    pub fn map_backend(self, change: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend>) -> Self {
        let changed = |known: &Self| Self {
            backend: change(Arc::clone(&known.backend)),
            ..known.clone()
        };
        Self {
            fallbacks: self.fallbacks.iter().map(changed).collect(),
            ..changed(&self)
        }
    }

    /// The entry's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The model's name, as configured.
    #[must_use]
    pub fn model_name(&self) -> &str {
        &self.config.model_name
    }

    /// The entry.
    #[must_use]
    pub fn config(&self) -> &ProviderConfig {
        &self.config
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Loads what the first turn would load.
    ///
    /// # Errors
    /// The model is missing or broken, or there is no memory for it.
    pub async fn prepare(&self) -> Result<(), ProviderError> {
        self.backend
            .prepare()
            .await
            .map_err(|error| error.with_provider(self.name()))
    }

    /// Makes a checked request of messages and call arguments.
    ///
    /// # Errors
    /// Names the parameter at fault.
    pub fn request(
        &self,
        messages: Vec<Message>,
        options: CallOptions,
    ) -> Result<Planned, BadRequest> {
        Planned::new(&self.config, messages, options)
    }

    /// Starts a turn, at the entry's `fallbacks` if it fails before its first output.
    /// Dropping the stream cancels it.
    ///
    /// # Errors
    /// Whatever stops the turn before its first event.
    pub async fn stream(&self, planned: Planned) -> Result<TurnStream, ProviderError> {
        fallback::stream(self, planned).await
    }

    /// The entries that take over, in this order.
    #[must_use]
    pub fn fallbacks(&self) -> &[Self] {
        &self.fallbacks
    }

    /// The most turns that the provider itself can have under way or waiting at one time;
    /// `None` if that is not known.
    #[must_use]
    pub fn most_turns(&self) -> Option<usize> {
        self.backend.most_turns()
    }

    /// Starts a turn here or nowhere.
    pub(crate) async fn alone(&self, request: Box<Request>) -> Result<TurnStream, ProviderError> {
        let budget = request.budget;
        let opened = self.backend.open(*request).await;
        let stream = opened.map_err(|error| error.with_provider(self.name()))?;
        Ok(backend::decide(stream, &self.config, budget))
    }

    /// Goes on from a raw text, if the backend takes such.
    ///
    /// # Errors
    /// Kind [`ErrorKind::BadRequest`]: it takes conversations only. Else as
    /// [`Provider::stream`].
    pub async fn complete(&self, request: RawRequest) -> Result<TurnStream, ProviderError> {
        let opened = self.backend.complete(request).await;
        opened.map_err(|error| error.with_provider(self.name()))
    }

    /// Tokens of the request's prompt; `None` if the backend cannot count them.
    ///
    /// # Errors
    /// The prompt cannot be made, or the engine cannot be asked.
    pub async fn count_prompt(&self, request: Request) -> Result<Option<u64>, ProviderError> {
        let counted = self.backend.count_prompt(request).await;
        counted.map_err(|error| error.with_provider(self.name()))
    }

    /// Runs a turn to its end.
    ///
    /// # Errors
    /// The turn failed.
    pub async fn generate(&self, planned: Planned) -> Result<Reply, ProviderError> {
        self.stream(planned).await?.collect().await
    }

    /// One turn as two texts (row B1). Two passes need `thinking` (X18).
    ///
    /// # Errors
    /// With `on_error: raise` the turn's error. With `on_error: message` never: the error's
    /// text is the response.
    pub async fn invoke(
        &self,
        messages: Vec<Message>,
        thinking: bool,
    ) -> Result<Invocation, ProviderError> {
        let thinking = if thinking {
            Thinking::On
        } else {
            Thinking::Off
        };
        self.invoke_with(
            messages,
            CallOptions {
                thinking,
                ..CallOptions::default()
            },
        )
        .await
    }

    /// [`Provider::invoke`] with every call argument (row B2).
    ///
    /// # Errors
    /// The same as [`Provider::invoke`].
    pub async fn invoke_with(
        &self,
        messages: Vec<Message>,
        options: CallOptions,
    ) -> Result<Invocation, ProviderError> {
        let shows_thinking = options.thinking != Thinking::Off;
        let mut has_two_passes = false;
        let turn = async {
            let request = self.request(messages, options)?;
            has_two_passes = matches!(request.budget, TurnBudget::TwoPass { .. });
            self.generate(request).await
        };
        match turn.await {
            // Rows C3, D14, X3: a second pass that gave nothing is an error, never a silent
            // empty answer; a single pass that only thought has an empty answer.
            Ok(reply) if has_two_passes && reply.answer_missing() => self.settle(
                ProviderError::new(
                    ErrorKind::InvalidResponse,
                    "the model ended its turn without an answer",
                ),
                if shows_thinking {
                    reply.reasoning
                } else {
                    String::new()
                },
            ),
            Ok(reply) => Ok(Invocation {
                response: reply.content,
                thinking: if shows_thinking {
                    reply.reasoning
                } else {
                    String::new()
                },
            }),
            Err(error) => {
                // What was thought before the failure is kept (row D14).
                let thought = error.partial().map(|partial| partial.reasoning.clone());
                let thought = thought.filter(|_| shows_thinking).unwrap_or_default();
                self.settle(error, thought)
            }
        }
    }

    fn settle(&self, error: ProviderError, thinking: String) -> Result<Invocation, ProviderError> {
        let error = error.with_provider(self.name());
        match self.config.on_error {
            OnError::Raise => Err(error),
            OnError::Message => Ok(Invocation {
                response: error_text(&error),
                thinking,
            }),
        }
    }

    /// One vector for each text, in their order, as the configuration's `embeddings` section
    /// says (rows J1, J10): by its provider, else by this entry.
    ///
    /// # Errors
    /// The vectors cannot be had, from the fallback neither, or are not what was asked for:
    /// kinds [`ErrorKind::DimensionMismatch`] and [`ErrorKind::InvalidResponse`]. Kind
    /// [`ErrorKind::NotFound`]: a model of this process is not on this machine.
    pub async fn embed(&self, texts: &[String]) -> Result<Embeddings, ProviderError> {
        self.embedder.embed(texts).await
    }

    /// The model that [`Provider::embed`] asks first, as configured.
    #[must_use]
    pub fn embedding_model(&self) -> &str {
        self.embedder.model()
    }

    /// A chat client over this provider (row B4); always there, whatever the backend.
    #[must_use]
    pub fn client(&self) -> ChatClient {
        ChatClient::new(self.clone())
    }

    /// Splits a message's content by this entry's `parsing_format` (rows A3, B7).
    #[must_use]
    pub fn parse_response(&self, content: &str) -> Invocation {
        match self.config.parsing_format {
            ParsingFormat::ThinkTags => parse_response(content),
            ParsingFormat::DirectResponse => Invocation {
                response: content.to_owned(),
                thinking: String::new(),
            },
        }
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The public text of a failed turn (row B14).
pub(crate) fn error_text(error: &ProviderError) -> String {
    format!("Error: {error}")
}

/// Splits the content of a client's message into `{response, thinking}` (rows B7, C1-C4).
#[must_use]
pub fn parse_response(content: &str) -> Invocation {
    let split = split_reasoning(content, &ReasoningSyntax::auto());
    Invocation {
        response: split.answer,
        thinking: split.reasoning,
    }
}
