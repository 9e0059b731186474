//! Which provider a request's model name means.

use std::collections::HashMap;

use twopass_provider::config::BackendKind;
use twopass_provider::{ErrorKind, Provider};

use crate::Error;
use crate::api_error::{ApiError, ApiErrorKind};
use crate::caller::Caller;

/// The most characters of a caller's model name that an error repeats.
const SHOWN_CHARS: usize = 100;

/// The configured providers and the names that reach them: `NAME`, `NAME/model-id`, and the
/// model id alone where one provider has it.
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

    /// Every name that [`Self::pick`] knows for this caller, with its provider.
    pub(crate) fn ids<'a>(
        &'a self,
        caller: &'a Caller,
    ) -> impl Iterator<Item = (&'a str, &'a Provider)> {
        let ids = self.ids.iter();
        let ids = ids.map(|(id, idx)| (id.as_str(), &self.providers[*idx]));
        ids.filter(|(_, provider)| may_use(caller, provider))
    }

    /// The provider that the caller means.
    ///
    /// # Errors
    /// Nobody is called so, or his key is not for that one; the error lists who is callable.
    pub(crate) fn pick(&self, caller: &Caller, model: Option<&str>) -> Result<&Provider, ApiError> {
        let provider = match model {
            None => Some(self.default_provider()),
            Some(model) => {
                let by_id = self.by_id.get(model).map(|idx| &self.providers[*idx]);
                by_id.or_else(|| self.only_one_of(model))
            }
        };
        if let Some(provider) = provider.filter(|provider| may_use(caller, provider)) {
            return Ok(provider);
        }
        let callable: Vec<_> = self.ids(caller).map(|(id, _)| format!("`{id}`")).collect();
        let callable = match callable.as_slice() {
            [] => "nothing".to_owned(),
            callable => callable.join(", "),
        };
        let (kind, message) = match provider {
            Some(provider) => (
                ApiErrorKind::Forbidden,
                format!(
                    "the key is not for `{}`, callable: {callable}",
                    provider.name()
                ),
            ),
            None => {
                let shown: String = model
                    .unwrap_or_default()
                    .chars()
                    .take(SHOWN_CHARS)
                    .collect();
                (
                    ApiErrorKind::Provider(ErrorKind::NotFound),
                    format!("unknown model `{shown}`, callable: {callable}"),
                )
            }
        };
        Err(ApiError::new(kind, message).with_param("model"))
    }

    /// The provider of this model, if no other one has it too.
    fn only_one_of(&self, model: &str) -> Option<&Provider> {
        let of_model = self.providers.iter();
        let mut of_model = of_model.filter(|provider| model_id(provider) == model);
        let only = of_model.next()?;
        of_model.next().is_none().then_some(only)
    }
}

/// True if the caller's key is for this provider, by any of its names.
fn may_use(caller: &Caller, provider: &Provider) -> bool {
    let long = format!("{}/{}", provider.name(), model_id(provider));
    caller.may_use([provider.name(), &long])
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

#[cfg(test)]
mod tests {
    use twopass_provider::Config;
    use twopass_provider::config::Environment;

    use super::*;

    #[test]
    fn names_reach_their_provider() {
        let entry = |name: &str, model: &str| {
            format!(
                "  - {{name: {name}, provider_backend: openai, model_name: {model}, api_config: {{base_url: \"http://localhost:1\"}}}}\n"
            )
        };
        let yaml = [entry("a", "m1"), entry("b", "m1"), entry("c", "org/m2")].concat();
        let yaml = format!("providers:\n{yaml}");
        let config = Config::parse(&yaml, "the test", Environment::of_pairs([])).unwrap();
        let providers = Provider::from_entries(&config, &["a", "b", "c"]).unwrap();
        let models = Models::new(providers, Some("b")).unwrap();
        for (name, expected) in [
            (None, Some("b")),
            (Some("a"), Some("a")),
            (Some("a/m1"), Some("a")),
            (Some("org/m2"), Some("c")),
            (Some("c/org/m2"), Some("c")),
            // Two have it.
            (Some("m1"), None),
            (Some("m2"), None),
        ] {
            let picked = models
                .pick(&Caller::default(), name)
                .ok()
                .map(Provider::name);
            assert_eq!(picked, expected, "{name:?}");
        }
    }
}
