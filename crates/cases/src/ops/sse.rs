use std::time::Instant;

use serde_json::{Value, json};
use twopass_wire::sse::{Decoder, DecoderOptions};

use super::values::verdict;
use crate::Verdict;
use crate::case::bytes_of;
use crate::cuts;

/// Reads event-stream bytes in every cutting.
pub(super) fn parse_events(case: &Value) -> Verdict {
    let input = &case["input"];
    let (bytes, own) = bytes_of(input);
    let started = Instant::now();
    let mut first: Option<Value> = None;
    for cutting in cuts::all(bytes.len(), own) {
        let actual = read(case, cuts::pieces(&bytes, &cutting.lens));
        match &first {
            None => first = Some(actual),
            Some(whole) if *whole != actual => {
                return Verdict::Failed(format!(
                    "cut {} it reads otherwise: {actual}",
                    cutting.name
                ));
            }
            Some(_) => {}
        }
    }
    let (mut case, mut actual) = (case.clone(), first.unwrap_or_default());
    if case["expect"]["empty_events_optional"] == true {
        without_empty(&mut case["expect"]);
        without_empty(&mut actual);
    }
    verdict(&case, &actual, started)
}

/// Drops events without data: whether they are told is left open by the case.
fn without_empty(value: &mut Value) {
    if let Some(events) = value["events"].as_array_mut() {
        events.retain(|event| !event["data"].as_str().unwrap_or_default().trim().is_empty());
    }
}

fn read<'p>(case: &Value, pieces: impl Iterator<Item = &'p [u8]>) -> Value {
    let mut options = DecoderOptions {
        end_marker: Some("[DONE]".to_owned()),
        ..DecoderOptions::default()
    };
    if let Some(most) = case["input"]["limits"]["max_event_bytes"].as_u64() {
        options.max_event_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    }
    let mut decoder = Decoder::new(options);
    let mut events = Vec::new();
    for piece in pieces {
        if let Err(error) = decoder.push(piece, &mut events) {
            return json!({"error": {"kind": "event_too_large", "message": error.to_string()}});
        }
    }
    decoder.finish(&mut events);
    let events: Vec<_> = events
        .iter()
        .map(|event| json!({"event": event.event, "data": event.data}))
        .collect();
    json!({"events": events, "done": decoder.is_done(), "truncated": decoder.is_truncated()})
}
