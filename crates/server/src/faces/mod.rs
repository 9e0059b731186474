//! The outside formats of turns, one small type each.
//!
//! A face reads a body into an [`Ask`], writes a whole answer, and makes the writer of a
//! stream; [`crate::turn`] does everything between. What the bytes look like is a matter of
//! `twopass-wire`; a face only chooses.

mod chat;
mod completions;
mod form;
mod generate;
mod messages;
mod responses;

use twopass_core::chat::{BadRequest, Event, Message, Reply};
use twopass_provider::CallOptions;
use twopass_wire::error::ErrorBody;
use twopass_wire::{ReplyMeta, WireRequest};

use crate::stored::Thread;

pub(crate) use chat::Chat;
pub(crate) use completions::Completions;
pub(crate) use form::ErrorForm;
pub(crate) use generate::Generate;
pub(crate) use messages::Messages;
pub(crate) use responses::Responses;

/// The most answers to one request.
const MAX_CHOICES: u32 = 16;

/// An outside format of turns, as clients of this server speak it.
pub(crate) trait Face: Send + Sync {
    /// Reads a request's body.
    fn decode(&self, body: &[u8]) -> Result<Ask, BadRequest>;

    /// True if its answers tell what was irregular, refused calls included, and its streams can
    /// take text back.
    fn tells_all(&self) -> bool {
        false
    }

    /// What the ids of its answers begin with.
    fn id_prefix(&self) -> &'static str;

    /// Writes whole answers: one, or as many as were asked for.
    fn encode_whole(&self, replies: &[Reply], about: &About) -> String;

    /// The writer of one stream of answers.
    fn encoder(&self, about: About) -> Box<dyn Encoder>;
}

/// Writes the events of a stream. What it appends may be nothing.
pub(crate) trait Encoder: Send {
    /// One event of the answer with this number.
    fn event(&mut self, choice: usize, event: &Event, out: &mut String);

    /// The end of the answer with this number.
    fn done(&mut self, choice: usize, reply: &Reply, out: &mut String);

    /// The answer as a whole, once it is done, where it may have to be stored.
    fn whole(&mut self) -> Option<String> {
        None
    }

    /// A sign of life that clients with an idle clock count; the first one begins the stream.
    fn alive(&mut self, out: &mut String);

    /// The failure of a turn. It is the stream's last event.
    fn error(&mut self, error: &ErrorBody, out: &mut String);
}

/// What a client asks for, whatever format it came in.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    /// The model as the client named it; `None` = the default one.
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    pub(crate) messages: Vec<Message>,
    /// A raw text to go on from, in place of a conversation.
    pub(crate) prompt: Option<String>,
    pub(crate) options: CallOptions,
    pub(crate) wishes: Wishes,
    /// Fields that the answer repeats, name and JSON text.
    pub(crate) echo: Vec<(&'static str, String)>,
    /// What a format with stored answers says of them.
    pub(crate) thread: Option<Thread>,
}

/// What of an answer a client wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Answers, 1 or more.
    pub(crate) n_choices: usize,
    /// A stream tells its usage.
    pub(crate) include_usage: bool,
    /// The reasoning is shown where the format shows it on demand only.
    pub(crate) with_thinking: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            n_choices: 1,
            include_usage: false,
            with_thinking: false,
        }
    }
}

/// What is known of an answer before its first event.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) meta: ReplyMeta,
    pub(crate) wishes: Wishes,
}

impl Ask {
    /// # Errors
    /// More answers are wanted than one request may have.
    fn from_wire(wire: WireRequest) -> Result<Self, BadRequest> {
        if wire.n > MAX_CHOICES {
            let message = format!("at most {MAX_CHOICES} answers, got {}", wire.n);
            return Err(BadRequest::new("n", message));
        }
        let wishes = Wishes {
            n_choices: wire.n as usize,
            include_usage: wire.include_usage,
            with_thinking: wire.thinking.is_on(),
        };
        let stream = wire.stream;
        let model = Some(wire.model.clone()).filter(|model| !model.is_empty());
        let (messages, options) = CallOptions::from_wire(wire);
        Ok(Self {
            model,
            stream,
            messages,
            options,
            wishes,
            ..Self::default()
        })
    }
}
