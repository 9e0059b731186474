use super::{OpaqueItem, ToolCall};

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
    /// A picture.
    Image(Media),
    /// Sound.
    Audio(Media),
    /// A document, such as a PDF file.
    File(Media),
}

/// Something that is no text: bytes, or where they lie. It is passed through, never read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// The bytes, or where they lie.
    pub source: MediaSource,
    /// The MIME type, such as `image/png`, if the sender gave one.
    pub media_type: Option<String>,
    /// The file's name, if the sender gave one.
    pub name: Option<String>,
    /// How closely the model is to look (`low`, `high`, `auto`), if the sender said so.
    pub detail: Option<String>,
}

impl Media {
    /// Media from this source, nothing else known.
    #[must_use]
    pub fn new(source: MediaSource) -> Self {
        Self {
            source,
            media_type: None,
            name: None,
            detail: None,
        }
    }
}

/// Where the bytes of a [`Media`] are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaSource {
    /// At this address. A `data:` address is [`MediaSource::Base64`] instead.
    Url(String),
    /// Here, in base64.
    Base64(String),
    /// With the provider, under this id.
    FileId(String),
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
    /// An assistant turn's items that only its provider can read, in the order in which they
    /// came. They go back to that provider byte for byte.
    pub provider_items: Vec<OpaqueItem>,
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
            provider_items: Vec::new(),
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

    /// The text parts, joined without a separator. Other parts are left out.
    #[must_use]
    pub fn content_text(&self) -> String {
        let mut text = String::new();
        for part in &self.content {
            match part {
                Part::Text(piece) => text.push_str(piece),
                Part::Image(_) | Part::Audio(_) | Part::File(_) => {}
            }
        }
        text
    }
}
