//! The outside formats of chat services: one row of functions each, in `twopass-wire`.

use twopass_core::chat::{BadRequest, Event, Reply};
use twopass_wire::facts::WireFacts;
use twopass_wire::sse::SseEvent;
use twopass_wire::{
    DecodeContext, Encoded, WireRequest, anthropic_messages, ollama_chat, openai_chat,
    openai_responses,
};

use super::exchange::{Decoder, Framing};
use crate::ProviderError;
use crate::config::BackendKind;

/// How one format is written and read.
#[derive(Debug)]
pub(crate) struct Format {
    pub(crate) framing: Framing,
    pub(crate) encode: fn(&WireRequest, &WireFacts) -> Result<Encoded, BadRequest>,
    pub(crate) decoder: fn(DecodeContext) -> Box<dyn Decoder>,
    /// The field that says whether the reasoning is to be returned, where there is one.
    pub(crate) include_reasoning: Option<&'static str>,
}

const FORMATS: &[(BackendKind, Format)] = &[
    (
        BackendKind::OpenAi,
        Format {
            framing: Framing::Sse,
            encode: openai_chat::encode_request,
            decoder: |context| Box::new(openai_chat::StreamDecoder::new(context)),
            include_reasoning: Some("include_reasoning"),
        },
    ),
    (
        BackendKind::OpenAiResponses,
        Format {
            framing: Framing::Sse,
            encode: openai_responses::encode_request,
            decoder: |context| Box::new(openai_responses::StreamDecoder::new(context)),
            include_reasoning: None,
        },
    ),
    (
        BackendKind::Anthropic,
        Format {
            framing: Framing::Sse,
            encode: anthropic_messages::encode_request,
            decoder: |context| Box::new(anthropic_messages::StreamDecoder::new(context)),
            include_reasoning: None,
        },
    ),
    (
        BackendKind::Ollama,
        Format {
            framing: Framing::Lines,
            encode: ollama_chat::encode_request,
            decoder: |context| Box::new(ollama_chat::StreamDecoder::new(context)),
            include_reasoning: None,
        },
    ),
];

impl Format {
    /// The format of this backend; `None` if it is no chat service.
    pub(crate) fn of(backend: BackendKind) -> Option<&'static Self> {
        let row = FORMATS.iter().find(|(kind, _)| *kind == backend);
        row.map(|(_, format)| format)
    }
}

/// The decoders of `twopass-wire` have the same shape; what one frame is differs.
macro_rules! decoder {
    ($decoder:ty, $event:ident => $frame:expr) => {
        impl Decoder for $decoder {
            fn push(
                &mut self,
                $event: &SseEvent,
                out: &mut Vec<Event>,
            ) -> Result<(), ProviderError> {
                Ok(self.push($frame, out)?)
            }

            fn push_whole(
                &mut self,
                body: &[u8],
                out: &mut Vec<Event>,
            ) -> Result<(), ProviderError> {
                Ok(self.push_whole(body, out)?)
            }

            fn is_done(&self) -> bool {
                self.is_done()
            }

            fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, ProviderError> {
                Ok(self.finish(out)?)
            }
        }
    };
}

decoder!(openai_chat::StreamDecoder, event => event);
decoder!(openai_responses::StreamDecoder, event => event);
decoder!(anthropic_messages::StreamDecoder, event => event);
decoder!(ollama_chat::StreamDecoder, event => &event.data);
