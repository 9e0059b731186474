//! Long-term memory as the configuration has it, with vectors by its embedding model.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use twopass_provider::config::{Environment, MemoryKind};
use twopass_provider::{Config, Provider};
use twopass_tools::memory::{Embedder, Memory};
use twopass_tools::{ErrorKind, ToolError};

/// Opens the memory of this kind; `None` if there is to be none. What keeps it from full use
/// is in [`Memory::degradation`].
///
/// # Errors
/// Kind `unavailable`: the user has no data folder, or `memory.db` in it cannot be opened.
pub async fn open_memory(
    kind: MemoryKind,
    config: &Config,
    environment: &Environment,
) -> Result<Option<Memory>, ToolError> {
    let memory = match kind {
        MemoryKind::None => return Ok(None),
        MemoryKind::Session => Memory::in_process(embedder(config))?,
        MemoryKind::Sqlite => {
            let folder = environment.data_folder().ok_or_else(|| {
                let message = "there is no folder for memory: neither XDG_DATA_HOME nor HOME is \
                               set; `memory: session` needs none";
                ToolError::new(ErrorKind::Unavailable, message)
            })?;
            Memory::open(folder.join("memory.db"), embedder(config)).await?
        }
    };
    Ok(Some(memory))
}

/// The configured embedding model; without one memory finds by words.
#[must_use]
pub fn embedder(config: &Config) -> Option<Arc<dyn Embedder>> {
    let provider = Provider::from_entry(config, config.embeddings.provider.as_deref()).ok()?;
    Some(Arc::new(Vectors {
        provider,
        model: config.embeddings.model.clone(),
    }))
}

/// The configured embedding model. Vectors of its fallback are of another space and not taken.
struct Vectors {
    provider: Provider,
    model: String,
}

impl Embedder for Vectors {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, ToolError>> {
        async move {
            let unavailable = |text: String| ToolError::new(ErrorKind::Unavailable, text);
            let made = self.provider.embed(&texts).await;
            let made = made.map_err(|error| unavailable(error.to_string()))?;
            if made.fallback_used {
                return Err(unavailable(format!("`{}` does not answer", self.model)));
            }
            Ok(made.vectors)
        }
        .boxed()
    }
}
