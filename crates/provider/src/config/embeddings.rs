//! The `embeddings` section (row J10, case rule 23).

use twopass_wire::embeddings::MAX_INPUTS;

use super::node::{Node, NodeKind};
use super::section::{Section, Source};
use crate::ProviderError;

/// Texts in one request if the file does not say: small enough for local servers.
const DEFAULT_BATCH: usize = 128;

/// Who makes vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingsConfig {
    /// The entry that makes them; `None` = the entry that is asked.
    pub provider: Option<String>,
    /// The model's id, verbatim.
    pub model: String,
    /// The size of a vector; every vector is checked against it. `None` = as the model gives,
    /// alike within one call.
    pub dimensions: Option<u32>,
    /// The most texts in one request, 1 to 2048 (default 128).
    pub max_batch: usize,
    /// Who is asked when the first fails; needs `dimensions`, so that both are of equal size.
    pub fallback: Option<EmbeddingsFallback>,
}

/// The second model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingsFallback {
    /// The entry that makes its vectors; `None` = the one of the first model. `openai` means
    /// OpenAI's own service, with `OPENAI_API_KEY`, if no entry has this name.
    pub provider: Option<String>,
    /// The model's id, verbatim.
    pub model: String,
}

impl Default for EmbeddingsConfig {
    fn default() -> Self {
        Self {
            provider: None,
            model: "wordllama-256".to_owned(),
            dimensions: None,
            max_batch: DEFAULT_BATCH,
            fallback: None,
        }
    }
}

/// Reads the section; what it does not say stays as in `base`.
pub(super) fn embeddings(
    source: &mut Source,
    node: &Node,
    base: &EmbeddingsConfig,
) -> Result<EmbeddingsConfig, ProviderError> {
    let mut section = Section::open(source, "embeddings", node)?;
    let most = u64::try_from(MAX_INPUTS).unwrap_or(u64::MAX);
    let max_batch = section.whole(source, "max_batch", 1, most)?;
    let config = EmbeddingsConfig {
        provider: section.text(source, "provider")?,
        model: section
            .text(source, "model")?
            .unwrap_or_else(|| base.model.clone()),
        dimensions: section.count(source, "dimensions", 1)?,
        max_batch: max_batch
            .and_then(|most| usize::try_from(most).ok())
            .unwrap_or(base.max_batch),
        fallback: fallback(source, &mut section)?,
    };
    if config.fallback.is_some() && config.dimensions.is_none() {
        let message = "needs `embeddings.dimensions`: vectors of another size must not slip in";
        let place = section.place_of("fallback").unwrap_or_default();
        return Err(source.error(place, "embeddings.fallback", message));
    }
    section.finish(source)?;
    Ok(config)
}

/// A model's name, or `{provider, model}`.
fn fallback(
    source: &mut Source,
    section: &mut Section<'_>,
) -> Result<Option<EmbeddingsFallback>, ProviderError> {
    let place = section.value_place("fallback").unwrap_or_default();
    let Some(NodeKind::Map(_)) = section.node("fallback").map(|node| &node.kind) else {
        let model = section.text(source, "fallback")?;
        return Ok(model.map(|model| EmbeddingsFallback {
            provider: None,
            model,
        }));
    };
    let path = section.path_of("fallback");
    let Some(node) = section.node("fallback") else {
        return Ok(None);
    };
    let mut inner = Section::open(source, &path, node)?;
    let provider = inner.text(source, "provider")?;
    let model = inner.text(source, "model")?.ok_or_else(|| {
        source.error(
            place,
            &format!("{path}.model"),
            "is missing: name the second model",
        )
    })?;
    inner.finish(source)?;
    Ok(Some(EmbeddingsFallback { provider, model }))
}
