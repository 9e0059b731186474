//! What goes over the file: flags, environment, and the single-provider form.

use super::api::{base_url, default_base_url};
use super::environment::Environment;
use super::keys::{self, KeyRequest};
use super::node::NodeKind;
use super::origin::Origin;
use super::read::{BUILT_IN_NAME, DEFAULT_MODEL, names_of};
use super::section::{Section, Source};
use super::types::{BackendKind, Config, ProviderConfig};
use crate::ProviderError;
use crate::preset::{PRESETS, Preset};

/// The remote model of the single-provider form that names none (row A11).
const FLAT_MODEL: &str = "gpt-4.1";

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
        let message = format!(
            "unknown provider `{name}`, configured: {}",
            names_of(config)
        );
        let key = said_by(origin.as_ref(), "default_provider");
        return Err(source.error(Default::default(), key, message));
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
        entry.api.base_urls.clear();
    }
    Ok(())
}

/// A `provider` of the single-provider form that is more, or something else, than the row of
/// known endpoints of its name (rows A11, A12, X15).
const FLAT_BACKENDS: [(&str, BackendKind); 4] = [
    ("openai", BackendKind::OpenAiResponses),
    ("completions", BackendKind::Completions),
    ("vllm_native", BackendKind::VllmNative),
    ("embedded", BackendKind::Embedded),
];

/// What a `provider` of the single-provider form stands for.
#[derive(Debug, Clone, Copy)]
struct FlatProvider {
    name: &'static str,
    backend: BackendKind,
    preset: Option<&'static str>,
}

impl FlatProvider {
    /// The model of an entry that names none (row A11).
    fn default_model(&self) -> &'static str {
        match self.backend {
            BackendKind::Embedded => DEFAULT_MODEL,
            _ => FLAT_MODEL,
        }
    }
}

/// All of them, the default one first.
fn flat_providers() -> Vec<FlatProvider> {
    let row = |name| Preset::from_name(name).map(|row| row.name);
    let named = FLAT_BACKENDS.iter().map(|&(name, backend)| FlatProvider {
        name,
        backend,
        preset: row(name),
    });
    let mut all: Vec<FlatProvider> = named.collect();
    for row in PRESETS {
        if !all.iter().any(|known| known.name == row.name) {
            all.push(FlatProvider {
                name: row.name,
                backend: row.backend,
                // A row without facts of its own gives way to the one of the address.
                preset: row.has_facts().then_some(row.name),
            });
        }
    }
    all
}

/// Reads the single-provider form as one entry named after its provider, and its embedding
/// model.
pub(super) fn flat_entry(
    source: &mut Source,
    top: &mut Section<'_>,
    overrides: Overrides,
    environment: &Environment,
) -> Result<(ProviderConfig, Option<String>), ProviderError> {
    let choices: Vec<_> = flat_providers()
        .into_iter()
        .map(|row| (row.name, row))
        .collect();
    let filed = top.one_of(source, "provider", &choices)?;
    let preset = chosen_provider(source, filed, overrides.provider)?;
    let filed_model = top.text(source, "model")?;
    let model = overrides.model.map(|(model, origin)| {
        source
            .origins
            .note("providers[0].model_name".to_owned(), origin);
        model
    });
    let model = model
        .or(filed_model)
        .unwrap_or_else(|| preset.default_model().to_owned());
    let mut entry = ProviderConfig::with_defaults(preset.name, preset.backend, &model);
    entry.preset = preset.preset;
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
        (None, None) => preset
            .preset
            .and_then(|name| default_base_url(preset.backend, Some(name))),
    };
    if preset.backend != BackendKind::Embedded && url.is_none() {
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

/// The one of the environment or flag, else of the file, else the default.
fn chosen_provider(
    source: &mut Source,
    filed: Option<FlatProvider>,
    said: Option<(String, Origin)>,
) -> Result<FlatProvider, ProviderError> {
    let all = flat_providers();
    let Some((name, origin)) = said else {
        return Ok(filed.unwrap_or(all[0]));
    };
    source
        .origins
        .note("providers[0].provider_backend".to_owned(), origin.clone());
    let found = all.iter().find(|row| row.name == name);
    found.copied().ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|row| format!("`{}`", row.name)).collect();
        let message = format!("must be one of {}, got `{name}`", known.join(", "));
        source.error(
            Default::default(),
            said_by(Some(&origin), "provider"),
            message,
        )
    })
}

/// The flag or variable that a value came from, else the key of the file.
fn said_by<'a>(origin: Option<&'a Origin>, key: &'a str) -> &'a str {
    match origin {
        Some(Origin::Flag(name) | Origin::Env(name) | Origin::DotEnv(name)) => name,
        _ => key,
    }
}
