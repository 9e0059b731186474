use super::ToolCall;

/// Who speaks. `Developer` is read as `System` by templates that do not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Standing instructions.
    System,
    /// Standing instructions, as newer OpenAI models name them.
    Developer,
    /// The person or program that asks.
    User,
    /// The model.
    Assistant,
    /// The result of one tool call.
    Tool,
}

impl Role {
    /// The lower-case name that chat templates and wires use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }

    /// The role of this lower-case name; `function` is the old name of `tool`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "system" => Self::System,
            "developer" => Self::Developer,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" | "function" => Self::Tool,
            _ => return None,
        })
    }
}

/// One piece of a message's content.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Plain text. Untrusted unless the role is system or developer.
    Text(String),
}

/// One message of a conversation.
///
/// Every field is public; a value may be invalid (a tool result without an id, say).
/// [`super::Request::check`] says so before anything is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What the message says, in order. Empty for a turn of calls only.
    pub content: Vec<Part>,
    /// The speaker's name, where a wire carries one.
    pub name: Option<String>,
    /// An assistant turn's private reasoning, without tags. Goes back into a request only
    /// by the replay policy.
    pub reasoning: Option<String>,
    /// An assistant turn's calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// A tool result's call.
    pub tool_call_id: Option<String>,
    /// A tool result that reports a failure.
    pub is_error: bool,
}

impl Message {
    /// A message of plain text.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![Part::Text(text.into())],
            name: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            is_error: false,
        }
    }

    /// The result of the call with this id.
    #[must_use]
    pub fn tool_result(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(id.into()),
            ..Self::text(Role::Tool, text)
        }
    }

    /// The text parts, joined without a separator.
    #[must_use]
    pub fn content_text(&self) -> String {
        let mut text = String::new();
        for part in &self.content {
            match part {
                Part::Text(piece) => text.push_str(piece),
            }
        }
        text
    }
}
