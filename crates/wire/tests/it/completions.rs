//! Raw completions: both routes read, one written back, streams cut everywhere.

use serde_json::{Value, json};
use twopass_core::chat::{Message, Request, Role, Sampling, StopReason, Usage};
use twopass_wire::completions::{
    Completion, CompletionFacts, CompletionPiece, CompletionRequest, Constraint, Prompt,
    StreamDecoder, StreamEncoder, decode_context_tokens, decode_prompt, decode_reply,
    decode_request, decode_tokens, encode_apply_template, encode_native_request, encode_reply,
    encode_request, encode_tokenize_messages,
};
use twopass_wire::facts::WireFacts;
use twopass_wire::fault::Fault;
use twopass_wire::sse::{Decoder, DecoderOptions};
use twopass_wire::{ReplyMeta, WireRequest};

pub(crate) fn read_stream<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Result<Completion, Fault> {
    let mut sse = Decoder::new(DecoderOptions::default());
    let mut decoder = StreamDecoder::new();
    let (mut events, mut out) = (Vec::new(), Vec::new());
    for piece in pieces {
        sse.push(piece, &mut events).unwrap();
    }
    sse.finish(&mut events);
    for event in &events {
        decoder.push(event, &mut out)?;
    }
    let joined: String = out.iter().map(|piece| piece.text.as_str()).collect();
    let whole = decoder.finish()?;
    assert_eq!(joined, whole.text);
    Ok(whole)
}

/// Whole, and cut once at every place (row M1).
pub(crate) fn read_stream_cut(bytes: &[u8]) -> Result<Completion, Fault> {
    let whole = read_stream([bytes]);
    for at in (0..bytes.len()).step_by((bytes.len() / 300).max(1)) {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(read_stream([head, tail]), whole, "cut at {at}");
    }
    whole
}

fn sample() -> Completion {
    Completion {
        logprobs: Vec::new(),
        text: "Hé there".to_owned(),
        token_ids: vec![7, 8, 9],
        prompt_token_ids: Vec::new(),
        stop_reason: StopReason::StopSequence("</think>".to_owned()),
        usage: Usage {
            prompt_tokens: 5,
            thinking_tokens: 0,
            response_tokens: 3,
            cached_tokens: 4,
        },
    }
}

fn meta() -> ReplyMeta {
    ReplyMeta {
        id: "cmpl-1".to_owned(),
        created_s: 1,
        model: "m".to_owned(),
        ..ReplyMeta::default()
    }
}

// Rows D2-D4, M2: ids in and out, the matched stop string, the proof of reuse.
#[test]
fn completions_are_read_back() {
    let sent = sample();
    assert_eq!(
        decode_reply(encode_reply(&sent, &meta()).as_bytes()),
        Ok(sent.clone())
    );
    let mut encoder = StreamEncoder::new(meta(), true);
    let mut stream = String::new();
    for (text, token_ids) in [("Hé", vec![7]), (" there", vec![8, 9])] {
        let piece = CompletionPiece {
            text: text.to_owned(),
            token_ids,
            logprobs: Vec::new(),
        };
        encoder.encode(&piece, &mut stream);
    }
    encoder.encode_done(&sent, &mut stream);
    assert_eq!(read_stream_cut(stream.as_bytes()), Ok(sent));
}

#[test]
fn the_native_route_tells_its_stop() {
    let read = |end: Value| {
        let mut body = json!({"content": "a", "tokens": [5], "stop": true, "tokens_predicted": 1, "tokens_evaluated": 9, "timings": {"cache_n": 8}});
        body.as_object_mut()
            .unwrap()
            .extend(end.as_object().unwrap().clone());
        decode_reply(body.to_string().as_bytes()).unwrap()
    };
    let word = read(json!({"stop_type": "word", "stopping_word": "</think>"}));
    assert_eq!(
        word.stop_reason,
        StopReason::StopSequence("</think>".to_owned())
    );
    assert_eq!(word.token_ids, [5]);
    assert_eq!((word.usage.prompt_tokens, word.usage.cached_tokens), (9, 8));
    assert_eq!(
        read(json!({"stop_type": "limit"})).stop_reason,
        StopReason::Length
    );
    assert_eq!(
        read(json!({"stop_type": "eos"})).stop_reason,
        StopReason::EndTurn
    );
    let stream = b"data: {\"content\":\"a\",\"tokens\":[5],\"stop\":false}\n\ndata: {\"content\":\"\",\"tokens\":[],\"stop\":true,\"stop_type\":\"limit\",\"tokens_predicted\":1,\"tokens_evaluated\":9}\n\n";
    let read = read_stream_cut(stream).unwrap();
    assert_eq!(
        (read.text.as_str(), &read.stop_reason),
        ("a", &StopReason::Length)
    );
}

#[test]
fn a_cut_stream_is_truncated() {
    let stream = b"data: {\"choices\":[{\"index\":0,\"text\":\"Hel\",\"finish_reason\":null}]}\n\n";
    assert_eq!(
        read_stream([stream.as_slice()]).unwrap_err().kind.as_str(),
        "stream_truncated"
    );
    let error = b"data: {\"error\":{\"message\":\"no\",\"code\":400}}\n\n";
    assert_eq!(
        read_stream([error.as_slice()]).unwrap_err().kind.as_str(),
        "bad_request"
    );
}

#[test]
fn requests_are_read_back() {
    let mut sent = CompletionRequest::new("org/m", Prompt::Ids(vec![1, 151_667, 2]));
    sent.max_tokens = Some(64);
    sent.stop = vec!["</think>".to_owned()];
    sent.sampling = Sampling {
        temperature: Some(0.3),
        top_k: Some(20),
        seed: Some(3),
        repeat_penalty: Some(1.1),
        ..Sampling::default()
    };
    sent.constraint = Some(Constraint::JsonSchema(json!({"type": "object"})));
    sent.stream = true;
    sent.extra = vec![("priority".to_owned(), "1.50".to_owned())];
    let (body, diagnostics) = encode_request(&sent, &CompletionFacts::FULL);
    assert_eq!(diagnostics, []);
    assert_eq!(decode_request(body.as_bytes()), Ok(sent.clone()));
    let (body, diagnostics) = encode_request(&sent, &CompletionFacts::PLAIN);
    assert_eq!(
        diagnostics.len(),
        3,
        "top_k, repeat_penalty and the constraint"
    );
    assert!(!body.contains("return_token_ids"));
    for body in [
        r#"{"prompt":[]}"#,
        r#"{"prompt":["a","b"]}"#,
        r#"{"prompt":[-1]}"#,
        "{}",
    ] {
        assert!(decode_request(body.as_bytes()).is_err(), "{body}");
    }
    let (body, _) = encode_native_request(&sent);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["n_predict"], 64);
    assert_eq!(body["prompt"], json!([1, 151_667, 2]));
    assert_eq!(body["json_schema"], json!({"type": "object"}));
}

#[test]
fn tokens_and_templates() {
    let read = |body: &str| decode_tokens(body.as_bytes()).unwrap();
    let tokenized = read(r#"{"count":2,"max_model_len":4096,"tokens":[1,2]}"#);
    assert_eq!(
        (tokenized.ids, tokenized.context_tokens),
        (vec![1, 2], Some(4096))
    );
    assert_eq!(
        read(r#"{"tokens":[{"id":1,"piece":"a"},{"id":2,"piece":[255]}]}"#).ids,
        [1, 2]
    );
    assert_eq!(read(r#"{"tokens":[]}"#).ids, [0_u32; 0]);
    assert!(decode_tokens(b"{}").is_err());
    assert_eq!(decode_prompt(br#"{"prompt":"<s>"}"#), Ok("<s>".to_owned()));
    assert_eq!(decode_prompt(br#"{"content":""}"#), Ok(String::new()));
    let props = br#"{"default_generation_settings":{"n_ctx":4096}}"#;
    assert_eq!(decode_context_tokens(props), Ok(Some(4096)));
    let messages = vec![
        Message::text(Role::User, "hi"),
        Message::text(Role::Assistant, "so "),
    ];
    let mut request = WireRequest::new("m", Request::new(messages));
    request.continue_final = true;
    let body = encode_tokenize_messages(&request, &WireFacts::CHAT).unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["add_generation_prompt"], false);
    assert_eq!(body["continue_final_message"], true);
    assert_eq!(body["messages"][1]["content"], "so ");
    let body = encode_apply_template(&request, &WireFacts::CHAT).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&body)
            .unwrap()
            .as_object()
            .unwrap()
            .len(),
        1
    );
}
