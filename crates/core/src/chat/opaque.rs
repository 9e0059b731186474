/// Something that only a provider can read and that must go back to it unchanged: a signed or
/// encrypted thought, a reply's items, a signature on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpaqueItem {
    /// Which wire it came over, and so which wire may carry it back.
    pub kind: OpaqueKind,
    /// The call that it belongs to, if it belongs to one.
    pub call_id: Option<String>,
    /// The item as JSON text, byte for byte.
    pub json: String,
}

impl OpaqueItem {
    /// An item of a turn.
    #[must_use]
    pub fn new(kind: OpaqueKind, json: impl Into<String>) -> Self {
        Self {
            kind,
            call_id: None,
            json: json.into(),
        }
    }

    /// An item of one call.
    #[must_use]
    pub fn of_call(kind: OpaqueKind, call_id: impl Into<String>, json: impl Into<String>) -> Self {
        Self {
            kind,
            call_id: Some(call_id.into()),
            json: json.into(),
        }
    }
}

/// What an [`OpaqueItem`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpaqueKind {
    /// A content block of an Anthropic message. If a turn has any, it has all of its blocks,
    /// text and calls included, so that their order is known.
    AnthropicBlock,
    /// An output item of the Responses API. If a turn has any, it has all of its items.
    ResponsesItem,
    /// A tool of the Responses API that is no function, such as `web_search_preview`.
    ResponsesTool,
    /// One entry of `reasoning_details` in a Chat Completions message.
    ReasoningDetail,
    /// The `extra_content` object of a Chat Completions call. It belongs to that call.
    CallExtra,
    /// The name of the field that a turn's reasoning came in, as a JSON string.
    ReasoningField,
}

impl OpaqueKind {
    /// The name on our own wires.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AnthropicBlock => "anthropic_block",
            Self::ResponsesItem => "responses_item",
            Self::ResponsesTool => "responses_tool",
            Self::ReasoningDetail => "reasoning_detail",
            Self::CallExtra => "call_extra",
            Self::ReasoningField => "reasoning_field",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "anthropic_block" => Self::AnthropicBlock,
            "responses_item" => Self::ResponsesItem,
            "responses_tool" => Self::ResponsesTool,
            "reasoning_detail" => Self::ReasoningDetail,
            "call_extra" => Self::CallExtra,
            "reasoning_field" => Self::ReasoningField,
            _ => return None,
        })
    }
}
