use twopass_core::chat::{BadRequest, Event, Reply};
use twopass_wire::error::ErrorBody;
use twopass_wire::openai_responses::{self, StreamEncoder};

use super::{About, Ask, Encoder, Face};
use crate::stored::Thread;

/// The OpenAI Responses API: `/v1/responses`, with stored responses.
pub(crate) struct Responses;

/// Fields that would change what is done, and that nobody here does.
const NOT_DONE: [&str; 3] = ["background", "conversation", "prompt"];

/// An empty one makes no message.
fn is_instruction((name, json): &(&str, String)) -> bool {
    *name == "instructions" && json != "\"\""
}

impl Face for Responses {
    fn decode(&self, body: &[u8]) -> Result<Ask, BadRequest> {
        let wire = openai_responses::decode_request(body)?;
        let unread = wire
            .request
            .passthrough
            .iter()
            .flat_map(|passed| &passed.fields);
        for (name, json) in unread {
            if NOT_DONE.contains(&name.as_str()) && json != "false" {
                return Err(BadRequest::new(name, "is not supported here"));
            }
        }
        let echo = openai_responses::read_echo(body);
        let thread = Thread {
            previous_id: wire.previous_response_id.clone(),
            stores: wire.store.unwrap_or(true),
            input: openai_responses::read_input(body),
            n_before: usize::from(echo.iter().any(is_instruction)),
        };
        Ok(Ask {
            echo,
            thread: Some(thread),
            ..Ask::from_wire(wire)?
        })
    }

    fn id_prefix(&self) -> &'static str {
        "resp_"
    }

    fn encode_whole(&self, replies: &[Reply], about: &About) -> String {
        let encode = |reply| openai_responses::encode_reply(reply, &about.meta);
        replies.first().map(encode).unwrap_or_default()
    }

    fn encoder(&self, about: About) -> Box<dyn Encoder> {
        Box::new(StreamEncoder::new(about.meta))
    }
}

impl Encoder for StreamEncoder {
    fn event(&mut self, _: usize, event: &Event, out: &mut String) {
        self.encode(event, out);
    }

    fn done(&mut self, _: usize, reply: &Reply, out: &mut String) {
        self.encode_done(reply, out);
    }

    fn whole(&mut self) -> Option<String> {
        self.take_whole()
    }

    fn alive(&mut self, out: &mut String) {
        self.encode_alive(out);
    }

    fn error(&mut self, error: &ErrorBody, out: &mut String) {
        self.encode_error(error, out);
    }
}
