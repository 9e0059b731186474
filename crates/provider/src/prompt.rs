//! Models that take text: their templates, and the prompts that come of them.
//!
//! What the embedded engine does at load and before a turn, for those who only want to see
//! the prompt.

use std::path::Path;

use serde_json::Value;
use twopass_core::chat::{Message, Part, Request, ToolChoice, ToolSpec};
use twopass_core::chat_template::{CHATML, ChatTemplate, ControlStrings, Piece, Segment};
use twopass_core::control::{Means, PlanError, TextModel, TurnSettings, TurnSyntax, plan_turn};
use twopass_core::tool_parser::{ParserLimits, ToolSyntax};
use twopass_core::tool_prompt::{
    CallBlocks, PreamblePlace, ToolPromptOptions, ToolsLayout, with_tools,
};

use crate::catalogue::template_facts;
use crate::config::ProviderConfig;
use crate::plan::{CallOptions, plan_request, reasoning_syntax};
use crate::{ErrorKind, ProviderError};

/// Markers of Hermes blocks, which untrusted text may not spell where the vocabulary has
/// them as tokens of their own or the model was prompted with them.
const HERMES_MARKERS: [&str; 6] = [
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
];
/// Think tags, likewise.
const THINK_MARKERS: [&str; 4] = ["<think>", "</think>", "<thinking>", "</thinking>"];

/// What a model's file says that matters for its prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateFacts {
    /// The Jinja source; `None` = ChatML.
    pub template: Option<String>,
    /// The text that begins a prompt.
    pub bos: String,
    /// The text that ends a turn.
    pub eos: String,
    /// Texts that the vocabulary reads as control tokens.
    pub control_strings: Vec<String>,
    /// Control tokens by number and text, where the engine takes grammars that name them.
    pub control_tokens: Vec<(u32, String)>,
}

impl TemplateFacts {
    /// The facts in a `tokenizer_config.json` (or a body of the same fields: vLLM's
    /// `/tokenizer_info`, llama.cpp's `/props`); `None` without a template.
    ///
    /// Source of the fields: transformers' tokenizer configuration, read 2026-11.
    #[must_use]
    pub fn of_tokenizer(config: &Value) -> Option<Self> {
        let template = match &config["chat_template"] {
            Value::String(text) => text.clone(),
            // Several templates with names; the one for chat is `default`.
            Value::Array(rows) => rows
                .iter()
                .find(|row| row["name"] == "default")
                .and_then(|row| row["template"].as_str())?
                .to_owned(),
            _ => return None,
        };
        // A token is a text, or an object with its text in `content`.
        let token = |name: &str| {
            let value = &config[name];
            let text = value.as_str().or_else(|| value["content"].as_str());
            text.unwrap_or_default().to_owned()
        };
        let (bos, eos) = (token("bos_token"), token("eos_token"));
        let added = config["added_tokens_decoder"].as_object().into_iter();
        let added = added.flat_map(|tokens| tokens.values());
        let added = added.filter_map(|token| token["content"].as_str());
        let mut control_strings: Vec<String> = added
            .map(str::to_owned)
            .chain([bos.clone(), eos.clone()])
            .chain(spelled_controls(&template))
            .filter(|text| !text.trim().is_empty())
            .collect();
        control_strings.sort_unstable();
        control_strings.dedup();
        Some(Self {
            template: Some(template),
            bos,
            eos,
            control_strings,
            control_tokens: Vec::new(),
        })
    }

    /// The model that these facts describe.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Model`]: the template cannot be used.
    pub fn to_model(&self) -> Result<TextModel, ProviderError> {
        let source = self.template.as_deref().unwrap_or(CHATML);
        let template = ChatTemplate::new(source, &self.bos, &self.eos).map_err(|error| {
            ProviderError::new(ErrorKind::Model, format!("the model's {error}"))
        })?;
        let markers = HERMES_MARKERS.iter().chain(&THINK_MARKERS);
        let control = self.control_strings.iter().cloned();
        let control = control.chain(markers.map(|text| (*text).to_owned()));
        let model = TextModel::new(template, ControlStrings::new(control));
        Ok(model.with_control_tokens(self.control_tokens.clone()))
    }
}

/// Texts of the form `<|name|>` in a template: what it writes as markup is a control token.
fn spelled_controls(template: &str) -> impl Iterator<Item = String> {
    template.match_indices("<|").filter_map(|(at, _)| {
        let rest = &template[at + 2..];
        let name = &rest[..rest.find("|>")?];
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-:.".contains(c);
        let is_control = !name.is_empty() && name.len() <= 40 && name.chars().all(is_name);
        is_control.then(|| format!("<|{name}|>"))
    })
}

/// The facts in a model's folder, its `tokenizer_config.json`, a GGUF file, or a Jinja file.
///
/// # Errors
/// Kind [`ErrorKind::Config`]: nothing can be read there, or no template is in it.
pub fn facts_of_path(path: &Path) -> Result<TemplateFacts, ProviderError> {
    let fault = |what: String| {
        ProviderError::new(ErrorKind::Config, format!("{}: {what}", path.display()))
            .with_param("chat_template")
    };
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| fault(format!("cannot be read: {error}")))
    };
    let parse = |text: String| {
        serde_json::from_str::<Value>(&text)
            .map_err(|error| fault(format!("is no tokenizer configuration: {error}")))
    };
    if path.is_dir() {
        let mut config = parse(read(&path.join("tokenizer_config.json"))?)?;
        // Newer models keep the template in a file of its own.
        if let Ok(text) = std::fs::read_to_string(path.join("chat_template.jinja")) {
            config["chat_template"] = text.into();
        }
        return TemplateFacts::of_tokenizer(&config)
            .ok_or_else(|| fault("holds no chat template".to_owned()));
    }
    match path.extension().and_then(|end| end.to_str()) {
        Some("gguf") => template_facts(path),
        Some("json") => TemplateFacts::of_tokenizer(&parse(read(path)?)?)
            .ok_or_else(|| fault("holds no `chat_template`".to_owned())),
        _ => {
            let template = read(path)?;
            let config = serde_json::json!({ "chat_template": template });
            TemplateFacts::of_tokenizer(&config).ok_or_else(|| fault("is empty".to_owned()))
        }
    }
}

/// The model of a GGUF file, without loading it.
///
/// # Errors
/// Kind [`ErrorKind::Model`]: the file or its template cannot be used.
pub fn model_of_file(path: &Path) -> Result<TextModel, ProviderError> {
    template_facts(path)?.to_model()
}

/// A model of this Jinja template alone.
///
/// # Errors
/// Kind [`ErrorKind::Model`]: the template cannot be used.
pub fn model_of_template(source: &str) -> Result<TextModel, ProviderError> {
    let facts = TemplateFacts {
        template: Some(source.to_owned()),
        ..TemplateFacts::default()
    };
    facts.to_model()
}

/// The prompt that the model would see, up to the assistant boundary. `now_unix_s` is the
/// date for templates that print one.
///
/// # Errors
/// The request is wrong, or the template refuses the conversation.
pub fn render(
    entry: &ProviderConfig,
    model: &TextModel,
    messages: Vec<Message>,
    options: CallOptions,
    now_unix_s: Option<i64>,
) -> Result<String, ProviderError> {
    let request: Request = plan_request(entry, messages, options)?;
    let planned = plan_turn(&request, model, &turn_settings(entry)?, now_unix_s)?;
    let texts = planned.prompt.segments.into_iter();
    Ok(texts
        .map(|segment| match segment {
            Segment::Markup(text) | Segment::Literal(text) => text,
        })
        .collect())
}

/// A conversation with its calls and results, and the tools if there are any, as text for a
/// service that takes none of them structured (rows B11, E18).
pub(crate) fn in_text(
    messages: &[Message],
    tools: &[ToolSpec],
    choice: &ToolChoice,
    options: &ToolPromptOptions,
) -> Vec<Message> {
    let shown = with_tools(messages, tools, choice, options).into_iter();
    shown
        .map(|shown| {
            let pieces = shown.content.into_iter().map(|piece| match piece {
                // A service tells no trusted text apart.
                Piece::Trusted(text) | Piece::Untrusted(text) => text,
            });
            let text: String = pieces.collect();
            let mut message = shown.head;
            message
                .content
                .retain(|part| !matches!(part, Part::Text(_)));
            if !text.is_empty() {
                message.content.insert(0, Part::Text(text));
            }
            message
        })
        .collect()
}

/// How an entry has tools written where nobody else does it.
pub(crate) fn tool_prompt(entry: &ProviderConfig) -> ToolPromptOptions {
    let decisions = &entry.decisions;
    ToolPromptOptions {
        layout: if decisions.tools_as_array {
            ToolsLayout::Array
        } else {
            ToolsLayout::Lines
        },
        place: if decisions.preamble_before {
            PreamblePlace::Before
        } else {
            PreamblePlace::After
        },
        blocks: if decisions.single_tool_call_block {
            CallBlocks::Single
        } else {
            CallBlocks::Multiple
        },
        template_writes_tools: false,
    }
}

/// The settings of an entry's turns.
///
/// # Errors
/// Kind [`ErrorKind::Config`]: the entry names an unknown dialect.
pub fn turn_settings(entry: &ProviderConfig) -> Result<TurnSettings, ProviderError> {
    let name = match entry.tool_parser.as_str() {
        // `openai` leaves the format to the service; in this process that is us.
        "openai" => "hermes",
        name => name,
    };
    // Hermes blocks are read beside any other dialect: that is how tools are explained to a
    // template that knows none, and how a forced choice is bound.
    let joined = match name {
        "hermes" | "auto" => name.to_owned(),
        name => format!("{name}+hermes"),
    };
    let tools = ToolSyntax::from_name_with(&joined, &entry.dialects).ok_or_else(|| {
        ProviderError::new(ErrorKind::Config, format!("unknown dialect `{name}`"))
            .with_param("tool_parser")
    })?;
    Ok(TurnSettings {
        means: Means::EngineRule,
        syntax: TurnSyntax::new(reasoning_syntax(entry), tools),
        tool_prompt: tool_prompt(entry),
        limits: ParserLimits::default(),
        on_unbound_schema: entry.decisions.on_unbound_schema,
    })
}

impl From<PlanError> for ProviderError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Request(error) => error.into(),
            PlanError::Template(error) => {
                Self::new(ErrorKind::BadRequest, error.to_string()).with_param("messages")
            }
        }
    }
}
