//! Vectors of texts (rows J1, J10, case rule 23).
//!
//! One model makes all vectors of a call: the configured one, or, if that fails, the
//! configured fallback, which is asked for all texts again. Vectors of two models, or of two
//! sizes, never mix.

use std::sync::{Arc, OnceLock};

use twopass_wire::embeddings::{EmbeddingsReply, EmbeddingsRequest};
use url::Url;

use crate::backend::Endpoint;
use crate::config::{BackendKind, Config, EmbeddingsConfig, ProviderConfig};
use crate::{ErrorKind, ProviderError, endpoint};

/// Static models that are to run in this process.
const STATIC_MODELS: &[&str] = &["wordllama-256"];

/// Vectors in the order of their texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Embeddings {
    /// One for each text, all of one size, every value finite.
    pub vectors: Vec<Vec<f32>>,
    /// The model that made them, as its answer names it.
    pub model: String,
    /// True if that is the fallback.
    pub fallback_used: bool,
    /// Tokens that were read.
    pub prompt_tokens: u64,
}

/// Makes vectors as the configuration's `embeddings` section says.
#[derive(Debug, Clone)]
pub(crate) struct Embedder(Arc<Plan>);

#[derive(Debug)]
struct Plan {
    config: EmbeddingsConfig,
    first: Source,
    fallback: Option<Source>,
}

impl Embedder {
    /// The models of a configuration; `own` is the entry that is asked.
    pub(crate) fn new(config: &Config, own: &ProviderConfig) -> Self {
        let embeddings = &config.embeddings;
        let entry = |name: &Option<String>, otherwise: &ProviderConfig| match name {
            None => Some(otherwise.clone()),
            Some(name) if *name == own.name => Some(own.clone()),
            Some(name) => match config.provider(Some(name)) {
                Ok(entry) => Some(entry.clone()),
                // Row J10: OpenAI's own service needs no entry, only its key.
                Err(_) => ProviderConfig::openai_service(&config.environment),
            },
        };
        let first = entry(&embeddings.provider, own).unwrap_or_else(|| own.clone());
        let fallback = embeddings.fallback.as_ref().and_then(|fallback| {
            let entry = entry(&fallback.provider, &first)?;
            Some(Source::new(entry, &fallback.model))
        });
        Self(Arc::new(Plan {
            config: embeddings.clone(),
            first: Source::new(first, &embeddings.model),
            fallback,
        }))
    }

    /// One vector for each text.
    pub(crate) async fn embed(&self, texts: &[String]) -> Result<Embeddings, ProviderError> {
        let plan = &*self.0;
        let error = match plan.first.embed(texts, &plan.config).await {
            Ok(vectors) => return Ok(vectors),
            Err(error) => error,
        };
        let Some(fallback) = &plan.fallback else {
            return Err(error);
        };
        match fallback.embed(texts, &plan.config).await {
            Ok(vectors) => Ok(Embeddings {
                fallback_used: true,
                ..vectors
            }),
            // A fallback of another size is a wrong configuration, whatever failed before.
            Err(second) if second.kind() == ErrorKind::DimensionMismatch => Err(second),
            Err(_) => Err(error),
        }
    }
}

/// One model of one entry.
#[derive(Debug)]
struct Source {
    entry: ProviderConfig,
    model: String,
    /// Opened with the first request.
    endpoint: OnceLock<Endpoint>,
}

impl Source {
    fn new(entry: ProviderConfig, model: &str) -> Self {
        Self {
            entry,
            model: model.to_owned(),
            endpoint: OnceLock::new(),
        }
    }

    async fn embed(
        &self,
        texts: &[String],
        config: &EmbeddingsConfig,
    ) -> Result<Embeddings, ProviderError> {
        let made = self.all(texts, config).await;
        made.map_err(|error| error.with_provider(&self.entry.name))
    }

    async fn all(
        &self,
        texts: &[String],
        config: &EmbeddingsConfig,
    ) -> Result<Embeddings, ProviderError> {
        let (endpoint, url) = self.open()?;
        let mut request = EmbeddingsRequest {
            model: self.model.clone(),
            dimensions: config.dimensions,
            ..EmbeddingsRequest::default()
        };
        let mut all = Embeddings {
            model: self.model.clone(),
            ..Embeddings::default()
        };
        for batch in texts.chunks(config.max_batch.max(1)) {
            request.inputs = batch.to_vec();
            let read =
                |body: &[u8]| EmbeddingsReply::from_json(body, batch.len(), config.dimensions);
            let asked = endpoint.fetch_retried(&url, &request.to_json(), read).await;
            let reply = match asked {
                // Many models have one size only and refuse to be asked for it.
                Err(error) if request.dimensions.is_some() && refuses_dimensions(&error) => {
                    request.dimensions = None;
                    endpoint
                        .fetch_retried(&url, &request.to_json(), read)
                        .await?
                }
                asked => asked?,
            };
            all.add(reply)?;
        }
        Ok(all)
    }

    /// The connection pool and the address of this entry's vectors.
    fn open(&self) -> Result<(&Endpoint, Url), ProviderError> {
        let refuse =
            |kind, message: String| Err(ProviderError::new(kind, message).with_param("embeddings"));
        let entry = &self.entry;
        let is_static = STATIC_MODELS.contains(&self.model.as_str());
        if is_static || entry.backend == BackendKind::Embedded {
            return refuse(
                ErrorKind::NotBuilt,
                format!(
                    "embeddings in this process (`{}`) are not built yet, set \
                     `embeddings.provider` and `embeddings.model` to those of a service",
                    self.model
                ),
            );
        }
        if entry.backend == BackendKind::Anthropic {
            let message = "the service of `anthropic` makes no embeddings".to_owned();
            return refuse(ErrorKind::Config, message);
        }
        if let Some(fault) = &entry.api.key_fault {
            return refuse(ErrorKind::Config, fault.clone());
        }
        let Some(url) = entry.embeddings_url() else {
            return refuse(ErrorKind::Config, "there is no address".to_owned());
        };
        let endpoint = match self.endpoint.get() {
            Some(endpoint) => endpoint,
            None => {
                let opened = endpoint::connect(entry)?;
                self.endpoint.get_or_init(|| opened)
            }
        };
        Ok((endpoint, url))
    }
}

impl Embeddings {
    /// Appends the vectors of the next batch.
    fn add(&mut self, reply: EmbeddingsReply) -> Result<(), ProviderError> {
        let len = |vectors: &[Vec<f32>]| vectors.first().map(Vec::len);
        if let (Some(before), Some(now)) = (len(&self.vectors), len(&reply.vectors))
            && before != now
        {
            return Err(ProviderError::new(
                ErrorKind::DimensionMismatch,
                format!("vectors of {before} dimensions were followed by some of {now}"),
            ));
        }
        if !reply.model.is_empty() {
            self.model = reply.model;
        }
        self.prompt_tokens += reply.prompt_tokens;
        self.vectors.extend(reply.vectors);
        Ok(())
    }
}

/// True if the service refused the parameter `dimensions`, not the texts.
fn refuses_dimensions(error: &ProviderError) -> bool {
    let text = error.message().to_lowercase();
    let names = ["dimensions", "matryoshka"];
    error.kind() == ErrorKind::BadRequest
        && (error.param() == Some("dimensions") || names.iter().any(|name| text.contains(name)))
}
