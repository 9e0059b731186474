//! One way to read an answer of any format, whole or streamed, cut anywhere.

use serde_json::value::RawValue;
use twopass_core::chat::{Event, Reply, WireFormat};
use twopass_wire::fault::Fault;
use twopass_wire::sse::{Decoder, DecoderOptions, SseEvent, encode_event};
use twopass_wire::{
    DecodeContext, anthropic_messages, ndjson, ollama_chat, openai_chat, openai_responses,
};

/// The formats of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Chat,
    Responses,
    Anthropic,
    Ollama,
}

impl Format {
    pub(crate) fn wire_format(self) -> WireFormat {
        match self {
            Self::Chat => WireFormat::ChatCompletions,
            Self::Responses => WireFormat::Responses,
            Self::Anthropic => WireFormat::Messages,
            Self::Ollama => WireFormat::OllamaChat,
        }
    }

    /// A stream of these JSON texts, framed as the format frames them. A string stands for
    /// its own text (an end marker).
    pub(crate) fn stream(self, events: &[&RawValue]) -> String {
        let mut out = String::new();
        for event in events {
            let data = serde_json::from_str::<String>(event.get());
            let data = data.unwrap_or_else(|_| event.get().to_owned());
            match self {
                Self::Chat => encode_event(None, &data, &mut out),
                Self::Ollama => {
                    out.push_str(&data);
                    out.push('\n');
                }
                Self::Responses | Self::Anthropic => {
                    let value: serde_json::Value = serde_json::from_str(&data).unwrap();
                    encode_event(value["type"].as_str(), &data, &mut out);
                }
            }
        }
        out
    }

    fn decoder(self, context: DecodeContext) -> Box<dyn Read> {
        match self {
            Self::Chat => Box::new(openai_chat::StreamDecoder::new(context)),
            Self::Responses => Box::new(openai_responses::StreamDecoder::new(context)),
            Self::Anthropic => Box::new(anthropic_messages::StreamDecoder::new(context)),
            Self::Ollama => Box::new(ollama_chat::StreamDecoder::new(context)),
        }
    }
}

trait Read {
    fn push(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<(), Fault>;
    fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), Fault>;
    fn partial(&self) -> &Reply;
    fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, Fault>;
}

macro_rules! read {
    ($decoder:ty, $event:ident => $data:expr) => {
        impl Read for $decoder {
            fn push(&mut self, $event: &SseEvent, out: &mut Vec<Event>) -> Result<(), Fault> {
                <$decoder>::push(self, $data, out)
            }
            fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), Fault> {
                <$decoder>::push_whole(self, body, out)
            }
            fn partial(&self) -> &Reply {
                <$decoder>::partial(self)
            }
            fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, Fault> {
                <$decoder>::finish(self, out)
            }
        }
    };
}

read!(openai_chat::StreamDecoder, event => event);
read!(openai_responses::StreamDecoder, event => event);
read!(anthropic_messages::StreamDecoder, event => event);
read!(ollama_chat::StreamDecoder, event => &event.data);

/// What came of an answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) reply: Result<Reply, Fault>,
    pub(crate) partial: Reply,
    pub(crate) events: Vec<Event>,
}

pub(crate) fn read_whole(format: Format, body: &[u8], context: DecodeContext) -> Outcome {
    let mut events = Vec::new();
    let mut decoder = format.decoder(context);
    let result = decoder.push_whole(body, &mut events);
    end(decoder, result, events)
}

fn end(mut decoder: Box<dyn Read>, result: Result<(), Fault>, mut events: Vec<Event>) -> Outcome {
    let partial = decoder.partial().clone();
    let reply = result.and_then(|()| decoder.finish(&mut events));
    Outcome {
        reply,
        partial,
        events: merged(events),
    }
}

enum Framing {
    Sse(Decoder),
    Lines(ndjson::Decoder),
}

impl Framing {
    fn take(&mut self, piece: Option<&[u8]>) -> Vec<SseEvent> {
        let mut events = Vec::new();
        let mut lines = Vec::new();
        match (self, piece) {
            (Self::Sse(decoder), Some(piece)) => decoder.push(piece, &mut events).unwrap(),
            (Self::Sse(decoder), None) => decoder.finish(&mut events),
            (Self::Lines(decoder), Some(piece)) => decoder.push(piece, &mut lines).unwrap(),
            (Self::Lines(decoder), None) => decoder.finish(&mut lines),
        }
        events.extend(lines.into_iter().map(|data| SseEvent {
            event: "message".to_owned(),
            data,
        }));
        events
    }
}

/// Reads a stream that arrives in these pieces.
pub(crate) fn read_stream<'p>(
    format: Format,
    pieces: impl IntoIterator<Item = &'p [u8]>,
    context: DecodeContext,
) -> Outcome {
    let mut framing = match format {
        Format::Ollama => Framing::Lines(ndjson::Decoder::default()),
        _ => Framing::Sse(Decoder::new(DecoderOptions::default())),
    };
    let mut decoder = format.decoder(context);
    let mut events = Vec::new();
    let mut result = Ok(());
    for piece in pieces.into_iter().map(Some).chain([None]) {
        for event in framing.take(piece) {
            if result.is_ok() {
                result = decoder.push(&event, &mut events);
            }
        }
    }
    end(decoder, result, events)
}

/// Reads a stream whole, byte by byte and cut once at every place; all must agree (row M1).
pub(crate) fn read_stream_cut(format: Format, bytes: &[u8], context: &DecodeContext) -> Outcome {
    let whole = read_stream(format, [bytes], context.clone());
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    // Long streams are cut at some places only: the time grows with the square.
    let step = (bytes.len() / 400).max(1);
    assert_eq!(
        read_stream(format, single, context.clone()),
        whole,
        "byte by byte"
    );
    for at in (0..bytes.len()).step_by(step) {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(
            read_stream(format, [head, tail], context.clone()),
            whole,
            "cut at {at}"
        );
    }
    whole
}

/// Adjacent deltas joined.
pub(crate) fn merged(events: Vec<Event>) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    for event in events {
        match (out.last_mut(), &event) {
            (Some(Event::TextDelta(text)), Event::TextDelta(more))
            | (Some(Event::ReasoningDelta(text)), Event::ReasoningDelta(more)) => {
                text.push_str(more)
            }
            (
                Some(Event::ArgumentsDelta { call_idx, text }),
                Event::ArgumentsDelta {
                    call_idx: next,
                    text: more,
                },
            ) if call_idx == next => text.push_str(more),
            _ => out.push(event),
        }
    }
    out
}
