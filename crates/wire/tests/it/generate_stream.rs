use twopass_core::chat::{Event, PassReport};
use twopass_wire::error::ErrorBody;
use twopass_wire::generate::{StreamDecoder, StreamEncoder, StreamItem, encode_reply};
use twopass_wire::sse::{Decoder, DecoderOptions, SseEvent};

use crate::generate_reply::full_reply;

fn read(bytes: &[u8]) -> Vec<StreamItem> {
    let mut sse = Decoder::new(DecoderOptions::default());
    let (mut events, mut items) = (Vec::new(), Vec::new());
    let mut decoder = StreamDecoder::new();
    for chunk in bytes.chunks(1) {
        sse.push(chunk, &mut events).unwrap();
    }
    sse.finish(&mut events);
    for event in &events {
        decoder.decode(event, &mut items).unwrap();
    }
    items
}

#[test]
fn a_turn_survives_the_stream() {
    let reply = full_reply();
    let call = reply.tool_calls[0].clone();
    let turn = [
        Event::ReasoningDelta("Hm.".to_owned()),
        Event::ReasoningBlockEnd,
        Event::ReasoningDelta("Yes.".to_owned()),
        Event::TextDelta("Su".to_owned()),
        Event::TextDelta("re.".to_owned()),
        Event::CallStarted {
            call_idx: 0,
            id: "call_1".to_owned(),
            name: "f".to_owned(),
        },
        Event::ArgumentsDelta {
            call_idx: 0,
            text: "{".to_owned(),
        },
        Event::CallFinished {
            call_idx: 0,
            call: call.clone(),
        },
        Event::PassFinished(PassReport::default()),
    ];
    let (mut encoder, mut out) = (StreamEncoder::new(), String::new());
    for event in &turn {
        encoder.encode(event, &mut out);
    }
    encoder.encode_done(&reply, &mut out);
    let names: Vec<_> = out
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(
        names,
        ["thinking", "thinking", "text", "text", "tool_call", "done"]
    );

    let items = read(out.as_bytes());
    let text = |event: &StreamItem| match event {
        StreamItem::Event(Event::ReasoningDelta(text)) => format!("r{text}"),
        StreamItem::Event(Event::TextDelta(text)) => format!("t{text}"),
        _ => String::new(),
    };
    assert_eq!(
        items.iter().map(text).collect::<String>(),
        "rHm.r\nYes.tSutre."
    );
    assert!(items.contains(&StreamItem::Event(Event::CallFinished {
        call_idx: 0,
        call
    })));
    assert_eq!(items.last(), Some(&StreamItem::Done(Box::new(reply))));
}

#[test]
fn done_carries_the_whole_body_in_one_event() {
    let mut out = String::new();
    let reply = full_reply();
    StreamEncoder::new().encode_done(&reply, &mut out);
    let data: Vec<_> = out
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    assert_eq!(data.join("\n"), encode_reply(&reply));
}

// Case rule 17: an error object inside a 200 answer is an error.
#[test]
fn errors_in_the_stream_are_errors() {
    let body = ErrorBody {
        kind: "queue_full".to_owned(),
        message: "busy".to_owned(),
        param: None,
        ..ErrorBody::default()
    };
    let mut out = String::new();
    StreamEncoder::new().encode_error(&body, &mut out);
    assert_eq!(read(out.as_bytes()), [StreamItem::Error(body.clone())]);
    let nameless = format!(
        "data: {}\n\ndata: {{\"x\":1}}\n\ndata: [DONE]\n\n",
        body.to_json()
    );
    assert_eq!(read(nameless.as_bytes()), [StreamItem::Error(body)]);
}

#[test]
fn broken_data_of_a_known_event_is_refused() {
    for (event, data) in [
        ("text", "no json"),
        ("text", "{\"text\": 3}"),
        ("tool_call", "{}"),
        ("done", "{}"),
    ] {
        let event = SseEvent {
            event: event.to_owned(),
            data: data.to_owned(),
        };
        assert!(
            StreamDecoder::new()
                .decode(&event, &mut Vec::new())
                .is_err(),
            "{event:?}"
        );
    }
}
