//! Probabilities of tokens survive every wire that has them, in pieces and whole.

use twopass_core::chat::{Event, Reply, TokenLogprob, TopLogprob};
use twopass_wire::generate;
use twopass_wire::openai_chat::{self, StreamDecoder, StreamEncoder};
use twopass_wire::sse::{Decoder, DecoderOptions, SseEvent};
use twopass_wire::{DecodeContext, ReplyMeta};

fn token(bytes: &[u8], logprob: f32) -> TokenLogprob {
    let top = |bytes: &[u8], logprob| TopLogprob {
        bytes: bytes.to_vec(),
        logprob,
    };
    TokenLogprob {
        bytes: bytes.to_vec(),
        logprob,
        top: vec![top(b"It", -0.125), top(bytes, logprob)],
    }
}

/// "Hé!", whose second character is cut.
fn tokens() -> Vec<TokenLogprob> {
    vec![
        token(b"H", -0.25),
        token(b"\xc3", -1.5),
        token(b"\xa9", -0.0625),
        token(b"!", f32::NEG_INFINITY),
    ]
}

/// What is read back: JSON has no infinity.
fn expected() -> Vec<TokenLogprob> {
    let mut tokens = tokens();
    tokens[3].logprob = -9999.0;
    tokens[3].top[1].logprob = -9999.0;
    tokens
}

fn reply() -> Reply {
    Reply {
        content: "H\u{e9}!".to_owned(),
        logprobs: tokens(),
        ..Reply::default()
    }
}

fn events() -> [Event; 4] {
    let mut tokens = tokens();
    let rest = tokens.split_off(1);
    [
        Event::Logprobs(tokens),
        Event::TextDelta("H".to_owned()),
        Event::Logprobs(rest),
        Event::TextDelta("\u{e9}!".to_owned()),
    ]
}

fn tokens_of(events: &[Event]) -> Vec<TokenLogprob> {
    let tokens = events.iter().filter_map(|event| match event {
        Event::Logprobs(tokens) => Some(tokens.clone()),
        _ => None,
    });
    tokens.flatten().collect()
}

fn sse(text: &str) -> Vec<SseEvent> {
    let mut decoder = Decoder::new(DecoderOptions::default());
    let mut events = Vec::new();
    decoder.push(text.as_bytes(), &mut events).unwrap();
    decoder.finish(&mut events);
    events
}

fn meta() -> ReplyMeta {
    ReplyMeta {
        id: "x".to_owned(),
        created_s: 1,
        model: "m".to_owned(),
        echo: Vec::new(),
    }
}

#[test]
fn chat_completions() {
    let whole = openai_chat::encode_reply(&reply(), &meta());
    let mut out = Vec::new();
    let mut decoder = StreamDecoder::new(DecodeContext::default());
    decoder.push_whole(whole.as_bytes(), &mut out).unwrap();
    assert_eq!(tokens_of(&out), expected());
    let (mut encoder, mut text) = (StreamEncoder::new(meta(), false), String::new());
    for event in events() {
        encoder.encode(&event, &mut text);
    }
    encoder.encode_done(&reply(), &mut text);
    let mut decoder = StreamDecoder::new(DecodeContext::default());
    let mut out = Vec::new();
    for event in sse(&text) {
        decoder.push(&event, &mut out).unwrap();
    }
    assert_eq!(tokens_of(&out), expected());
    let is_text = |event: &&Event| matches!(event, Event::TextDelta(_));
    // Each comes with its text.
    assert_eq!((out.len(), out.iter().filter(is_text).count()), (4, 2));
}

#[test]
fn generate_has_them_too() {
    let whole = generate::encode_reply(&reply());
    let read = generate::decode_reply(&whole).unwrap();
    assert_eq!(read.logprobs, expected());
    let (mut encoder, mut text) = (generate::StreamEncoder::new(), String::new());
    for event in events() {
        encoder.encode(&event, &mut text);
    }
    let (mut decoder, mut items) = (generate::StreamDecoder::new(), Vec::new());
    for event in sse(&text) {
        decoder.decode(&event, &mut items).unwrap();
    }
    let events = items.into_iter().filter_map(|item| match item {
        generate::StreamItem::Event(event) => Some(event),
        _ => None,
    });
    assert_eq!(tokens_of(&events.collect::<Vec<_>>()), expected());
    // Nobody who did not ask meets the field.
    assert!(!generate::encode_reply(&Reply::default()).contains("logprobs"));
}
