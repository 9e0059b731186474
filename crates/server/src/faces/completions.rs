use serde_json::Value;
use twopass_core::chat::{BadRequest, Event, Reply, TokenLogprob};
use twopass_wire::completions::{
    Completion, CompletionPiece, Prompt, StreamEncoder, decode_request, encode_reply, wants_usage,
};
use twopass_wire::error::ErrorBody;

use super::{About, Ask, Encoder, Face, Wishes};

/// Raw completions: `/v1/completions`, for backends that take text.
pub(crate) struct Completions;

/// Fields that would change what is done, with the only value that does not.
const NOT_DONE: [(&str, &str); 6] = [
    ("n", "1"),
    ("best_of", "1"),
    ("echo", "false"),
    ("suffix", "\"\""),
    ("response_format", "{\"type\":\"text\"}"),
    ("lora", "null"),
];

impl Face for Completions {
    fn decode(&self, body: &[u8]) -> Result<Ask, BadRequest> {
        let wire = decode_request(body)?;
        for (name, only) in NOT_DONE {
            let is_other = |json: &str| {
                let [given, only] = [json, only].map(serde_json::from_str::<Value>);
                given.ok() != only.ok()
            };
            if wire
                .extra
                .iter()
                .any(|(known, json)| known == name && is_other(json))
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
        ask.options.logprobs = wire.logprobs;
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
        Box::new(CompletionsEncoder {
            inner: StreamEncoder::new(about.meta, about.wishes.include_usage),
            logprobs: Vec::new(),
        })
    }
}

fn completion(reply: &Reply) -> Completion {
    Completion {
        text: reply.content.clone(),
        logprobs: reply.logprobs.clone(),
        stop_reason: reply.stop_reason.clone(),
        usage: reply.usage,
        ..Completion::default()
    }
}

struct CompletionsEncoder {
    inner: StreamEncoder,
    /// Of the text that comes next.
    logprobs: Vec<TokenLogprob>,
}

impl Encoder for CompletionsEncoder {
    fn event(&mut self, _: usize, event: &Event, out: &mut String) {
        match event {
            Event::Logprobs(tokens) => self.logprobs.extend_from_slice(tokens),
            Event::TextDelta(text) => {
                let piece = CompletionPiece {
                    text: text.clone(),
                    logprobs: std::mem::take(&mut self.logprobs),
                    ..CompletionPiece::default()
                };
                self.inner.encode(&piece, out);
            }
            _ => {}
        }
    }

    fn done(&mut self, _: usize, reply: &Reply, out: &mut String) {
        self.inner.encode_done(&completion(reply), out);
    }

    fn alive(&mut self, out: &mut String) {
        self.inner.encode(&CompletionPiece::default(), out);
    }

    fn error(&mut self, error: &ErrorBody, out: &mut String) {
        self.inner.encode_error(error, out);
    }
}
