//! Which provider a request's model name means.

use std::collections::HashMap;

use twopass_provider::config::BackendKind;
use twopass_provider::{ErrorKind, Provider};

use crate::Error;
use crate::api_error::{ApiError, ApiErrorKind};

/// The most characters of a caller's model name that an error repeats.
const SHOWN_CHARS: usize = 100;

/// The configured providers and the names that reach them: `NAME` and `NAME/model-id`.
#[derive(Debug)]
pub(crate) struct Models {
    providers: Vec<Provider>,
    default_idx: usize,
    /// Every callable name, in the order of the configuration.
    ids: Vec<(String, usize)>,
    by_id: HashMap<String, usize>,
}

impl Models {
    /// # Errors
    /// Kind `Config`: no provider, two of one name, or a default that is none of them.
    pub(crate) fn new(providers: Vec<Provider>, default: Option<&str>) -> Result<Self, Error> {
        let names: Vec<_> = providers
            .iter()
            .map(|p| format!("`{}`", p.name()))
            .collect();
        let default_idx = match default {
            None => 0,
            Some(name) => providers
                .iter()
                .position(|p| p.name() == name)
                .ok_or_else(|| {
                    Error::config(format!(
                        "unknown provider `{name}`, configured: {}",
                        names.join(", ")
                    ))
                })?,
        };
        if providers.is_empty() {
            return Err(Error::config("a server needs at least one provider"));
        }
        let mut ids = Vec::new();
        let mut by_id = HashMap::new();
        for (idx, provider) in providers.iter().enumerate() {
            for id in [
                provider.name().to_owned(),
                format!("{}/{}", provider.name(), model_id(provider)),
            ] {
                if by_id.insert(id.clone(), idx).is_some() {
                    return Err(Error::config(format!("two providers can be called `{id}`")));
                }
                ids.push((id, idx));
            }
        }
        Ok(Self {
            providers,
            default_idx,
            ids,
            by_id,
        })
    }

    /// The provider of requests that name no model.
    pub(crate) fn default_provider(&self) -> &Provider {
        &self.providers[self.default_idx]
    }

    pub(crate) fn providers(&self) -> &[Provider] {
        &self.providers
    }

    /// Every name that [`Self::pick`] knows, with its provider.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (&str, &Provider)> {
        self.ids
            .iter()
            .map(|(id, idx)| (id.as_str(), &self.providers[*idx]))
    }

    /// # Errors
    /// Nobody is called so; the error lists who there is.
    pub(crate) fn pick(&self, model: Option<&str>) -> Result<&Provider, ApiError> {
        let Some(model) = model else {
            return Ok(self.default_provider());
        };
        self.by_id
            .get(model)
            .map(|idx| &self.providers[*idx])
            .ok_or_else(|| {
                let shown: String = model.chars().take(SHOWN_CHARS).collect();
                let known: Vec<_> = self.ids.iter().map(|(id, _)| format!("`{id}`")).collect();
                ApiError::new(
                    ApiErrorKind::Provider(ErrorKind::NotFound),
                    format!("unknown model `{shown}`, callable: {}", known.join(", ")),
                )
                .with_param("model")
            })
    }
}

/// The model's name for callers: of a file its stem, since its place is nobody's business.
pub(crate) fn model_id(provider: &Provider) -> &str {
    let name = provider.model_name();
    if provider.config().backend != BackendKind::Embedded {
        return name;
    }
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    match file.strip_suffix(".gguf") {
        Some(stem) if !stem.is_empty() => stem,
        _ => name,
    }
}
