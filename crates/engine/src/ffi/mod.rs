//! Every call into llama.cpp, and all `unsafe` of this crate.
//!
//! Invariant: whatever llama.cpp or ggml would answer with an abort of the process (a batch
//! over its size, a token or sequence out of range, logits of a row that has none) is
//! checked here first and becomes a value. The safe types own what they point to.
//!
//! The raw crate is used without its `common` part: the argument parser, chat templates and
//! JSON code in it are written in Rust above, and leaving them out makes the clean build
//! much shorter.
#![expect(
    unsafe_code,
    reason = "the one boundary to llama.cpp; every block says why it is sound"
)]

mod abort;
mod adapter;
mod context;
mod cpu;
mod log;
mod model;
mod sampler;

pub(crate) use adapter::Adapter;
pub(crate) use context::{Batch, Context, ContextParams, Decoded};
pub(crate) use cpu::used_instructions;
use log::loaded;
pub(crate) use log::{capture_errors, init_backend, version};
pub(crate) use model::{Model, TokenKind, VocabType};
pub(crate) use sampler::{Candidates, Sampler, SamplerParams};
