use std::collections::HashSet;

use serde_json::{Value, json};
pub use twopass_core::chat::Thinking;
use twopass_core::chat::{Diagnostic, DiagnosticKind, Request, TurnBudget};
use twopass_core::tool_parser::CallRules;

/// A request of any outside format: the core request with what only wires know.
///
/// A client fills it and encodes it; a server decodes one.
#[derive(Debug, Clone, PartialEq)]
pub struct WireRequest {
    /// The model's id, verbatim (row A15).
    pub model: String,
    /// True: the answer is a stream.
    pub stream: bool,
    /// True: a stream tells its usage.
    pub include_usage: bool,
    /// How much the model is to think; `Default` = as the core request says.
    pub thinking: Thinking,
    /// True: the last message is an assistant's and is continued, its text kept verbatim.
    pub continue_final: bool,
    /// How many answers are wanted; 1 or more.
    pub n: u32,
    /// True: the body itself says that several calls may come; a demanded call is one call else.
    pub asks_for_several_calls: bool,
    /// Whether the provider is to keep the answer; `None` = its default.
    pub store: Option<bool>,
    /// The stored answer that this request goes on from.
    pub previous_response_id: Option<String>,
    /// Further top-level fields, name and JSON text, sent as they stand.
    pub extra: Vec<(String, String)>,
    /// Everything else. In one wire request `TurnBudget::TwoPass` means the provider's own
    /// budget: the thinking cap goes into its field, the sum of both caps into the total.
    pub request: Request,
}

impl WireRequest {
    /// A request to this model, not streamed, thinking by default.
    #[must_use]
    pub fn new(model: impl Into<String>, request: Request) -> Self {
        Self {
            model: model.into(),
            stream: false,
            include_usage: false,
            thinking: Thinking::Default,
            continue_final: false,
            n: 1,
            asks_for_several_calls: false,
            store: None,
            previous_response_id: None,
            extra: Vec::new(),
            request,
        }
    }

    /// The cap on thought and answer together.
    pub(crate) fn max_tokens(&self) -> Option<u32> {
        match self.request.budget {
            TurnBudget::OnePass { max_tokens } => max_tokens,
            TurnBudget::TwoPass {
                max_thinking_tokens,
                max_response_tokens,
                ..
            } => Some(max_thinking_tokens.saturating_add(max_response_tokens)),
        }
    }

    /// The thinking asked for, a budget of two passes included.
    pub(crate) fn thinking(&self) -> Thinking {
        let said = match &self.thinking {
            Thinking::Default => &self.request.thinking,
            said => said,
        };
        match (said, self.request.budget) {
            (
                Thinking::Default,
                TurnBudget::TwoPass {
                    max_thinking_tokens,
                    ..
                },
            ) => Thinking::Budget(max_thinking_tokens),
            (thinking, _) => thinking.clone(),
        }
    }
}

/// A body ready to be sent, and what is needed to read the answer.
#[derive(Debug, Clone, Default)]
pub struct Encoded {
    /// The body: JSON text.
    pub body: String,
    /// Names as they were sent, and ids that are taken.
    pub context: DecodeContext,
    /// What was changed, dropped or given up on the way.
    pub diagnostics: Vec<Diagnostic>,
}

/// What a decoder must know of the request that it reads the answer to.
#[derive(Debug, Clone, Default)]
pub struct DecodeContext {
    /// Tool names that had to be changed: as sent, as they are here.
    pub(crate) names: Vec<(String, String)>,
    /// What may be called, and the ids of the history: a new call that bears one of them
    /// gets another (case rule 13).
    pub(crate) rules: CallRules,
}

impl DecodeContext {
    /// The context of a conversation that holds these calls already.
    #[must_use]
    pub fn with_taken_ids(ids: impl IntoIterator<Item = String>) -> Self {
        Self::with_rules(CallRules {
            taken_ids: ids.into_iter().collect(),
            ..CallRules::default()
        })
    }

    /// The context of a request whose calls are judged by these rules. Names are not mapped.
    #[must_use]
    pub fn with_rules(rules: CallRules) -> Self {
        Self {
            names: Vec::new(),
            rules,
        }
    }

    /// The name under which a tool is known here.
    #[must_use]
    pub fn own_name(&self, wire: &str) -> String {
        self.names
            .iter()
            .find(|(sent, _)| sent == wire)
            .map_or_else(|| wire.to_owned(), |(_, own)| own.clone())
    }

    /// The name under which a tool was sent.
    #[must_use]
    pub fn wire_name(&self, own: &str) -> String {
        self.names
            .iter()
            .find(|(_, known)| known == own)
            .map_or_else(|| own.to_owned(), |(sent, _)| sent.clone())
    }

    /// Ids that a new call may not bear.
    #[must_use]
    pub fn taken_ids(&self) -> &HashSet<String> {
        &self.rules.taken_ids
    }

    /// What may be called, by names as they are here.
    #[must_use]
    pub fn rules(&self) -> &CallRules {
        &self.rules
    }

    /// True if a tool was offered under this name, as it was sent.
    pub(crate) fn is_offered(&self, wire: &str) -> bool {
        let tools = self.rules.tools.as_ref();
        tools.is_some_and(|tools| tools.get(&self.own_name(wire)).is_some())
    }
}

pub(crate) fn degraded(message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(DiagnosticKind::Degraded, message)
}

/// What is known of a reply that a server writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyMeta {
    /// The reply's id; the same in every piece of a stream.
    pub id: String,
    /// When it was made, in seconds since 1970.
    pub created_s: u64,
    /// The model, as the request named it.
    pub model: String,
    /// Fields of the request that the reply repeats, name and JSON text, where a format has
    /// such.
    pub echo: Vec<(&'static str, String)>,
}

/// A tool as `{"type": "function", "function": {..}}` (row H1).
pub(crate) fn function_tool(
    name: &str,
    description: &str,
    parameters: &Value,
    strict: Option<bool>,
) -> Value {
    let mut function = json!({
        "name": name,
        "description": description,
        "parameters": parameters,
    });
    if let Some(strict) = strict {
        function["strict"] = strict.into();
    }
    json!({"type": "function", "function": function})
}
