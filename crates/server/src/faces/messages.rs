use twopass_core::chat::{BadRequest, Event, Reply};
use twopass_wire::anthropic_messages::{self, StreamEncoder};
use twopass_wire::error::ErrorBody;

use super::{About, Ask, Encoder, Face};

/// Anthropic Messages: `/v1/messages`. Thinking is shown only to those who asked for it.
pub(crate) struct Messages;

impl Face for Messages {
    fn decode(&self, body: &[u8]) -> Result<Ask, BadRequest> {
        Ask::from_wire(anthropic_messages::decode_request(body)?)
    }

    fn id_prefix(&self) -> &'static str {
        "msg_"
    }

    fn encode_whole(&self, replies: &[Reply], about: &About) -> String {
        let encode = |reply| {
            anthropic_messages::encode_reply(reply, &about.meta, about.wishes.with_thinking)
        };
        replies.first().map(encode).unwrap_or_default()
    }

    fn encoder(&self, about: About) -> Box<dyn Encoder> {
        let with_thinking = about.wishes.with_thinking;
        Box::new(StreamEncoder::new(about.meta, with_thinking))
    }
}

impl Encoder for StreamEncoder {
    fn event(&mut self, _: usize, event: &Event, out: &mut String) {
        self.encode(event, out);
    }

    fn done(&mut self, _: usize, reply: &Reply, out: &mut String) {
        self.encode_done(reply, out);
    }

    fn alive(&mut self, out: &mut String) {
        self.encode_alive(out);
    }

    fn error(&mut self, error: &ErrorBody, out: &mut String) {
        self.encode_error(error, out);
    }
}
