//! The one vocabulary that every backend, parser and way in shares.
//!
//! Nothing here is `Serialize`: what crosses a process boundary has its own struct in
//! `twopass-wire`.

mod diagnostic;
mod event;
mod logprobs;
mod message;
mod opaque;
mod passthrough;
mod reply;
mod request;
mod thinking;
mod tool;

pub use diagnostic::{Diagnostic, DiagnosticKind};
pub use event::Event;
pub use logprobs::{MAX_TOP_LOGPROBS, TokenLogprob, TopLogprob};
pub use message::{Media, MediaSource, Message, Part, Role};
pub use opaque::{OpaqueItem, OpaqueKind};
pub use passthrough::{Passthrough, WireFormat};
pub use reply::{PassReport, Reply, StopReason, Usage};
pub use request::{BadRequest, Delivery, Request, ResponseFormat, Sampling, ThinkTag, TurnBudget};
pub use thinking::Thinking;
pub use tool::{
    Arguments, CallErrorKind, InvalidToolCall, NotAnObject, ToolCall, ToolChoice, ToolSpec,
};
