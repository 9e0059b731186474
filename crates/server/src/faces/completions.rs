use twopass_core::chat::{BadRequest, Event, Reply};
use twopass_wire::completions::{
    Completion, CompletionPiece, Prompt, StreamEncoder, decode_request, encode_reply, wants_usage,
};
use twopass_wire::error::ErrorBody;

use super::{About, Ask, Encoder, Face, Wishes};

/// Raw completions: `/v1/completions`, for backends that take text.
pub(crate) struct Completions;

/// Fields that would change what is done, with the only value that does not.
const NOT_DONE: [(&str, &str); 5] = [
    ("n", "1"),
    ("best_of", "1"),
    ("echo", "false"),
    ("logprobs", "0"),
    ("suffix", "\"\""),
];

impl Face for Completions {
    fn decode(&self, body: &[u8]) -> Result<Ask, BadRequest> {
        let wire = decode_request(body)?;
        for (name, only) in NOT_DONE {
            if wire
                .extra
                .iter()
                .any(|(known, json)| known == name && json != only)
            {
                return Err(BadRequest::new(
                    name,
                    format!("only {only} is supported here"),
                ));
            }
        }
        if wire.constraint.is_some() {
            return Err(BadRequest::new(
                "structured_outputs",
                "is not supported here",
            ));
        }
        let Prompt::Text(prompt) = wire.prompt else {
            return Err(BadRequest::new(
                "prompt",
                "must be a text; token ids are not taken",
            ));
        };
        let mut ask = Ask {
            model: Some(wire.model).filter(|model| !model.is_empty()),
            stream: wire.stream,
            prompt: Some(prompt),
            wishes: Wishes {
                include_usage: wants_usage(body),
                ..Wishes::default()
            },
            ..Ask::default()
        };
        ask.options.max_tokens = wire.max_tokens;
        ask.options.sampling = wire.sampling;
        ask.options.stop = Some(wire.stop);
        Ok(ask)
    }

    fn id_prefix(&self) -> &'static str {
        "cmpl-"
    }

    fn encode_whole(&self, replies: &[Reply], about: &About) -> String {
        let encode = |reply| encode_reply(&completion(reply), &about.meta);
        replies.first().map(encode).unwrap_or_default()
    }

    fn encoder(&self, about: About) -> Box<dyn Encoder> {
        Box::new(StreamEncoder::new(about.meta, about.wishes.include_usage))
    }
}

fn completion(reply: &Reply) -> Completion {
    Completion {
        text: reply.content.clone(),
        stop_reason: reply.stop_reason.clone(),
        usage: reply.usage,
        ..Completion::default()
    }
}

impl Encoder for StreamEncoder {
    fn event(&mut self, _: usize, event: &Event, out: &mut String) {
        if let Event::TextDelta(text) = event {
            let piece = CompletionPiece {
                text: text.clone(),
                ..CompletionPiece::default()
            };
            self.encode(&piece, out);
        }
    }

    fn done(&mut self, _: usize, reply: &Reply, out: &mut String) {
        self.encode_done(&completion(reply), out);
    }

    fn alive(&mut self, out: &mut String) {
        self.encode(&CompletionPiece::default(), out);
    }

    fn error(&mut self, error: &ErrorBody, out: &mut String) {
        self.encode_error(error, out);
    }
}
