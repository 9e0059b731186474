use std::fmt;

use serde_json::{Map, Value};

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name, as the model must write it.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments: an object schema, or `{}` for none.
    pub parameters: Value,
}

/// Which calls a turn may or must make.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// No calls: calls that the model writes anyway are not returned.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// At least one call, of this tool.
    Named(String),
    /// A reply, or calls of this tool only (the `/generate` meaning of `{"name": ..}`).
    Only(String),
}

impl ToolChoice {
    /// The one tool that may be called, if the choice names one.
    #[must_use]
    pub fn only_tool(&self) -> Option<&str> {
        match self {
            Self::Named(name) | Self::Only(name) => Some(name),
            Self::None | Self::Auto | Self::Required => None,
        }
    }

    /// True if a turn without a call breaks this choice.
    #[must_use]
    pub fn forces_call(&self) -> bool {
        matches!(self, Self::Required | Self::Named(_))
    }
}

/// The arguments of a call: a JSON object, with the text that the model wrote for it.
///
/// The text survives so that integers beyond 64 bits and the order of keys are not lost.
#[derive(Debug, Clone)]
pub struct Arguments {
    text: String,
    object: Map<String, Value>,
}

/// Argument text that is not one JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnObject(pub String);

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arguments must be a JSON object: {}", self.0)
    }
}

impl std::error::Error for NotAnObject {}

impl Arguments {
    /// Reads strict JSON text.
    ///
    /// # Errors
    /// The text is not one JSON object.
    pub fn from_text(text: impl Into<String>) -> Result<Self, NotAnObject> {
        let text = text.into();
        match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => Ok(Self { text, object }),
            Ok(other) => Err(NotAnObject(format!("it is {}", kind_of(&other)))),
            Err(error) => Err(NotAnObject(error.to_string())),
        }
    }

    /// Takes the object; the text becomes its compact form.
    #[must_use]
    pub fn from_object(object: Map<String, Value>) -> Self {
        let text = Value::Object(object.clone()).to_string();
        Self { text, object }
    }

    /// Takes text and the object that was read from it, so that it is not read again.
    pub(crate) fn from_parts(text: String, object: Map<String, Value>) -> Self {
        Self { text, object }
    }

    /// The JSON text, always one valid object.
    #[must_use]
    pub fn as_text(&self) -> &str {
        &self.text
    }

    /// The object.
    #[must_use]
    pub fn as_object(&self) -> &Map<String, Value> {
        &self.object
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

/// The JSON type's name with its article, for messages.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A call that may be carried out: known tool, arguments that fit its schema.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Unique over the whole conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// Why a call was not accepted. The names are those of the case files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The turn ended before the call did.
    TruncatedToolCall,
    /// The call or its arguments are not JSON, even read leniently.
    MalformedArguments,
    /// The call or its arguments are over the byte limit.
    ArgumentsTooLarge,
    /// No tool of this name was offered.
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    SchemaViolation,
    /// Another tool, or no tool at all, was asked for.
    ToolChoiceViolation,
    /// More calls than one turn may make.
    TooManyCalls,
}

impl CallErrorKind {
    /// The name on the wire and in case files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TruncatedToolCall => "truncated_tool_call",
            Self::MalformedArguments => "malformed_arguments",
            Self::ArgumentsTooLarge => "arguments_too_large",
            Self::UnknownTool => "unknown_tool",
            Self::SchemaViolation => "schema_violation",
            Self::ToolChoiceViolation => "tool_choice_violation",
            Self::TooManyCalls => "too_many_calls",
        }
    }
}

/// A call that failed its checks: visible, with its reason, never carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidToolCall {
    /// The id that a tool result would use.
    pub id: String,
    /// The tool's name, if one was read.
    pub name: Option<String>,
    /// What the model wrote as arguments (or the whole block), up to the byte limit.
    pub arguments: String,
    /// What is wrong.
    pub kind: CallErrorKind,
    /// JSON pointer of the offending value inside the arguments, if one is at fault.
    pub path: Option<String>,
    /// What is wrong, for people and for the model.
    pub message: String,
}
