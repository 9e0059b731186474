//! Thinking budgets, private reasoning and typed tool calls for any language model.
//!
//! A [`Provider`] is one configured model: the engine in this process, or a server. It thinks
//! within a token budget, keeps the reasoning apart, and turns what the model writes into
//! checked calls; which backend it is makes no difference to the caller.
//!
//! ```no_run
//! use twopass::{Message, Provider, Role, ToolChoice, ToolSpec};
//!
//! # async fn example(schema: ToolSpec) -> Result<(), twopass::ProviderError> {
//! let provider = Provider::from_config(None, None)?;
//! let question = vec![Message::text(Role::User, "What is the weather in Rome?")];
//!
//! // Two texts: the answer, and the thoughts behind it.
//! let invocation = provider.invoke(question.clone(), true).await?;
//! println!("{}", invocation.response);
//!
//! // A chat client with tools: checked, typed calls.
//! let client = provider.client().bind_tools(vec![schema], ToolChoice::Auto);
//! for call in client.invoke(question).await?.tool_calls {
//!     println!("{} {}", call.name, call.arguments.as_text());
//! }
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

pub use twopass_agent as agent;
pub use twopass_core::chat::{
    Arguments, Event, Message, Part, Reply, Request, Role, Sampling, StopReason, ThinkTag,
    ToolCall, ToolChoice, ToolSpec, TurnBudget, Usage,
};
pub use twopass_provider::{
    Backend, CallOptions, ChatClient, ChatMessage, Config, ErrorKind, Invocation, Provider,
    ProviderConfig, ProviderError, Thinking, TurnItem, TurnStream, catalogue, config,
    parse_response,
};
pub use twopass_tools as tools;
