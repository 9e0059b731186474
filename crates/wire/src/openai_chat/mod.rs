//! Chat Completions: `/v1/chat/completions`, both ways.
//!
//! A client writes a request with [`encode_request`] and reads answers with
//! [`StreamDecoder`] or [`decode_reply`]; a server reads requests with [`decode_request`]
//! and writes answers with [`StreamEncoder`] or [`encode_reply`]. Facts of the endpoint
//! come in as [`crate::facts::WireFacts`].
//!
//! Text deltas are handed on as they come. A server without parsers of its own sends think
//! tags and call markup in them: the reader runs the turn parser over the events' text
//! (rows G2, G4, B11). Structured reasoning and calls come out as such.
//!
//! Sources: OpenAI API reference; vLLM 0.32 and llama.cpp build 11549 as recorded; both
//! read 2026-01.

mod encoder;
mod reply;
mod request;
mod stream;

pub use encoder::StreamEncoder;
pub use reply::{decode_reply, encode_choices, encode_reply};
pub use request::{decode_request, encode_request};
pub use stream::StreamDecoder;

pub(crate) use reply::{finish_reason, read_stop, read_usage, usage_body};
pub(crate) use request::{
    FORMAT_FIELD, read_session, read_thinking, read_utf8, response_format, response_format_json,
};
