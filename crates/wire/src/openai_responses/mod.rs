//! The OpenAI Responses API: `/v1/responses`, both ways.
//!
//! Output items are kept as they are, as
//! [`twopass_core::chat::OpaqueKind::ResponsesItem`] items, if a turn has any besides text
//! and calls: a reasoning item goes back right before what it led to, with its encrypted
//! content (row J3). Deltas are keyed by output index; results are linked by call id, never
//! by item id.
//!
//! Text deltas are handed on as they come. OpenAI's own service sends no tags in them;
//! compatible servers without parsers may, then the reader runs the turn parser over them.
//!
//! Source: OpenAI API reference; vLLM 0.32 as recorded; read 2026-01.

mod encoder;
mod items;
mod reply;
mod request;
mod stream;

pub use encoder::StreamEncoder;
pub use reply::{decode_reply, encode_reply};
pub use request::{
    decode_items, decode_request, encode_request, read_echo, read_input, read_output,
};
pub use stream::StreamDecoder;
