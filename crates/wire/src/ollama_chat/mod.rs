//! Ollama's native chat: `/api/chat`, both ways, in JSON lines ([`crate::ndjson`]).
//!
//! Arguments are objects, a call may have no id, results name their tool. Text deltas are
//! handed on as they come: models write think tags and call markup in them although they
//! were told not to, so the reader runs the turn parser over them (row G4).
//!
//! Source: Ollama API documentation, read 2026-01.

mod reply;
mod request;

pub use reply::{StreamDecoder, StreamEncoder, decode_reply, encode_reply};
pub use request::{decode_request, encode_request};
