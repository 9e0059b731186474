use std::collections::HashSet;
use std::fmt;

use serde_json::{Value, json};

use super::{
    MAX_TOP_LOGPROBS, Message, OpaqueItem, Passthrough, Role, Thinking, ToolChoice, ToolSpec,
};

/// The tag that frames a generated thought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ThinkTag {
    /// `<think>`
    #[default]
    Think,
    /// `<thinking>`
    Thinking,
}

impl ThinkTag {
    /// The name without brackets.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Think => "think",
            Self::Thinking => "thinking",
        }
    }

    /// The opening tag.
    #[must_use]
    pub fn open(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::Thinking => "<thinking>",
        }
    }

    /// The closing tag.
    #[must_use]
    pub fn close(self) -> &'static str {
        match self {
            Self::Think => "</think>",
            Self::Thinking => "</thinking>",
        }
    }

    /// The tag of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "think" => Some(Self::Think),
            "thinking" => Some(Self::Thinking),
            _ => None,
        }
    }
}

/// The caps of one turn, already resolved from call, configuration and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnBudget {
    /// One pass under one cap (`None` = until the context is full).
    OnePass {
        /// The cap on everything that the model writes.
        max_tokens: Option<u32>,
    },
    /// A capped thought, then an answer that continues it.
    TwoPass {
        /// The tag that frames the thought.
        tag: ThinkTag,
        /// The cap on the thought; 0 = an empty block.
        max_thinking_tokens: u32,
        /// The cap on the answer; over 0.
        max_response_tokens: u32,
    },
}

/// How tokens are drawn. `None` = the model's or backend's default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sampling {
    /// 0 = greedy.
    pub temperature: Option<f32>,
    /// Nucleus.
    pub top_p: Option<f32>,
    /// Candidates kept.
    pub top_k: Option<u32>,
    /// Least probability relative to the best.
    pub min_p: Option<f32>,
    /// Same seed, same text for a lone stream.
    pub seed: Option<u64>,
    /// Added against tokens that are present.
    pub presence_penalty: Option<f32>,
    /// Added against tokens by their count.
    pub frequency_penalty: Option<f32>,
    /// Multiplied against repeated tokens; 0.01 to 10, 1 = none.
    pub repeat_penalty: Option<f32>,
}

/// What form the answer must have. Reasoning and calls are not bound by it.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// One JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema's name; some wires demand one.
        name: String,
        /// JSON Schema.
        schema: Value,
        /// True: the backend must bind the output to the schema, not merely ask for it.
        strict: bool,
    },
}

/// How a service is asked to hand over its reply. The events of the turn are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Delivery {
    /// As it is written.
    #[default]
    Stream,
    /// In one piece at the end.
    Whole,
}

/// One turn to generate, on any backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// What may be called.
    pub tools: Vec<ToolSpec>,
    /// What must be called.
    pub tool_choice: ToolChoice,
    /// False: the model is asked for one call at most.
    pub parallel_tool_calls: bool,
    /// The caps.
    pub budget: TurnBudget,
    /// How much a service is to think that decides it itself. Two passes say it by their cap.
    pub thinking: Thinking,
    /// How a service is asked to hand over its reply.
    pub delivery: Delivery,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Asks for the probabilities of the answer's tokens, each with so many alternatives (0 to
    /// [`MAX_TOP_LOGPROBS`]).
    pub logprobs: Option<u32>,
    /// The caller's stop strings; they apply to the answer only, and to none that is demanded
    /// to be a call or of a form.
    pub stop: Vec<String>,
    /// Extra variables for the chat template.
    pub template_kwargs: Vec<(String, Value)>,
    /// What form the answer must have.
    pub response_format: ResponseFormat,
    /// Tools that the provider itself carries out. Wires that do not know them leave them out.
    pub hosted_tools: Vec<OpaqueItem>,
    /// What the client said that nobody here reads.
    pub passthrough: Option<Passthrough>,
    /// What sets the ids of calls that come without one apart from those of other turns:
    /// `call_{salt}1`. Empty: unique in this conversation only.
    pub call_id_salt: String,
    /// What the requests of one conversation have in common, as the caller names it. Where a
    /// model runs on several servers they go to the same one.
    pub session: Option<String>,
}

impl Request {
    /// A request of these messages, one pass, no tools.
    #[must_use]
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            messages,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            budget: TurnBudget::OnePass { max_tokens: None },
            thinking: Thinking::Default,
            delivery: Delivery::Stream,
            sampling: Sampling::default(),
            logprobs: None,
            stop: Vec::new(),
            template_kwargs: Vec::new(),
            response_format: ResponseFormat::Text,
            hosted_tools: Vec::new(),
            passthrough: None,
            call_id_salt: String::new(),
            session: None,
        }
    }

    /// The schema that the whole answer must fit, where no call may come in its place.
    #[must_use]
    pub fn answer_schema(&self) -> Option<Value> {
        if !self.tools.is_empty() && self.tool_choice != ToolChoice::None {
            return None;
        }
        match &self.response_format {
            ResponseFormat::Text => None,
            ResponseFormat::JsonObject => Some(json!({"type": "object"})),
            ResponseFormat::JsonSchema { schema, .. } => Some(schema.clone()),
        }
    }

    /// True if a call or a form is demanded: then no stop string may cut the answer.
    #[must_use]
    pub fn demands_form(&self) -> bool {
        self.tool_choice.forces_call() || self.response_format != ResponseFormat::Text
    }

    /// Checks what no backend could carry out.
    ///
    /// # Errors
    /// Names the first parameter that is wrong: no messages, a tool result without an id,
    /// a duplicate or empty tool name, a tool schema that is no object, a choice of a tool
    /// that was not offered, a response cap of 0, a sampling value out of range, too
    /// many alternatives per token, an empty stop string.
    pub fn check(&self) -> Result<(), BadRequest> {
        if self.messages.is_empty() {
            return Err(BadRequest::new(
                "messages",
                "at least one message is needed",
            ));
        }
        for (idx, message) in self.messages.iter().enumerate() {
            if message.role == Role::Tool && message.tool_call_id.is_none() {
                return Err(BadRequest::new(
                    format!("messages[{idx}].tool_call_id"),
                    "a tool result must name the call that it answers",
                ));
            }
        }
        self.check_tools()?;
        self.check_caps()?;
        self.check_sampling()?;
        if let Some(n_top) = self.logprobs.filter(|n_top| *n_top > MAX_TOP_LOGPROBS) {
            return Err(BadRequest::new(
                "top_logprobs",
                format!("must be 0 to {MAX_TOP_LOGPROBS}, got {n_top}"),
            ));
        }
        if let Some(idx) = self.stop.iter().position(String::is_empty) {
            return Err(BadRequest::new(
                format!("stop[{idx}]"),
                "a stop string may not be empty",
            ));
        }
        Ok(())
    }

    fn check_tools(&self) -> Result<(), BadRequest> {
        let mut names = HashSet::new();
        for (idx, tool) in self.tools.iter().enumerate() {
            if tool.name.is_empty() {
                return Err(BadRequest::new(
                    format!("tools[{idx}].name"),
                    "a tool needs a name",
                ));
            }
            if !names.insert(tool.name.as_str()) {
                return Err(BadRequest::new(
                    format!("tools[{idx}].name"),
                    format!("the name `{}` is used twice", tool.name),
                ));
            }
            let is_schema = match &tool.parameters {
                Value::Object(schema) => schema.get("type").is_none_or(|t| t == "object"),
                _ => false,
            };
            if !is_schema {
                return Err(BadRequest::new(
                    format!("tools[{idx}].parameters"),
                    "must be a JSON Schema of type `object`",
                ));
            }
        }
        if let Some(name) = self.tool_choice.only_tool()
            && !names.contains(name)
        {
            let known: Vec<_> = self.tools.iter().map(|t| format!("`{}`", t.name)).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(BadRequest::new(
                "tool_choice",
                format!("unknown tool `{name}`, offered: {known}"),
            ));
        }
        if self.tool_choice.forces_call() && self.tools.is_empty() {
            return Err(BadRequest::new(
                "tool_choice",
                "a call is required but no tools are offered",
            ));
        }
        Ok(())
    }

    fn check_caps(&self) -> Result<(), BadRequest> {
        match self.budget {
            TurnBudget::OnePass {
                max_tokens: Some(0),
            } => Err(BadRequest::new("max_tokens", "must be at least 1, got 0")),
            TurnBudget::TwoPass {
                max_response_tokens: 0,
                ..
            } => Err(BadRequest::new(
                "max_response_tokens",
                "must be at least 1, got 0",
            )),
            TurnBudget::OnePass { .. } | TurnBudget::TwoPass { .. } => Ok(()),
        }
    }

    fn check_sampling(&self) -> Result<(), BadRequest> {
        let s = &self.sampling;
        let rows = [
            ("temperature", s.temperature, 0.0, 100.0),
            ("top_p", s.top_p, 0.0, 1.0),
            ("min_p", s.min_p, 0.0, 1.0),
            ("presence_penalty", s.presence_penalty, -2.0, 2.0),
            ("frequency_penalty", s.frequency_penalty, -2.0, 2.0),
            ("repeat_penalty", s.repeat_penalty, 0.01, 10.0),
        ];
        for (name, value, low, high) in rows {
            if let Some(value) = value
                && !(low..=high).contains(&value)
            {
                return Err(BadRequest::new(
                    name,
                    format!("must be {low} to {high}, got {value}"),
                ));
            }
        }
        Ok(())
    }
}

/// A request that cannot be carried out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRequest {
    /// The parameter at fault, as the caller wrote it.
    pub param: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl BadRequest {
    /// A fault of this parameter.
    #[must_use]
    pub fn new(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: param.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.param, self.message)
    }
}

impl std::error::Error for BadRequest {}
