//! Lists of models: `/v1/models` and its relatives, both ways.

use serde_json::json;

use crate::fault::Fault;
use crate::json::{Lenient, elements, string};

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelInfo {
    /// The id that requests name.
    pub id: String,
    /// Who offers it, if the list says so.
    pub owned_by: Option<String>,
    /// When it was made, in seconds since 1970, if the list says so.
    pub created_s: Option<u64>,
    /// The most tokens of prompt and answer together, if the list says so.
    pub context_tokens: Option<u64>,
}

/// Reads a list in the shape of OpenAI (`data`), Anthropic (`data`), Ollama (`models` with
/// `name`), Google (`models` with `name: "models/.."`), or a bare array.
///
/// # Errors
/// The body is not JSON, is an error, or is no list.
pub fn decode_models(body: &[u8]) -> Result<Vec<ModelInfo>, Fault> {
    let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
    let trimmed = text.trim();
    let items = if trimmed.starts_with('[') {
        elements(trimmed)
    } else {
        let fields = Lenient::read(trimmed).ok_or_else(|| Fault::not_json(body))?;
        if fields.raw("error").is_some() {
            return Err(Fault::from_json(trimmed)
                .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
        }
        let name = ["data", "models"]
            .into_iter()
            .find(|name| fields.raw(name).is_some_and(|raw| raw.starts_with('[')))
            .ok_or_else(|| Fault::invalid("the answer is no list of models"))?;
        fields.list(name)
    };
    Ok(items.into_iter().filter_map(read_model).collect())
}

fn read_model(item: &str) -> Option<ModelInfo> {
    if let Some(id) = string(item) {
        return Some(ModelInfo {
            id,
            ..ModelInfo::default()
        });
    }
    let model = Lenient::read(item)?;
    let id = ["id", "model", "name"]
        .iter()
        .find_map(|name| model.text(name))?;
    let meta = model.object("meta").unwrap_or_default();
    let context = [
        "max_model_len",
        "context_length",
        "context_window",
        "inputTokenLimit",
    ]
    .iter()
    .find_map(|name| model.count(name))
    .or_else(|| meta.count("n_ctx"));
    Some(ModelInfo {
        id: id.strip_prefix("models/").unwrap_or(&id).to_owned(),
        owned_by: model.text("owned_by"),
        created_s: model.count("created"),
        context_tokens: context,
    })
}

/// Writes a list in OpenAI's shape: the server side.
#[must_use]
pub fn encode_models(models: &[ModelInfo]) -> String {
    let data: Vec<_> = models
        .iter()
        .map(|model| {
            let mut entry = json!({
                "id": model.id,
                "object": "model",
                "created": model.created_s.unwrap_or(0),
                "owned_by": model.owned_by.as_deref().unwrap_or("twopass"),
            });
            if let Some(tokens) = model.context_tokens {
                entry["max_model_len"] = tokens.into();
            }
            entry
        })
        .collect();
    json!({"object": "list", "data": data}).to_string()
}
