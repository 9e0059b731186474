//! One way to read an answer of any format, whole or streamed, cut anywhere.

use serde_json::value::RawValue;
use twopass_core::chat::{Event, Reply};
use twopass_wire::fault::Fault;
use twopass_wire::sse::{Decoder, DecoderOptions, encode_event};
use twopass_wire::{DecodeContext, openai_chat};

/// The formats of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Chat,
}

impl Format {
    /// A stream of these JSON texts, framed as the format frames them. A string stands for
    /// its own text (an end marker).
    pub(crate) fn stream(self, events: &[&RawValue]) -> String {
        let mut out = String::new();
        for event in events {
            let data = serde_json::from_str::<String>(event.get());
            let data = data.unwrap_or_else(|_| event.get().to_owned());
            match self {
                Self::Chat => encode_event(None, &data, &mut out),
            }
        }
        out
    }
}

/// What came of an answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) reply: Result<Reply, Fault>,
    pub(crate) partial: Reply,
    pub(crate) events: Vec<Event>,
}

pub(crate) fn read_whole(format: Format, body: &[u8], context: DecodeContext) -> Outcome {
    let mut events = Vec::new();
    match format {
        Format::Chat => {
            let mut decoder = openai_chat::StreamDecoder::new(context);
            let result = decoder.push_whole(body, &mut events);
            let partial = decoder.partial().clone();
            let reply = result.and_then(|()| decoder.finish(&mut events));
            Outcome {
                reply,
                partial,
                events: merged(events),
            }
        }
    }
}

/// Reads a stream that arrives in these pieces.
pub(crate) fn read_stream<'p>(
    format: Format,
    pieces: impl IntoIterator<Item = &'p [u8]>,
    context: DecodeContext,
) -> Outcome {
    let mut sse = Decoder::new(DecoderOptions::default());
    let mut events = Vec::new();
    let mut arrived = Vec::new();
    match format {
        Format::Chat => {
            let mut decoder = openai_chat::StreamDecoder::new(context);
            let mut result = Ok(());
            let mut take = |arrived: &mut Vec<_>, events: &mut Vec<Event>| {
                for event in arrived.drain(..) {
                    if result.is_ok() {
                        result = decoder.push(&event, events);
                    }
                }
            };
            for piece in pieces {
                sse.push(piece, &mut arrived).unwrap();
                take(&mut arrived, &mut events);
            }
            sse.finish(&mut arrived);
            take(&mut arrived, &mut events);
            let partial = decoder.partial().clone();
            let reply = result.and_then(|()| decoder.finish(&mut events));
            Outcome {
                reply,
                partial,
                events: merged(events),
            }
        }
    }
}

/// Reads a stream whole, byte by byte and cut once at every place; all must agree.
pub(crate) fn read_stream_cut(format: Format, bytes: &[u8], context: &DecodeContext) -> Outcome {
    let whole = read_stream(format, [bytes], context.clone());
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
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
