use twopass_core::chat::{BadRequest, Event, Reply};
use twopass_provider::CallOptions;
use twopass_wire::error::ErrorBody;
use twopass_wire::generate::{GenerateRequest, StreamEncoder, encode_reply};

use super::{About, Ask, Encoder, Face};

/// The native contract: `/generate` (rows F1-F6).
pub(crate) struct Generate;

impl Face for Generate {
    fn decode(&self, body: &[u8]) -> Result<Ask, BadRequest> {
        let wire = GenerateRequest::from_json(body)?;
        let (model, stream) = (wire.model.clone(), wire.stream);
        let (messages, options) = CallOptions::from_generate(wire);
        Ok(Ask {
            model,
            stream,
            messages,
            options,
            ..Ask::default()
        })
    }

    fn tells_all(&self) -> bool {
        true
    }

    fn id_prefix(&self) -> &'static str {
        "gen_"
    }

    fn encode_whole(&self, replies: &[Reply], _: &About) -> String {
        replies.first().map(encode_reply).unwrap_or_default()
    }

    fn encoder(&self, _: About) -> Box<dyn Encoder> {
        Box::new(StreamEncoder::new())
    }
}

impl Encoder for StreamEncoder {
    fn event(&mut self, _: usize, event: &Event, out: &mut String) {
        self.encode(event, out);
    }

    fn done(&mut self, _: usize, reply: &Reply, out: &mut String) {
        self.encode_done(reply, out);
    }

    /// Nothing: the comments between the events are enough for this format's clients.
    fn alive(&mut self, _: &mut String) {}

    fn error(&mut self, error: &ErrorBody, out: &mut String) {
        self.encode_error(error, out);
    }
}
