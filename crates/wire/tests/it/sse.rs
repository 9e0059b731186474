use proptest::prelude::*;
use twopass_wire::sse::{Decoder, DecoderOptions, SseEvent, encode_comment, encode_event};

/// Events, end marker seen, input ended inside a character.
type Outcome = (Vec<(String, String)>, bool, bool);

fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = Decoder::new(DecoderOptions {
        end_marker: Some("[DONE]".to_owned()),
        ..DecoderOptions::default()
    });
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk, &mut events).unwrap();
    }
    decoder.finish(&mut events);
    decoder.finish(&mut events);
    let pairs = events
        .into_iter()
        .map(|SseEvent { event, data }| (event, data))
        .collect();
    (pairs, decoder.is_done(), decoder.is_truncated())
}

/// The bytes give these events, whole and however they are cut.
fn check(bytes: &[u8], expect: &[(&str, &str)], done: bool) {
    let expect: Vec<_> = expect
        .iter()
        .map(|(e, d)| ((*e).to_owned(), (*d).to_owned()))
        .collect();
    let whole = decode([bytes]);
    assert_eq!(
        (&whole.0, whole.1),
        (&expect, done),
        "whole: {:?}",
        String::from_utf8_lossy(bytes)
    );
    assert_eq!(decode(bytes.chunks(1)), whole, "byte by byte");
    for cut in 0..=bytes.len() {
        assert_eq!(
            decode([&bytes[..cut], &bytes[cut..]]),
            whole,
            "cut at {cut}"
        );
    }
}

// Row M1: the same events however the bytes are cut.
#[test]
fn m1_events_of_the_standard() {
    let rows: &[(&[u8], &[(&str, &str)], bool)] = &[
        (b"data: 1\n\n", &[("message", "1")], false),
        (b"data:1\n\n", &[("message", "1")], false),
        (
            b"data:  two spaces\n\n",
            &[("message", " two spaces")],
            false,
        ),
        (b"data: 1\r\n\r\n", &[("message", "1")], false),
        (b"data: 1\r\r", &[("message", "1")], false),
        (
            b"data: a\r\ndata: b\r\n\r\ndata: c\n\n",
            &[("message", "a\nb"), ("message", "c")],
            false,
        ),
        (
            b"event: x\ndata: {\"a\":\ndata: 1}\n\n",
            &[("x", "{\"a\":\n1}")],
            false,
        ),
        (
            b": PROCESSING\n\n: PROCESSING\n\ndata: 1\n\n",
            &[("message", "1")],
            false,
        ),
        (
            b"id: 7\nretry: 3\nfoo: bar\ndata: 1\n\n",
            &[("message", "1")],
            false,
        ),
        (b"\xef\xbb\xbfdata: 1\n\n", &[("message", "1")], false),
        (b"event: empty\n\ndata: 1\n\n", &[("message", "1")], false),
        (b"data\n\ndata: 1\n\n", &[("message", "1")], false),
        (
            b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n",
            &[("message", "1")],
            true,
        ),
        (b"data: 1\n\ndata: [DONE]", &[("message", "1")], true),
        // A pending event is delivered at the end, half a line is not (case rule 18).
        (
            b"data: 1\n\ndata: 2\n",
            &[("message", "1"), ("message", "2")],
            false,
        ),
        (b"data: 1\n\ndata: 2", &[("message", "1")], false),
        (
            b"data: 1\n\ndata: 2\nda",
            &[("message", "1"), ("message", "2")],
            false,
        ),
        (
            "data: {\"t\":\"a\u{2028}b\u{85}c\"}\n\n".as_bytes(),
            &[("message", "{\"t\":\"a\u{2028}b\u{85}c\"}")],
            false,
        ),
        ("data: 好🙂\n\n".as_bytes(), &[("message", "好🙂")], false),
        (b"data: a\xffb\n\n", &[("message", "a\u{fffd}b")], false),
        (b"", &[], false),
    ];
    for (bytes, expect, done) in rows {
        check(bytes, expect, *done);
    }
}

#[test]
fn input_that_ends_inside_a_character_is_truncated() {
    assert!(decode([&b"data: \xe5\xa5"[..]]).2);
    assert!(!decode([&b"data: abc"[..]]).2);
    assert!(
        !decode([&b"data: \xff"[..]]).2,
        "an invalid byte is no half character"
    );
}

#[test]
fn an_event_over_the_limit_is_an_error_and_holds_little_memory() {
    let small = || DecoderOptions {
        max_event_bytes: 1000,
        ..DecoderOptions::default()
    };
    let mut decoder = Decoder::new(small());
    let mut events = Vec::new();
    decoder.push(b"data: 1\n\n", &mut events).unwrap();
    let chunk = [b'x'; 300];
    let errors = (0..10)
        .filter(|_| decoder.push(&chunk, &mut events).is_err())
        .count();
    assert_eq!((errors, events.len()), (7, 1));

    // Many short lines of one event count together; comments between events do not.
    let mut decoder = Decoder::new(small());
    for _ in 0..1000 {
        decoder.push(b": still here\n", &mut events).unwrap();
    }
    let error = (0..1000).find_map(|_| decoder.push(b"data: 0123456789\n", &mut events).err());
    assert_eq!(
        error.unwrap().to_string(),
        "an event of the stream is larger than 1000 bytes"
    );
}

#[test]
fn encoder_output_is_exact() {
    let mut out = String::new();
    encode_event(Some("text"), "{\"a\":1}", &mut out);
    encode_event(None, "a\r\nb\rc\nd", &mut out);
    encode_comment("ping", &mut out);
    assert_eq!(
        out,
        "event: text\ndata: {\"a\":1}\n\ndata: a\ndata: b\ndata: c\ndata: d\n\n: ping\n\n"
    );
}

proptest! {
    #[test]
    fn decode_inverts_encode(
        events in prop::collection::vec(("[a-z_]{1,8}", "[^\\r\\n]{1,30}(\n[^\\r\\n]{0,9}){0,3}"), 0..6),
        cuts in prop::collection::vec(1_usize..9, 0..40),
    ) {
        prop_assume!(events.iter().all(|(_, data)| data.trim() != "[DONE]"));
        let mut text = String::new();
        for (event, data) in &events {
            encode_event(Some(event), data, &mut text);
            encode_comment("ping", &mut text);
        }
        let mut rest = text.as_bytes();
        let mut chunks = Vec::new();
        for cut in cuts {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            chunks.push(head);
            rest = tail;
        }
        chunks.push(rest);
        prop_assert_eq!(decode(chunks).0, events);
    }

    #[test]
    fn any_bytes_are_read_without_panic_and_alike(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0_usize..200,
    ) {
        let cut = cut.min(bytes.len());
        prop_assert_eq!(decode([&bytes[..cut], &bytes[cut..]]), decode([&bytes[..]]));
    }
}
