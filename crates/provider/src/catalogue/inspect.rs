use std::path::Path;

use twopass_core::chat_template::ChatTemplate;
use twopass_gguf::{Header, Value};

use crate::prompt::TemplateFacts;
use crate::{ErrorKind, ProviderError};

/// Reads a file's header and judges it.
fn read_header(path: &Path) -> Result<Header, ProviderError> {
    let header = twopass_gguf::read_header(path);
    let checked = header.and_then(|header| header.check().map(|()| header));
    checked.map_err(|error| {
        ProviderError::new(ErrorKind::Model, format!("{} {error}", path.display()))
    })
}

/// What a model file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReport {
    /// The model's own name.
    pub name: Option<String>,
    /// The architecture, such as `llama` or `qwen3`.
    pub architecture: String,
    /// The licence, as the file names it.
    pub licence: Option<String>,
    /// Bytes of the file.
    pub n_bytes: u64,
    /// GGUF version.
    pub version: u32,
    /// Tensors.
    pub n_tensors: u64,
    /// Layers.
    pub n_layers: Option<u64>,
    /// Tokens of context that the model was trained for.
    pub context_tokens: Option<u64>,
    /// Tokens of the vocabulary.
    pub n_vocab: u64,
    /// The chat template, if there is one.
    pub template: Option<TemplateReport>,
    /// Think and call tags that are one token of the vocabulary, each with what kind of
    /// token it is: `control`, `user_defined` or `normal`.
    pub tag_tokens: Vec<(String, &'static str)>,
}

/// What a model's chat template does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateReport {
    /// Bytes.
    pub n_bytes: usize,
    /// It writes the tools into the prompt itself.
    pub writes_tools: bool,
    /// It has a place for past reasoning, in this tag.
    pub think_tag: Option<&'static str>,
    /// Why it cannot be used.
    pub fault: Option<String>,
}

/// Tags that the parsers look for.
const TAGS: [&str; 12] = [
    "<think>",
    "</think>",
    "<thinking>",
    "</thinking>",
    "[THINK]",
    "[/THINK]",
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
];

/// Reads a model file's header. Loads no model.
///
/// # Errors
/// Kind [`crate::ErrorKind::Model`]: the file is missing, no GGUF, or damaged.
pub fn inspect(path: &Path) -> Result<ModelReport, ProviderError> {
    let header = read_header(path)?;
    let architecture = header.architecture().unwrap_or("unknown").to_owned();
    let own = |key: &str| header.whole(&format!("{architecture}.{key}"));
    let tokens = texts(&header, "tokenizer.ggml.tokens");
    Ok(ModelReport {
        name: header.text("general.name").map(str::to_owned),
        licence: header.text("general.license").map(str::to_owned),
        n_bytes: header.n_bytes,
        version: header.version,
        n_tensors: header.n_tensors,
        n_layers: own("block_count"),
        context_tokens: own("context_length"),
        n_vocab: tokens.len() as u64,
        template: header
            .text("tokenizer.chat_template")
            .map(|source| template_report(source, &header)),
        tag_tokens: tag_tokens(&header, tokens),
        architecture,
    })
}

fn texts<'a>(header: &'a Header, key: &str) -> &'a [String] {
    match header.get(key) {
        Some(Value::Texts(texts)) => texts,
        _ => &[],
    }
}

fn tag_tokens(header: &Header, tokens: &[String]) -> Vec<(String, &'static str)> {
    let kinds: &[i64] = match header.get("tokenizer.ggml.token_type") {
        Some(Value::Wholes(kinds)) => kinds,
        _ => &[],
    };
    TAGS.iter()
        .filter_map(|tag| {
            let id = tokens.iter().position(|token| token == tag)?;
            let kind = match kinds.get(id) {
                Some(3) => "control",
                Some(4) => "user_defined",
                _ => "normal",
            };
            Some(((*tag).to_owned(), kind))
        })
        .collect()
}

/// What a model file says of its prompts.
///
/// # Errors
/// Kind [`crate::ErrorKind::Model`]: the file is missing, no GGUF, or damaged.
pub(crate) fn template_facts(path: &Path) -> Result<TemplateFacts, ProviderError> {
    Ok(facts_of(&read_header(path)?))
}

fn facts_of(header: &Header) -> TemplateFacts {
    let tokens = texts(header, "tokenizer.ggml.tokens");
    let token = |key: &str| {
        let id = header.whole(key).and_then(|id| usize::try_from(id).ok());
        id.and_then(|id| tokens.get(id))
            .cloned()
            .unwrap_or_default()
    };
    let kinds: &[i64] = match header.get("tokenizer.ggml.token_type") {
        Some(Value::Wholes(kinds)) => kinds,
        _ => &[],
    };
    // 2 = unknown, 3 = control, 4 = user defined: never plain text.
    let is_control = |kind: &i64| matches!(kind, 2..=4);
    let control = tokens
        .iter()
        .zip(kinds)
        .filter(|(_, kind)| is_control(kind));
    TemplateFacts {
        template: header.text("tokenizer.chat_template").map(str::to_owned),
        bos: token("tokenizer.ggml.bos_token_id"),
        eos: token("tokenizer.ggml.eos_token_id"),
        control_strings: control.map(|(token, _)| token.clone()).collect(),
        control_tokens: Vec::new(),
    }
}

fn template_report(source: &str, header: &Header) -> TemplateReport {
    let facts = facts_of(header);
    match ChatTemplate::new(source, &facts.bos, &facts.eos) {
        Ok(template) => TemplateReport {
            n_bytes: source.len(),
            writes_tools: template.writes_tools(),
            think_tag: template.think_framing().map(|framing| framing.tag.as_str()),
            fault: None,
        },
        Err(error) => TemplateReport {
            n_bytes: source.len(),
            writes_tools: false,
            think_tag: None,
            fault: Some(error.to_string()),
        },
    }
}
