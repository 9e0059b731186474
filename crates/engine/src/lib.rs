//! Tokens in, tokens out: llama.cpp behind a scheduler with continuous batching, a prefix
//! cache and rules per stream.
//!
//! One thread owns a model's context. [`Engine::generate`] queues a turn and gives a
//! [`Generation`] to read it from, asynchronously or not; no runtime is needed. A turn can
//! think under a hard budget first: the thought is closed by forced tokens and the answer
//! goes on in the same KV cache, so the second pass costs no second prefill.
//!
//! ```no_run
//! use twopass_core::chat_template::{Prompt, Segment};
//! use twopass_engine::{Engine, EngineOptions, GenerateRequest, Output};
//!
//! # fn main() -> Result<(), twopass_engine::Error> {
//! let engine = Engine::load(EngineOptions::new("model.gguf"))?;
//! let segments = vec![Segment::Markup("The capital of France is".into())];
//! let mut turn = engine.generate(GenerateRequest::new(Prompt { segments }))?;
//! let mut answer = String::new();
//! while let Some(Output::Text { text, .. }) = turn.blocking_next() {
//!     answer.push_str(&text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Results are repeatable for a lone stream with a seed. In a batch with others, or after a
//! cached prefix, the kernels add in another order, and a near tie may fall differently.
#![warn(missing_docs)]

mod adapters;
mod draft;
mod draw;
mod engine;
mod error;
mod exits;
mod ffi;
mod gguf;
mod grammar;
mod inbox;
mod member_names;
mod options;
mod prefix_cache;
mod request;
mod scheduler;
mod session;
mod stats;
mod stream;
mod turn;
mod vocab;

pub use engine::{Engine, ModelInfo};
pub use error::{Error, ErrorKind};
pub use options::{CacheType, EngineOptions};
pub use request::{GenerateRequest, Grammar, Outcome, Output};
pub use stats::EngineStats;
pub use stream::Generation;

/// A token of a model's vocabulary.
pub type TokenId = u32;
