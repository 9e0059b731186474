use std::sync::Arc;

use twopass_core::chat::{Message, Reply, Role, ThinkTag, ToolCall, ToolChoice, ToolSpec};

use crate::ProviderError;
use crate::backend::TurnStream;
use crate::config::{ContentMode, OnError};
use crate::plan::{CallOptions, Planned};
use crate::provider::{Provider, error_text};

/// A chat client: bind tools, then ask. The same whatever the backend (rows B4, B18).
#[derive(Debug, Clone)]
pub struct ChatClient {
    provider: Provider,
    options: CallOptions,
}

/// A client's answer (row B5).
#[derive(Debug, Clone, Default)]
pub struct ChatMessage {
    /// With `content_mode: raw` the closed think block, a newline and the public text; with
    /// `clean` the public text alone. The error's text if the turn failed.
    pub content: String,
    /// The calls to carry out.
    pub tool_calls: Vec<ToolCall>,
    /// The private trace, for logs and metadata (row B8).
    pub thinking: String,
    /// The whole turn: usage, passes, diagnostics, invalid calls. Of a turn that failed what
    /// was received.
    pub reply: Reply,
    /// What stopped the turn, if `on_error: message` turned an error into this message.
    pub error: Option<Arc<ProviderError>>,
}

impl ChatMessage {
    /// The message as a turn of the conversation, ready to be sent back.
    #[must_use]
    pub fn to_message(&self) -> Message {
        if self.error.is_some() {
            return Message::text(Role::Assistant, self.content.clone());
        }
        self.reply.to_message()
    }
}

impl ChatClient {
    pub(crate) fn new(provider: Provider) -> Self {
        Self {
            provider,
            options: CallOptions::default(),
        }
    }

    /// Offers these tools in every following turn. [`ToolChoice::Auto`] is the usual choice.
    #[must_use]
    pub fn bind_tools(mut self, tools: Vec<ToolSpec>, tool_choice: ToolChoice) -> Self {
        self.options.tools = tools;
        self.options.tool_choice = tool_choice;
        self
    }

    /// Uses these call arguments in every following turn; bound tools are kept.
    #[must_use]
    pub fn with_options(mut self, options: CallOptions) -> Self {
        let tools = std::mem::take(&mut self.options.tools);
        let tool_choice = std::mem::take(&mut self.options.tool_choice);
        self.options = options;
        if self.options.tools.is_empty() {
            self.options.tools = tools;
            self.options.tool_choice = tool_choice;
        }
        self
    }

    /// One turn. Two passes as the configuration says (X18).
    ///
    /// # Errors
    /// With `on_error: raise` the turn's error. With `on_error: message` never: the message
    /// then holds the error's text, no calls, and the typed error (row B14).
    pub async fn invoke(&self, messages: Vec<Message>) -> Result<ChatMessage, ProviderError> {
        let turn = async { self.provider.generate(self.request(messages)?).await };
        match turn.await {
            Ok(reply) => Ok(self.message(reply)),
            Err(error) => {
                let error = error.with_provider(self.provider.name());
                match self.provider.config().on_error {
                    OnError::Raise => Err(error),
                    OnError::Message => {
                        let reply = error.partial().cloned().unwrap_or_default();
                        Ok(ChatMessage {
                            content: error_text(&error),
                            tool_calls: Vec::new(),
                            thinking: reply.reasoning.clone(),
                            reply,
                            error: Some(Arc::new(error)),
                        })
                    }
                }
            }
        }
    }

    /// One turn as events, ending with the whole reply.
    ///
    /// # Errors
    /// Whatever stops the turn before its first event.
    pub async fn stream(&self, messages: Vec<Message>) -> Result<TurnStream, ProviderError> {
        self.provider.stream(self.request(messages)?).await
    }

    fn request(&self, messages: Vec<Message>) -> Result<Planned, ProviderError> {
        Ok(self.provider.request(messages, self.options.clone())?)
    }

    /// The message of a finished turn.
    #[must_use]
    pub fn message(&self, reply: Reply) -> ChatMessage {
        let config = self.provider.config();
        let tag = self
            .options
            .think_tag
            .unwrap_or(config.generation.think_tag);
        let content = match config.content_mode {
            ContentMode::Raw => raw_content(tag, &reply),
            ContentMode::Clean => reply.content.clone(),
        };
        ChatMessage {
            content,
            tool_calls: reply.tool_calls.clone(),
            thinking: reply.reasoning.clone(),
            reply,
            error: None,
        }
    }
}

/// Closed think block, newline, public text (row B6); the text alone without reasoning.
fn raw_content(tag: ThinkTag, reply: &Reply) -> String {
    if reply.reasoning.is_empty() {
        return reply.content.clone();
    }
    format!(
        "{}{}{}\n{}",
        tag.open(),
        reply.reasoning,
        tag.close(),
        reply.content
    )
}
