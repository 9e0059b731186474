use twopass_core::chat::{BadRequest, Event, Reply, Usage};
use twopass_wire::error::ErrorBody;
use twopass_wire::openai_chat::{self, StreamEncoder};

use super::{About, Ask, Encoder, Face};

/// Chat Completions: `/v1/chat/completions`.
pub(crate) struct Chat;

impl Face for Chat {
    fn decode(&self, body: &[u8]) -> Result<Ask, BadRequest> {
        Ask::from_wire(openai_chat::decode_request(body)?)
    }

    fn id_prefix(&self) -> &'static str {
        "chatcmpl-"
    }

    fn encode_whole(&self, replies: &[Reply], about: &About) -> String {
        openai_chat::encode_choices(replies, &about.meta)
    }

    fn encoder(&self, about: About) -> Box<dyn Encoder> {
        let About { meta, wishes } = about;
        let n_choices = wishes.n_choices;
        Box::new(ChatEncoder {
            inner: StreamEncoder::of_choices(meta, wishes.include_usage, n_choices),
            n_running: n_choices,
            usage: Usage::default(),
        })
    }
}

struct ChatEncoder {
    inner: StreamEncoder,
    n_running: usize,
    usage: Usage,
}

impl Encoder for ChatEncoder {
    fn event(&mut self, choice: usize, event: &Event, out: &mut String) {
        self.inner.encode_choice(choice, event, out);
    }

    fn done(&mut self, choice: usize, reply: &Reply, out: &mut String) {
        self.inner.encode_choice_done(choice, reply, out);
        self.usage = Usage::of_choices([self.usage, reply.usage]);
        self.n_running = self.n_running.saturating_sub(1);
        if self.n_running == 0 {
            self.inner.encode_end(&self.usage, out);
        }
    }

    fn alive(&mut self, out: &mut String) {
        self.inner.encode_alive(out);
    }

    fn error(&mut self, error: &ErrorBody, out: &mut String) {
        self.inner.encode_error(error, out);
    }
}
