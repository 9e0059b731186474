//! `/generate`: the native contract between an agent and an engine with two passes.
//!
//! Not Chat Completions and no imitation of it. Request, whole reply, and the event stream
//! (`thinking`, `text`, `tool_call`, `reclassified`, `done`, `error`), each both ways.

mod reply;
mod request;
mod stream;

pub use reply::{decode_reply, encode_parsed, encode_reply};
pub use request::{GenerateRequest, MAX_MESSAGES, MAX_TOOLS};
pub use stream::{StreamDecoder, StreamEncoder, StreamItem};

pub(crate) use request::{
    list_of_messages, read_sampling, read_stop, read_template_kwargs, read_tool, read_tool_choice,
    read_tools,
};

use std::fmt;

/// A reply that is not what the contract says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidReply(pub(crate) String);

impl InvalidReply {
    /// An invalid reply, and what is wrong with it.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for InvalidReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidReply {}
