//! One entry of `providers`: its choices, caps, sampling and engine.

use std::path::PathBuf;

use twopass_core::chat::{Sampling, ThinkTag};
use twopass_core::control::OnUnboundSchema;
use twopass_core::reasoning_parser::DIALECTS as REASONING_DIALECTS;
use twopass_core::tool_parser::{DIALECTS, ToolSyntax};

use super::api::api;
use super::environment::Environment;
use super::node::{Node, NodeKind, Place};
use super::origin::Origin;
use super::read::DEFAULT_MODEL;
use super::section::{Section, Source, suggestion};
use super::types::{
    BackendKind, CacheType, ContentMode, Decisions, EngineConfig, GenerationConfig,
    HermesInjection, OnError, OnInvalidCall, ParsingFormat, ProviderConfig, ReasoningReplay,
    ToolParserName, ToolResultRole, TwoPassMode, UnterminatedThink,
};
use crate::ProviderError;
use crate::plan::think_tags;
use crate::preset::PRESETS;

/// Reads one entry.
///
/// # Errors
/// Names the key, its value and what is allowed.
pub(super) fn provider(
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
        Some(model) if backend == BackendKind::Embedded => model_place(source, model),
        Some(model) => model,
        None if backend == BackendKind::Embedded => DEFAULT_MODEL.to_owned(),
        None => String::new(),
    };
    let mut entry = ProviderConfig::with_defaults(&name, backend, &model_name);
    entry.preset = preset.map(|row| row.name);
    entry.chat_template = section
        .text(source, "chat_template")?
        .map(|path| source.resolve(&path));
    entry.fallbacks = section.texts(source, "fallbacks")?.unwrap_or_default();
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
    check_continue(source, &section, &entry)?;
    section.finish(source)?;
    // Last, so that a misspelt key is named as such.
    if entry.model_name.is_empty() {
        let message = format!("is missing: `{backend}` needs the model's name");
        return Err(source.error(place, &format!("{path}.model_name"), message));
    }
    Ok(entry)
}

/// A turn of one pass has nothing to go on with (X3).
fn check_continue(
    source: &Source,
    section: &Section<'_>,
    entry: &ProviderConfig,
) -> Result<(), ProviderError> {
    let continues = entry.decisions.unterminated_think == Some(UnterminatedThink::Continue);
    if !continues || entry.backend.has_two_passes(entry.generation.two_pass) {
        return Ok(());
    }
    let message = "`continue` needs the second request of two passes: write `two_pass: true`, \
                   or take `empty`, `error` or `direct`";
    let place = section.value_place("unterminated_think");
    let key = section.path_of("unterminated_think");
    Err(source.error(place.unwrap_or_default(), &key, message))
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
        on_unbound_schema: section
            .one_of(source, "on_unbound_schema", &OnUnboundSchema::ALL)?
            .unwrap_or_default(),
        allow_openai_key_fallback: false,
    })
}

/// A model's name, or its file as it is seen from the configuration.
fn model_place(source: &Source, model: String) -> String {
    match model.ends_with(".gguf") && !model.starts_with("hf:") {
        true => source.resolve(&model).to_string_lossy().into_owned(),
        false => model,
    }
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
        repeat_penalty: short(section.number(source, "repeat_penalty", 0.01, 10.0)?),
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

/// Adapters, name and file.
fn lora(
    source: &mut Source,
    section: &mut Section<'_>,
) -> Result<Vec<(String, PathBuf)>, ProviderError> {
    let Some(node) = section.node("lora") else {
        return Ok(Vec::new());
    };
    let wrong = || section.fault(source, "lora", node, "a map of names and GGUF files");
    let NodeKind::Map(entries) = &node.kind else {
        return Err(wrong());
    };
    let adapter = |(name, _, value): &(String, Place, Node)| match &value.kind {
        NodeKind::Text(path) if !name.is_empty() => Ok((name.clone(), source.resolve(path))),
        _ => Err(wrong()),
    };
    entries.iter().map(adapter).collect()
}

fn engine(source: &mut Source, path: &str, node: &Node) -> Result<EngineConfig, ProviderError> {
    let mut section = Section::open(source, path, node)?;
    let config = EngineConfig {
        threads: section.count(source, "threads", 1)?,
        context_tokens: section.count(source, "context_tokens", 64)?,
        max_streams: section.count(source, "max_streams", 1)?,
        step_tokens: section.count(source, "step_tokens", 1)?,
        queue_len: section.count(source, "queue_len", 1)?,
        session_path: section
            .text(source, "session_path")?
            .map(|path| source.resolve(&path)),
        prompt_lookup_tokens: section.count(source, "prompt_lookup_tokens", 0)?,
        draft_model: section
            .text(source, "draft_model")?
            .map(|model| model_place(source, model)),
        draft_tokens: section.count(source, "draft_tokens", 1)?,
        lora: lora(source, &mut section)?,
        cache_type: section.one_of(
            source,
            "cache_type",
            &named(CacheType::ALL, CacheType::as_str),
        )?,
        flash_attention: section.boolean(source, "flash_attention")?,
    };
    section.finish(source)?;
    Ok(config)
}
