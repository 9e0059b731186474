//! One client for every model: configuration, backends, and the [`Provider`] facade.
//!
//! A provider is one configured entry; its backend turns a checked request into events.
//! What comes back never depends on which backend it was. This crate is the first that
//! opens sockets and files; meaning lives in `twopass-core`, formats in `twopass-wire`.
//!
//! ```no_run
//! # async fn example() -> Result<(), twopass_provider::ProviderError> {
//! use twopass_provider::{Message, Provider, Role};
//!
//! let provider = Provider::from_config(None, None)?;
//! let messages = vec![Message::text(Role::User, "Which of 7 and 11 is larger?")];
//! let reply = provider.invoke(messages, true).await?;
//! println!("{}", reply.response);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

pub mod backend;
pub mod catalogue;
mod client;
pub mod config;
mod embeddings;
mod endpoint;
mod error;
mod fallback;
mod http;
pub mod plan;
pub mod preset;
pub mod prompt;
mod provider;
mod replicas;
mod retry;
mod service;

pub use backend::{Backend, RawRequest, TurnItem, TurnSource, TurnStream};
pub use client::{ChatClient, ChatMessage};
pub use config::{Config, ProviderConfig};
pub use embeddings::Embeddings;
pub use error::{ErrorKind, ProviderError};
pub use http::HttpClient;
pub use plan::{CallOptions, Planned, Thinking};
pub use provider::{Invocation, Provider, parse_response};
pub use service::{SERVICE_KEY, Service};
pub use twopass_core::chat::{Delivery, Message, Role, ToolChoice, ToolSpec};
