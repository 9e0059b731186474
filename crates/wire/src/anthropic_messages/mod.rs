//! Anthropic Messages: `/v1/messages`, both ways.
//!
//! Thinking blocks are kept with their signatures, byte for byte and in their order among
//! text and calls, as [`twopass_core::chat::OpaqueKind::AnthropicBlock`] items, and go back
//! while thinking is on. Reasoning without a signature never goes back, not even as text.
//!
//! Text deltas are handed on as they come. Anthropic's own service sends no tags in them;
//! compatible servers without parsers may, then the reader runs the turn parser over them.
//!
//! Source: Anthropic API reference; vLLM 0.32 and llama.cpp build 11549 as recorded; read
//! 2026-01.

mod decode;
mod reply;
mod request;
mod stream;

pub use decode::decode_request;
pub use reply::{decode_reply, encode_reply};
pub use request::encode_request;
pub use stream::{StreamDecoder, StreamEncoder};

/// The least thinking budget that the service accepts, in tokens.
pub const MIN_BUDGET_TOKENS: u32 = 1024;
