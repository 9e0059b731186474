//! Bytes to core types and back, one module per outside format.
//!
//! Every module has both directions: what a client writes and reads, and what a server
//! reads and writes. Readers are lenient (unknown fields pass, wrong types in fields that
//! nobody needs pass), writers are exact. Nothing here opens a socket, reads a clock or an
//! environment; input is bytes or text, output is text or [`twopass_core::chat`] values.
//!
//! ```
//! use twopass_wire::generate::GenerateRequest;
//!
//! let body = br#"{"messages": [{"role": "user", "content": "Hi"}], "two_pass": true}"#;
//! let request = GenerateRequest::from_json(body)?;
//! assert_eq!(request.two_pass, Some(true));
//! # Ok::<(), twopass_core::chat::BadRequest>(())
//! ```
#![warn(missing_docs)]

pub mod anthropic_messages;
mod body;
mod calls;
pub mod completions;
mod content;
pub mod embeddings;
pub mod error;
pub mod facts;
pub mod fault;
pub mod generate;
pub mod history;
mod invalid_calls;
mod json;
mod linear;
mod logprobs;
pub mod models;
pub mod ndjson;
pub mod ollama_chat;
pub mod openai_chat;
pub mod openai_responses;
mod request;
pub mod sse;
mod turn;

pub use request::{DecodeContext, Encoded, ReplyMeta, Thinking, WireRequest};
