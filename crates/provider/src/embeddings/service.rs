//! Vectors that a service makes, over HTTP.

use std::sync::OnceLock;

use hyper::Uri;
use twopass_wire::embeddings::{EmbeddingsReply, EmbeddingsRequest};

use super::Embeddings;
use crate::backend::Endpoint;
use crate::config::{BackendKind, EmbeddingsConfig, ProviderConfig};
use crate::http;
use crate::{ErrorKind, ProviderError, endpoint};

/// One model of one entry's service.
#[derive(Debug)]
pub(super) struct ServiceModel {
    entry: ProviderConfig,
    model: String,
    /// Opened with the first request.
    endpoint: OnceLock<Endpoint>,
}

impl ServiceModel {
    pub(super) fn new(entry: ProviderConfig, model: &str) -> Self {
        Self {
            entry,
            model: model.to_owned(),
            endpoint: OnceLock::new(),
        }
    }

    /// Asks in batches; all vectors are of one size.
    pub(super) async fn embed(
        &self,
        texts: &[String],
        config: &EmbeddingsConfig,
    ) -> Result<Embeddings, ProviderError> {
        let (endpoint, uri) = self.open()?;
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
            let asked = endpoint.fetch_retried(&uri, &request.to_json(), read).await;
            let reply = match asked {
                // Many models have one size only and refuse to be asked for it.
                Err(error) if request.dimensions.is_some() && refuses_dimensions(&error) => {
                    request.dimensions = None;
                    endpoint
                        .fetch_retried(&uri, &request.to_json(), read)
                        .await?
                }
                asked => asked?,
            };
            all.add(reply)?;
        }
        Ok(all)
    }

    /// The connection pool and the address of this entry's vectors.
    fn open(&self) -> Result<(&Endpoint, Uri), ProviderError> {
        let refuse =
            |kind, message: String| Err(ProviderError::new(kind, message).with_param("embeddings"));
        let entry = &self.entry;
        if entry.backend == BackendKind::Embedded {
            return refuse(
                ErrorKind::Config,
                format!(
                    "`{}` makes no vectors in this process: set `embeddings.model` to \
                     `wordllama-256`, or `embeddings.provider` to a service that has the model",
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
        Ok((endpoint, http::uri(&url)?))
    }
}

/// True if the service refused the parameter `dimensions`, not the texts.
fn refuses_dimensions(error: &ProviderError) -> bool {
    let text = error.message().to_lowercase();
    let names = ["dimensions", "matryoshka"];
    error.kind() == ErrorKind::BadRequest
        && (error.param() == Some("dimensions") || names.iter().any(|name| text.contains(name)))
}
