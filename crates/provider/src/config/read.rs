//! The tree of the file into checked values.

use secrecy::SecretString;

use super::addresses::check_fallbacks;
use super::api::{base_url, headers};
use super::dialects::dialects;
use super::embeddings::embeddings;
use super::entry::provider;
use super::environment::Environment;
use super::node::{Node, NodeKind};
use super::overrides::{Overrides, apply_overrides, built_in_entry, flat_entry};
use super::section::{Section, Source};
use super::types::{AgentConfig, Config, MemoryKind, ProviderConfig, ServerConfig, TracesConfig};
use crate::ProviderError;

/// The model of an embedded entry that names none.
pub(super) const DEFAULT_MODEL: &str = "smollm2-135m";
/// The name of the entry that runs without any file.
pub(super) const BUILT_IN_NAME: &str = "local";
/// The keys of the single-provider form (row A11).
pub(super) const FLAT_KEYS: [&str; 5] = [
    "provider",
    "model",
    "api_key",
    "base_url",
    "embedding_model",
];

/// Reads the whole file.
pub(super) fn config(
    source: &mut Source,
    root: &Node,
    overrides: Overrides,
    environment: Environment,
) -> Result<Config, ProviderError> {
    let mut top = Section::open(source, "", root)?;
    let mut config = Config {
        providers: Vec::new(),
        ..Config::default()
    };
    config.dialects = dialects(source, top.node("dialects"))?;
    let listed = top.node("providers");
    let flat_key = FLAT_KEYS
        .into_iter()
        .find(|key| top.place_of(key).is_some());
    if let (Some(_), Some(key)) = (listed, flat_key) {
        let place = top.place_of(key).unwrap_or_default();
        return Err(source.error(
            place,
            key,
            "the single-provider form and `providers` exclude each other, remove one of them",
        ));
    }
    let default_provider = top.text(source, "default_provider")?;
    if let Some(name) = default_provider.as_ref().filter(|_| listed.is_none()) {
        let place = top.place_of("default_provider").unwrap_or_default();
        let message = format!("names `{name}`, but there is no `providers` list");
        return Err(source.error(place, "default_provider", message));
    }
    if let Some(list) = listed {
        config.providers = provider_list(source, list, &environment)?;
        apply_overrides(
            source,
            &mut config,
            default_provider,
            overrides,
            &environment,
        )?;
        for key in FLAT_KEYS {
            top.node(key);
        }
    } else {
        // The built-in entry may be named like any other.
        let named = overrides.provider.as_ref();
        let is_flat = flat_key.is_some() || named.is_some_and(|(name, _)| name != BUILT_IN_NAME);
        let (entry, embedding_model) = if is_flat {
            flat_entry(source, &mut top, overrides, &environment)?
        } else {
            for key in FLAT_KEYS {
                top.node(key);
            }
            (built_in_entry(source, overrides)?, None)
        };
        config.default_provider.clone_from(&entry.name);
        config.providers = vec![entry];
        if let Some(model) = embedding_model {
            config.embeddings.model = model;
        }
    }
    if let Some(node) = top.node("embeddings") {
        config.embeddings = embeddings(source, node, &config.embeddings)?;
    }
    if let Some(node) = top.node("server") {
        config.server = server(source, node)?;
    }
    if let Some(node) = top.node("agent") {
        config.agent = agent(source, node)?;
    }
    config.models_dir = top
        .text(source, "models_dir")?
        .map(|path| source.resolve(&path));
    top.finish(source)?;
    check_references(source, &config)?;
    config.environment = environment;
    Ok(config)
}

fn check_references(source: &Source, config: &Config) -> Result<(), ProviderError> {
    let fallback = config.embeddings.fallback.as_ref();
    let fallback = fallback.and_then(|fallback| fallback.provider.as_deref());
    for (key, name) in [
        ("provider", config.embeddings.provider.as_deref()),
        // OpenAI's own service needs no entry.
        (
            "fallback.provider",
            fallback.filter(|name| *name != "openai"),
        ),
    ] {
        let Some(name) = name else { continue };
        if !config.providers.iter().any(|entry| entry.name == name) {
            let message = format!(
                "unknown provider `{name}`, configured: {}",
                names_of(config)
            );
            let key = format!("embeddings.{key}");
            return Err(source.error(Default::default(), &key, message));
        }
    }
    Ok(())
}

pub(super) fn names_of(config: &Config) -> String {
    let names: Vec<_> = config
        .providers
        .iter()
        .map(|entry| format!("`{}`", entry.name))
        .collect();
    names.join(", ")
}

fn provider_list(
    source: &mut Source,
    list: &Node,
    environment: &Environment,
) -> Result<Vec<ProviderConfig>, ProviderError> {
    let NodeKind::List(items) = &list.kind else {
        let message = format!(
            "must be a list with one map per provider, got {}",
            list.kind.brief()
        );
        return Err(source.error(list.place, "providers", message));
    };
    if items.is_empty() {
        return Err(source.error(list.place, "providers", "must hold at least one provider"));
    }
    let mut entries: Vec<ProviderConfig> = Vec::new();
    for (idx, item) in items.iter().enumerate() {
        let path = format!("providers[{idx}]");
        let entry = provider(source, &path, item, environment)?;
        if let Some(first) = entries.iter().position(|known| known.name == entry.name) {
            let message = format!("`{}` is the name of providers[{first}] already", entry.name);
            return Err(source.error(item.place, &format!("{path}.name"), message));
        }
        entries.push(entry);
    }
    check_fallbacks(source, items, &entries)?;
    Ok(entries)
}

fn server(source: &mut Source, node: &Node) -> Result<ServerConfig, ProviderError> {
    let mut section = Section::open(source, "server", node)?;
    let default = ServerConfig::default();
    let config = ServerConfig {
        host: section.text(source, "host")?.unwrap_or(default.host),
        port: section
            .whole(source, "port", 0, u64::from(u16::MAX))?
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(default.port),
        keys_file: section
            .text(source, "keys_file")?
            .map(|path| source.resolve(&path)),
        cors_origins: origins(source, &mut section)?,
        reasoning_memory: section
            .boolean(source, "reasoning_memory")?
            .unwrap_or(default.reasoning_memory),
        store: section.text(source, "store")?.map(|place| {
            let is_path = place != "memory" && !place.contains("://");
            let path = || source.resolve(&place).display().to_string();
            SecretString::from(if is_path { path() } else { place })
        }),
        access_log: section
            .boolean(source, "access_log")?
            .unwrap_or(default.access_log),
        traces: match section.node("traces") {
            Some(node) => Some(traces(source, node)?),
            None => None,
        },
        memory: memory(source, &mut section)?.unwrap_or(default.memory),
    };
    section.finish(source)?;
    Ok(config)
}

fn memory(
    source: &mut Source,
    section: &mut Section<'_>,
) -> Result<Option<MemoryKind>, ProviderError> {
    let kinds = MemoryKind::ALL.map(|kind| (kind.as_str(), kind));
    section.one_of(source, "memory", &kinds)
}

fn origins(source: &mut Source, section: &mut Section<'_>) -> Result<Vec<String>, ProviderError> {
    let origins = section.texts(source, "cors_origins")?.unwrap_or_default();
    let is_origin = |origin: &String| {
        let rest = origin
            .split_once("://")
            .filter(|(scheme, _)| !scheme.is_empty());
        rest.is_some_and(|(_, host)| {
            let is_plain = |c: char| c.is_ascii_graphic() && !"/?#*@".contains(c);
            !host.is_empty() && host.chars().all(is_plain)
        })
    };
    if origins == ["*"] || origins.iter().all(is_origin) {
        return Ok(origins
            .iter()
            .map(|origin| origin.to_ascii_lowercase())
            .collect());
    }
    let place = section.value_place("cors_origins");
    let place = place.unwrap_or(section.place());
    let message = "must be a list of `SCHEME://HOST` or `SCHEME://HOST:PORT`, or `*` alone";
    Err(source.error(place, &section.path_of("cors_origins"), message))
}

fn traces(source: &mut Source, node: &Node) -> Result<TracesConfig, ProviderError> {
    let mut section = Section::open(source, "server.traces", node)?;
    let place = section.value_place("endpoint").unwrap_or(node.place);
    let key = section.path_of("endpoint");
    let endpoint = section.text(source, "endpoint")?.ok_or_else(|| {
        let message = "is missing: traces need the address of their collector";
        source.error(place, &key, message)
    })?;
    let endpoint = base_url(&endpoint).map_err(|message| source.error(place, &key, message))?;
    let config = TracesConfig {
        endpoint,
        headers: headers(source, &mut section)?,
        content: section.boolean(source, "content")?.unwrap_or(false),
    };
    section.finish(source)?;
    Ok(config)
}

fn agent(source: &mut Source, node: &Node) -> Result<AgentConfig, ProviderError> {
    let mut section = Section::open(source, "agent", node)?;
    let default = AgentConfig::default();
    let config = AgentConfig {
        max_rounds: section
            .count(source, "max_rounds", 1)?
            .unwrap_or(default.max_rounds),
        workspace: section
            .text(source, "workspace")?
            .map_or(default.workspace, Into::into),
        memory: memory(source, &mut section)?.unwrap_or(default.memory),
    };
    section.finish(source)?;
    Ok(config)
}
