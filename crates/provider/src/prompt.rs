//! Models that take text: their templates, and the prompts that come of them.
//!
//! What the embedded engine does at load and before a turn, for those who only want to see
//! the prompt.

use std::path::Path;

use twopass_core::chat::{Message, Part, Request, ToolChoice, ToolSpec};
use twopass_core::chat_template::{CHATML, ChatTemplate, ControlStrings, Piece, Segment};
use twopass_core::control::{Means, PlanError, TextModel, TurnSettings, plan_turn};
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
}

impl TemplateFacts {
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
        Ok(TextModel::new(template, ControlStrings::new(control)))
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
pub(crate) fn turn_settings(entry: &ProviderConfig) -> Result<TurnSettings, ProviderError> {
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
        reasoning: reasoning_syntax(entry),
        tools,
        tool_prompt: tool_prompt(entry),
        limits: ParserLimits::default(),
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
