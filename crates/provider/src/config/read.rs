//! The tree of the file into checked values.

use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;
use twopass_core::chat::{Sampling, ThinkTag};
use twopass_core::reasoning_parser::DIALECTS as REASONING_DIALECTS;
use twopass_core::tool_parser::{DIALECTS, ToolSyntax};
use url::Url;

use super::dialects::dialects;
use super::embeddings::embeddings;
use super::environment::Environment;
use super::keys::{self, KeyRequest};
use super::node::{Node, NodeKind};
use super::origin::Origin;
use super::overrides::{Overrides, apply_overrides, built_in_entry, flat_entry};
use super::section::{Section, Source, number, suggestion};
use super::types::{
    AgentConfig, ApiConfig, BackendKind, Config, ContentMode, Decisions, EngineConfig,
    GenerationConfig, HermesInjection, OnError, OnInvalidCall, ParsingFormat, ProviderConfig,
    ReasoningReplay, ServerConfig, Timeouts, ToolParserName, ToolResultRole, TwoPassMode,
    UnterminatedThink,
};
use crate::ProviderError;
use crate::plan::think_tags;
use crate::preset::{PRESETS, Preset};

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
    Ok(entries)
}

fn provider(
    source: &mut Source,
    path: &str,
    node: &Node,
    environment: &Environment,
) -> Result<ProviderConfig, ProviderError> {
    let mut section = Section::open(source, path, node)?;
    let place = section.place();
    let name = section.text(source, "name")?.ok_or_else(|| {
        source.error(
            place,
            &format!("{path}.name"),
            "is missing: every provider needs a name",
        )
    })?;
    let backends: Vec<_> = BackendKind::ALL
        .iter()
        .map(|kind| (kind.as_str(), *kind))
        .collect();
    let presets: Vec<_> = PRESETS.iter().map(|row| (row.name, row)).collect();
    let preset = section.one_of(source, "preset", &presets)?;
    let backend = section
        .one_of(source, "provider_backend", &backends)?
        .unwrap_or(preset.map_or(BackendKind::OpenAi, |row| row.backend));
    let model_name = match section.text(source, "model_name")? {
        Some(model) if backend == BackendKind::Embedded && model.ends_with(".gguf") => {
            source.resolve(&model).to_string_lossy().into_owned()
        }
        Some(model) => model,
        None if backend == BackendKind::Embedded => DEFAULT_MODEL.to_owned(),
        None => String::new(),
    };
    let mut entry = ProviderConfig::with_defaults(&name, backend, &model_name);
    entry.preset = preset.map(|row| row.name);
    entry.chat_template = section
        .text(source, "chat_template")?
        .map(|path| source.resolve(&path));
    choices(source, &mut section, &mut entry)?;
    entry.decisions = decisions(source, &mut section)?;
    if let Some(node) = section.node("generation_config") {
        generation(
            source,
            &section.path_of("generation_config"),
            node,
            &mut entry,
        )?;
    }
    if let Some(node) = section.node("engine_config") {
        entry.engine = engine(source, &section.path_of("engine_config"), node)?;
    }
    let api_path = section.path_of("api_config");
    let api_node = section.node("api_config").cloned().unwrap_or(Node {
        kind: NodeKind::Null,
        place,
    });
    entry.api = api(source, &api_path, &api_node, &entry, environment)?;
    section.finish(source)?;
    // Last, so that a misspelt key is named as such.
    if entry.model_name.is_empty() {
        let message = format!("is missing: `{backend}` needs the model's name");
        return Err(source.error(place, &format!("{path}.model_name"), message));
    }
    Ok(entry)
}

/// The keys of an entry that take one of a few names.
fn choices(
    source: &mut Source,
    section: &mut Section<'_>,
    entry: &mut ProviderConfig,
) -> Result<(), ProviderError> {
    if let Some(format) = section.one_of(
        source,
        "parsing_format",
        &named(ParsingFormat::ALL, ParsingFormat::as_str),
    )? {
        entry.parsing_format = format;
    }
    if entry.parsing_format == ParsingFormat::DirectResponse {
        entry.content_mode = ContentMode::Clean;
    }
    if let Some(parser) = tool_parser(source, section)? {
        entry.tool_parser = parser;
    }
    entry.dialects.clone_from(&source.dialects);
    if let Some(replay) = section.one_of(
        source,
        "reasoning_replay",
        &named(ReasoningReplay::ALL, ReasoningReplay::as_str),
    )? {
        entry.reasoning_replay = Some(replay);
    }
    if let Some(on_error) =
        section.one_of(source, "on_error", &named(OnError::ALL, OnError::as_str))?
    {
        entry.on_error = on_error;
    }
    if let Some(mode) = section.one_of(
        source,
        "content_mode",
        &named(ContentMode::ALL, ContentMode::as_str),
    )? {
        entry.content_mode = mode;
    }
    Ok(())
}

fn named<T: Copy>(all: &'static [T], name: fn(T) -> &'static str) -> Vec<(&'static str, T)> {
    all.iter().map(|value| (name(*value), *value)).collect()
}

/// `openai`, `auto`, a dialect's name, or several joined by `+`.
fn tool_parser(
    source: &mut Source,
    section: &mut Section<'_>,
) -> Result<Option<ToolParserName>, ProviderError> {
    let Some(name) = section.text(source, "tool_parser")? else {
        return Ok(None);
    };
    if ToolSyntax::from_name_with(&name, &source.dialects).is_some() {
        return Ok(Some(ToolParserName(name)));
    }
    let rows = source.dialects.iter().chain(DIALECTS);
    let names = rows.map(|dialect| dialect.name);
    let names: Vec<_> = ["openai", "auto"].into_iter().chain(names).collect();
    let message = format!(
        "must be `openai`, `auto`, `hermes`, `fenced`, another name of `twopass parse --list` or one of `dialects`, got `{name}`{}",
        suggestion(&name, &names)
    );
    let place = section.value_place("tool_parser").unwrap_or_default();
    Err(source.error(place, &section.path_of("tool_parser"), message))
}

fn decisions(source: &mut Source, section: &mut Section<'_>) -> Result<Decisions, ProviderError> {
    const PAIR: fn(&'static str, &'static str) -> [(&'static str, bool); 2] =
        |off, on| [(off, false), (on, true)];
    Ok(Decisions {
        two_pass_with_tools: section
            .boolean(source, "two_pass_with_tools")?
            .unwrap_or(false),
        unterminated_think: section.one_of(
            source,
            "unterminated_think",
            &named(UnterminatedThink::ALL, UnterminatedThink::as_str),
        )?,
        hermes_injection: section.one_of(
            source,
            "hermes_injection",
            &named(HermesInjection::ALL, HermesInjection::as_str),
        )?,
        think_tags: tags(source, section)?,
        tool_result_role: section.one_of(
            source,
            "tool_result_role",
            &named(ToolResultRole::ALL, ToolResultRole::as_str),
        )?,
        on_invalid_call: section.one_of(
            source,
            "on_invalid_call",
            &named(OnInvalidCall::ALL, OnInvalidCall::as_str),
        )?,
        single_tool_call_block: section
            .one_of(source, "tool_call_blocks", &PAIR("multiple", "single"))?
            .unwrap_or(false),
        tools_as_array: section
            .one_of(source, "tools_layout", &PAIR("lines", "array"))?
            .unwrap_or(false),
        preamble_before: section
            .one_of(source, "hermes_preamble", &PAIR("after", "before"))?
            .unwrap_or(false),
        reject_partial_tool_call: section
            .one_of(source, "partial_tool_call", &PAIR("accept", "reject"))?
            .unwrap_or(false),
        allow_openai_key_fallback: false,
    })
}

/// The think tags to look for, each known.
fn tags(source: &mut Source, section: &mut Section<'_>) -> Result<Vec<String>, ProviderError> {
    let place = section.value_place("think_tags").unwrap_or_default();
    let tags = section.texts(source, "think_tags")?.unwrap_or_default();
    for tag in &tags {
        if think_tags(std::slice::from_ref(tag)).is_none() {
            let names: Vec<_> = REASONING_DIALECTS.iter().map(|row| row.name).collect();
            let message = format!(
                "must be `think`, `thinking`, `reasoning`, `[THINK]` or the name of another dialect, got `{tag}`{}",
                suggestion(tag, &names)
            );
            return Err(source.error(place, &section.path_of("think_tags"), message));
        }
    }
    Ok(tags)
}

fn generation(
    source: &mut Source,
    path: &str,
    node: &Node,
    entry: &mut ProviderConfig,
) -> Result<(), ProviderError> {
    const MODES: [(&str, TwoPassMode); 5] = [
        ("auto", TwoPassMode::Auto),
        ("true", TwoPassMode::On),
        ("false", TwoPassMode::Off),
        ("on", TwoPassMode::On),
        ("off", TwoPassMode::Off),
    ];
    const TAGS: [(&str, ThinkTag); 2] =
        [("think", ThinkTag::Think), ("thinking", ThinkTag::Thinking)];
    let mut section = Section::open(source, path, node)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "sampling values need no more"
    )]
    let short = |value: Option<f64>| value.map(|value| value as f32);
    let sampling = Sampling {
        temperature: short(section.number(source, "temperature", 0.0, 100.0)?),
        top_p: short(section.number(source, "top_p", 0.0, 1.0)?),
        top_k: section.count(source, "top_k", 0)?,
        min_p: short(section.number(source, "min_p", 0.0, 1.0)?),
        seed: section.whole(source, "seed", 0, u64::MAX)?,
        presence_penalty: short(section.number(source, "presence_penalty", -2.0, 2.0)?),
        frequency_penalty: short(section.number(source, "frequency_penalty", -2.0, 2.0)?),
        repeat_penalty: short(section.number(source, "repeat_penalty", 0.0, 10.0)?),
    };
    let template_kwargs = match section.node("chat_template_kwargs") {
        None => Vec::new(),
        Some(node) => {
            let serde_json::Value::Object(object) = node.kind.to_json() else {
                return Err(section.fault(source, "chat_template_kwargs", node, "a map"));
            };
            source.origins.note(
                section.path_of("chat_template_kwargs"),
                Origin::file(&source.file, node.place.line),
            );
            object.into_iter().collect()
        }
    };
    entry.generation = GenerationConfig {
        sampling,
        max_tokens: section.count(source, "max_tokens", 1)?,
        two_pass: section
            .one_of(source, "two_pass", &MODES)?
            .unwrap_or(TwoPassMode::Auto),
        think_tag: section
            .one_of(source, "think_tag", &TAGS)?
            .unwrap_or_default(),
        max_thinking_tokens: section.count(source, "max_thinking_tokens", 0)?,
        max_response_tokens: section.count(source, "max_response_tokens", 1)?,
        stop: section.texts(source, "stop")?.unwrap_or_default(),
        template_kwargs,
        reasoning_effort: section.text(source, "reasoning_effort")?,
        include_reasoning: section.boolean(source, "include_reasoning")?,
    };
    section.finish(source)
}

fn engine(source: &mut Source, path: &str, node: &Node) -> Result<EngineConfig, ProviderError> {
    let mut section = Section::open(source, path, node)?;
    let config = EngineConfig {
        threads: section.count(source, "threads", 1)?,
        context_tokens: section.count(source, "context_tokens", 64)?,
        max_streams: section.count(source, "max_streams", 1)?,
        step_tokens: section.count(source, "step_tokens", 1)?,
        queue_len: section.count(source, "queue_len", 1)?,
    };
    section.finish(source)?;
    Ok(config)
}

fn api(
    source: &mut Source,
    path: &str,
    node: &Node,
    entry: &ProviderConfig,
    environment: &Environment,
) -> Result<ApiConfig, ProviderError> {
    let backend = entry.backend;
    let mut section = Section::open(source, path, node)?;
    let place = section.place();
    let base_url = match section.node("base_url") {
        None => None,
        Some(node) => {
            let NodeKind::Text(text) = &node.kind else {
                return Err(section.fault(source, "base_url", node, "an address"));
            };
            let key = section.path_of("base_url");
            source
                .origins
                .note(key.clone(), Origin::file(&source.file, node.place.line));
            Some(base_url(text).map_err(|message| source.error(node.place, &key, message))?)
        }
    };
    let base_url = match base_url.or_else(|| default_base_url(backend, entry.preset)) {
        None if backend != BackendKind::Embedded => {
            let whose = match entry.preset {
                Some(preset) => format!("the preset `{preset}`"),
                None => format!("`{backend}`"),
            };
            let message = format!("is missing: {whose} needs the server's address");
            return Err(source.error(place, &format!("{path}.base_url"), message));
        }
        url => url,
    };
    let api_key_env = section.text(source, "api_key_env")?;
    let api_key = section.read(source, "api_key", "text", |kind| match kind {
        NodeKind::Text(text) => Some(text.clone()),
        _ => None,
    })?;
    let no_auth = section
        .one_of(source, "auth", &[("key", false), ("none", true)])?
        .unwrap_or(false);
    let fallback = section
        .boolean(source, "allow_openai_key_fallback")?
        .unwrap_or(false);
    let timeouts = timeouts(source, &mut section, backend)?;
    let max_retries = section.whole(source, "max_retries", 0, 100)?;
    let headers = headers(source, &mut section)?;
    section.finish(source)?;
    let found = keys::find_key(
        &KeyRequest {
            backend,
            base_url: base_url.as_ref(),
            api_key_env: api_key_env.as_deref(),
            api_key: api_key.as_deref(),
            no_auth,
            allow_openai_key_fallback: fallback,
        },
        environment,
    );
    Ok(ApiConfig {
        base_url,
        api_key: found.key,
        api_key_origin: found.origin,
        key_fault: found.fault,
        timeouts,
        headers,
        max_retries: max_retries.and_then(|n| u32::try_from(n).ok()).unwrap_or(3),
    })
}

/// An address as it may stand in the file.
pub(super) fn base_url(text: &str) -> Result<Url, String> {
    let text = text.trim();
    // Read as a URL, `localhost:8001` has the scheme `localhost`.
    if let Some(whole) = with_scheme(text) {
        return Err(format!(
            "must begin with `http://` or `https://`, got `{text}`, did you mean `{whole}`?"
        ));
    }
    let url = Url::parse(text).map_err(|error| format!("is no address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(format!(
            "must be an http or https address, got a `{}` one",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password, use `api_key_env`".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not hold a query or fragment".to_owned());
    }
    Ok(url)
}

/// The address that a host without a scheme most likely stands for.
fn with_scheme(text: &str) -> Option<String> {
    if text.contains("://") || text.contains('@') {
        return None;
    }
    let whole = format!("http://{text}");
    let url = Url::parse(&whole).ok()?;
    url.host_str()
        .is_some_and(|host| !host.is_empty())
        .then_some(whole)
}

/// The address of the preset, else that of the format's own service.
pub(super) fn default_base_url(backend: BackendKind, preset: Option<&str>) -> Option<Url> {
    let row = match preset {
        Some(name) => Preset::from_name(name),
        None => PRESETS.iter().find(|row| row.backend == backend),
    };
    Url::parse(row?.base_url?).ok()
}

/// Further headers, name and value; values may be secrets.
fn headers(
    source: &mut Source,
    section: &mut Section<'_>,
) -> Result<Vec<(String, SecretString)>, ProviderError> {
    let path = section.path_of("headers");
    let Some(node) = section.node("headers") else {
        return Ok(Vec::new());
    };
    let wrong = |section: &Section<'_>, source: &Source| {
        section.fault(source, "headers", node, "a map of header names and texts")
    };
    let NodeKind::Map(entries) = &node.kind else {
        return Err(wrong(section, source));
    };
    let mut headers = Vec::new();
    for (name, place, value) in entries {
        let NodeKind::Text(value) = &value.kind else {
            return Err(wrong(section, source));
        };
        let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
        if !is_name || HeaderValue::from_str(value).is_err() {
            let message = "holds characters that no header may carry";
            return Err(source.error(*place, &format!("{path}.{name}"), message));
        }
        headers.push((name.clone(), SecretString::from(value.as_str())));
    }
    source
        .origins
        .note(path, Origin::file(&source.file, node.place.line));
    Ok(headers)
}

fn timeouts(
    source: &mut Source,
    section: &mut Section<'_>,
    backend: BackendKind,
) -> Result<Timeouts, ProviderError> {
    let mut timeouts = Timeouts::default();
    if backend != BackendKind::VllmNative {
        timeouts.total = Duration::from_secs(120);
        timeouts.first_token = Duration::from_secs(120);
    }
    let path = section.path_of("timeout_s");
    let Some(node) = section.node("timeout_s") else {
        return Ok(timeouts);
    };
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok();
    if let Some(value) = number(&node.kind) {
        let total = Some(value).filter(|value| *value > 0.0).and_then(seconds);
        timeouts.total = total.ok_or_else(|| {
            section.fault(source, "timeout_s", node, "a number of seconds above 0")
        })?;
        timeouts.first_token = timeouts.total;
        source
            .origins
            .note(path, Origin::file(&source.file, node.place.line));
        return Ok(timeouts);
    }
    let mut inner = Section::open(source, &path, node)?;
    for (name, slot) in [
        ("connect", &mut timeouts.connect),
        ("first_token", &mut timeouts.first_token),
        ("idle", &mut timeouts.idle),
        ("total", &mut timeouts.total),
    ] {
        if let Some(value) = inner.number(source, name, 0.001, 1e9)?.and_then(seconds) {
            *slot = value;
        }
    }
    inner.finish(source)?;
    Ok(timeouts)
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
        reasoning_memory: section
            .boolean(source, "reasoning_memory")?
            .unwrap_or(default.reasoning_memory),
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
        memory: section.text(source, "memory")?.unwrap_or(default.memory),
    };
    section.finish(source)?;
    Ok(config)
}
