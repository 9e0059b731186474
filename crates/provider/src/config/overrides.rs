//! What goes over the file: flags, environment, and the single-provider form.

use url::Url;

use super::environment::Environment;
use super::keys::{self, KeyRequest};
use super::node::NodeKind;
use super::origin::Origin;
use super::read::{BUILT_IN_NAME, DEFAULT_MODEL, base_url, names_of};
use super::section::{Section, Source};
use super::types::{BackendKind, Config, ProviderConfig};
use crate::ProviderError;

/// What flags and environment put over the file.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    pub(super) provider: Option<(String, Origin)>,
    pub(super) model: Option<(String, Origin)>,
    pub(super) base_url: Option<(String, Origin)>,
}

impl Overrides {
    /// Fills what no flag says from the environment (row A13).
    pub(super) fn or_environment(self, environment: &Environment) -> Self {
        let read = |names: &[&str]| {
            environment
                .first(names)
                .map(|(v, origin)| (v.to_owned(), origin))
        };
        Self {
            provider: self
                .provider
                .or_else(|| read(&["TWOPASS_PROVIDER", "HERMITCLAW_PROVIDER"])),
            model: self
                .model
                .or_else(|| read(&["TWOPASS_MODEL", "HERMITCLAW_MODEL"])),
            base_url: self
                .base_url
                .or_else(|| read(&["TWOPASS_BASE_URL", "HERMITCLAW_BASE_URL"])),
        }
    }
}

/// The entry that runs without any file.
pub(super) fn built_in_entry(
    source: &mut Source,
    overrides: Overrides,
) -> Result<ProviderConfig, ProviderError> {
    if let Some((_, origin)) = overrides.base_url {
        let message = format!(
            "an address is set ({origin}), but the embedded engine has none; set TWOPASS_PROVIDER too"
        );
        return Err(source.error(Default::default(), "base_url", message));
    }
    let mut entry = ProviderConfig::embedded(BUILT_IN_NAME, DEFAULT_MODEL);
    if let Some((model, origin)) = overrides.model {
        entry.model_name = model;
        source
            .origins
            .note("providers[0].model_name".to_owned(), origin);
    }
    Ok(entry)
}

/// Puts flags and environment over the listed entry that is used by default.
pub(super) fn apply_overrides(
    source: &mut Source,
    config: &mut Config,
    default_provider: Option<String>,
    overrides: Overrides,
    environment: &Environment,
) -> Result<(), ProviderError> {
    let (name, origin) = match overrides.provider {
        Some((name, origin)) => (name, Some(origin)),
        None => (
            default_provider.unwrap_or_else(|| config.providers[0].name.clone()),
            None,
        ),
    };
    let Some(idx) = config.providers.iter().position(|entry| entry.name == name) else {
        let said = origin.map_or_else(String::new, |origin| format!(" ({origin})"));
        let message = format!(
            "unknown provider `{name}`{said}, configured: {}",
            names_of(config)
        );
        return Err(source.error(Default::default(), "default_provider", message));
    };
    config.default_provider = name;
    if let Some(origin) = origin {
        source.origins.note("default_provider".to_owned(), origin);
    }
    let entry = &mut config.providers[idx];
    if let Some((model, origin)) = overrides.model {
        entry.model_name = model;
        source
            .origins
            .note(format!("providers[{idx}].model_name"), origin);
    }
    if let Some((url, origin)) = overrides.base_url {
        let key = format!("providers[{idx}].api_config.base_url");
        if entry.backend == BackendKind::Embedded {
            let message = format!(
                "an address is set ({origin}), but `{}` is the embedded engine",
                entry.name
            );
            return Err(source.error(Default::default(), &key, message));
        }
        let parsed = base_url(&url).map_err(|message| {
            source.error(Default::default(), &key, format!("{message} ({origin})"))
        })?;
        source.origins.note(key, origin);
        // The key of the file was meant for the file's host: look again for the new one.
        let found = keys::find_key(
            &KeyRequest {
                backend: entry.backend,
                base_url: Some(&parsed),
                api_key_env: None,
                api_key: None,
                no_auth: false,
                allow_openai_key_fallback: false,
            },
            environment,
        );
        let same_host = entry
            .api
            .base_url
            .as_ref()
            .is_some_and(|old| old.host() == parsed.host());
        if !same_host {
            entry.api.api_key = found.key;
            entry.api.api_key_origin = found.origin;
            entry.api.key_fault = found.fault;
        }
        entry.api.base_url = Some(parsed);
    }
    Ok(())
}

/// A known `provider` of the single-provider form (rows A11, A12).
struct Preset {
    name: &'static str,
    backend: BackendKind,
    base_url: Option<&'static str>,
    model: &'static str,
}

const PRESETS: [Preset; 8] = [
    Preset {
        name: "openai",
        backend: BackendKind::OpenAiResponses,
        base_url: Some("https://api.openai.com/v1"),
        model: "gpt-4.1",
    },
    Preset {
        name: "openrouter",
        backend: BackendKind::OpenAi,
        base_url: Some("https://openrouter.ai/api/v1"),
        model: "gpt-4.1",
    },
    Preset {
        name: "custom",
        backend: BackendKind::OpenAi,
        base_url: None,
        model: "gpt-4.1",
    },
    Preset {
        name: "anthropic",
        backend: BackendKind::Anthropic,
        base_url: Some("https://api.anthropic.com"),
        model: "gpt-4.1",
    },
    Preset {
        name: "ollama",
        backend: BackendKind::Ollama,
        base_url: Some("http://localhost:11434"),
        model: "gpt-4.1",
    },
    Preset {
        name: "completions",
        backend: BackendKind::Completions,
        base_url: None,
        model: "gpt-4.1",
    },
    Preset {
        name: "vllm_native",
        backend: BackendKind::VllmNative,
        base_url: None,
        model: "gpt-4.1",
    },
    Preset {
        name: "embedded",
        backend: BackendKind::Embedded,
        base_url: None,
        model: DEFAULT_MODEL,
    },
];

/// Reads the single-provider form as one entry named after its provider, and its embedding
/// model.
pub(super) fn flat_entry(
    source: &mut Source,
    top: &mut Section<'_>,
    overrides: Overrides,
    environment: &Environment,
) -> Result<(ProviderConfig, Option<String>), ProviderError> {
    let choices: Vec<_> = PRESETS.iter().map(|preset| (preset.name, preset)).collect();
    let filed = top.one_of(source, "provider", &choices)?;
    let preset = chosen_preset(source, filed, overrides.provider)?;
    let filed_model = top.text(source, "model")?;
    let model = overrides.model.map(|(model, origin)| {
        source
            .origins
            .note("providers[0].model_name".to_owned(), origin);
        model
    });
    let model = model
        .or(filed_model)
        .unwrap_or_else(|| preset.model.to_owned());
    let mut entry = ProviderConfig::with_defaults(preset.name, preset.backend, &model);
    let api_key = top.read(source, "api_key", "text", |kind| match kind {
        NodeKind::Text(text) => Some(text.clone()),
        _ => None,
    })?;
    let url = match (overrides.base_url, top.text(source, "base_url")?) {
        (Some((url, origin)), _) => {
            let parsed = base_url(&url).map_err(|m| {
                source.error(Default::default(), "base_url", format!("{m} ({origin})"))
            })?;
            source
                .origins
                .note("providers[0].api_config.base_url".to_owned(), origin);
            Some(parsed)
        }
        (None, Some(url)) => {
            let place = top.place_of("base_url").unwrap_or_default();
            Some(base_url(&url).map_err(|message| source.error(place, "base_url", message))?)
        }
        (None, None) => preset.base_url.and_then(|url| Url::parse(url).ok()),
    };
    let needs_url = preset.base_url.is_none() && preset.backend != BackendKind::Embedded;
    if needs_url && url.is_none() {
        let message = format!(
            "is missing: the provider `{}` needs an address",
            preset.name
        );
        return Err(source.error(top.place(), "base_url", message));
    }
    let found = keys::find_key(
        &KeyRequest {
            backend: preset.backend,
            base_url: url.as_ref(),
            api_key_env: None,
            api_key: api_key.as_deref(),
            no_auth: false,
            allow_openai_key_fallback: false,
        },
        environment,
    );
    entry.api.base_url = url;
    entry.api.api_key = found.key;
    entry.api.api_key_origin = found.origin;
    entry.api.key_fault = found.fault;
    Ok((
        entry,
        Some(
            top.text(source, "embedding_model")?
                .unwrap_or_else(|| "text-embedding-3-small".to_owned()),
        ),
    ))
}

/// The preset of the environment or flag, else of the file, else `openai`.
fn chosen_preset(
    source: &mut Source,
    filed: Option<&'static Preset>,
    said: Option<(String, Origin)>,
) -> Result<&'static Preset, ProviderError> {
    match said {
        None => Ok(filed.unwrap_or(&PRESETS[0])),
        Some((name, origin)) => {
            let known: Vec<_> = PRESETS
                .iter()
                .map(|preset| format!("`{}`", preset.name))
                .collect();
            source
                .origins
                .note("providers[0].provider_backend".to_owned(), origin.clone());
            PRESETS
                .iter()
                .find(|preset| preset.name == name)
                .ok_or_else(|| {
                    let message = format!(
                        "must be one of {}, got `{name}` ({origin})",
                        known.join(", ")
                    );
                    source.error(Default::default(), "provider", message)
                })
        }
    }
}
