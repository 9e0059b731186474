//! Long-term memory in the user's data folder, with vectors as the configuration makes them.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use twopass_provider::config::Environment;
use twopass_provider::{Config, ErrorKind, Provider};
use twopass_tools::memory::{Embedder, Memory};
use twopass_tools::{ErrorKind as ToolErrorKind, ToolError};

use crate::failure::{Failure, say};

/// Opens `memory.db` in the user's data folder. What keeps it from full use is said on stderr.
pub(crate) async fn open(config: &Config) -> Result<Memory, Failure> {
    let folder = Environment::of_process().data_folder().ok_or_else(|| {
        let message = "there is no folder for memory: neither XDG_DATA_HOME nor HOME is set";
        Failure::of(ErrorKind::Config, message)
    })?;
    // Without vectors memory finds by words.
    let embedder = Provider::from_entry(config, config.embeddings.provider.as_deref())
        .ok()
        .map(|provider| {
            Arc::new(Vectors {
                provider,
                model: config.embeddings.model.clone(),
            }) as Arc<dyn Embedder>
        });
    let memory = Memory::open(folder.join("memory.db"), embedder).await?;
    if let Some(reason) = memory.degradation() {
        say(&format!("warning: {reason}"));
    }
    Ok(memory)
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
            let unavailable = |text: String| ToolError::new(ToolErrorKind::Unavailable, text);
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
