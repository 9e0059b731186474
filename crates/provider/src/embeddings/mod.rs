//! Vectors of texts (rows J1, J10, case rule 23).
//!
//! One model makes all vectors of a call: the configured one, or, if that fails, the
//! configured fallback, which is asked for all texts again. Vectors of two models, or of two
//! sizes, never mix.

mod service;
#[cfg(feature = "embedded")]
mod static_model;

use std::sync::Arc;

use twopass_wire::embeddings::EmbeddingsReply;

use crate::config::{Config, EmbeddingsConfig, ProviderConfig};
use crate::{ErrorKind, ProviderError};
use service::ServiceModel;

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
            Some(Source::new(config, entry, &fallback.model))
        });
        Self(Arc::new(Plan {
            config: embeddings.clone(),
            first: Source::new(config, first, &embeddings.model),
            fallback,
        }))
    }

    /// The model that is asked first, as configured.
    pub(crate) fn model(&self) -> &str {
        &self.0.config.model
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

/// One model of one entry: of its service, or of this process.
#[derive(Debug)]
struct Source {
    entry: ProviderConfig,
    maker: Maker,
}

#[derive(Debug)]
enum Maker {
    Service(Box<ServiceModel>),
    #[cfg(feature = "embedded")]
    Static(static_model::StaticModel),
}

impl Source {
    fn new(config: &Config, entry: ProviderConfig, model: &str) -> Self {
        #[cfg(feature = "embedded")]
        if let Some(model) = static_model::StaticModel::named(config, model) {
            let maker = Maker::Static(model);
            return Self { entry, maker };
        }
        #[cfg(not(feature = "embedded"))]
        let _ = config;
        let maker = Maker::Service(Box::new(ServiceModel::new(entry.clone(), model)));
        Self { entry, maker }
    }

    async fn embed(
        &self,
        texts: &[String],
        config: &EmbeddingsConfig,
    ) -> Result<Embeddings, ProviderError> {
        let made = match &self.maker {
            Maker::Service(model) => model.embed(texts, config).await,
            #[cfg(feature = "embedded")]
            Maker::Static(model) => return model.embed(texts, config.dimensions).await,
        };
        made.map_err(|error| error.with_provider(&self.entry.name))
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
