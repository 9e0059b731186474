//! Streams of very many pieces: four times the pieces take about four times as long.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twopass_core::chat::{Arguments, OpaqueKind, Reply};
use twopass_wire::DecodeContext;

use crate::read::{Format, read_stream};

const N_PIECES: usize = 20_000;
/// Linear work gives 4, quadratic 16.
const MOST_RATIO: u32 = 10;

/// Reads `n` and `4 * n` pieces and compares the times; the answer to the shorter stream.
fn assert_linear(name: &str, format: Format, stream: impl Fn(usize) -> String) -> Reply {
    let time = |text: &str| {
        let started = Instant::now();
        let outcome = read_stream(format, [text.as_bytes()], DecodeContext::default());
        (started.elapsed(), outcome.reply.unwrap())
    };
    let (few, many) = (stream(N_PIECES), stream(4 * N_PIECES));
    let mut last = (Duration::ZERO, Duration::ZERO);
    // A busy machine may disturb one measurement, not all of them.
    for _ in 0..5 {
        let (short, reply) = time(&few);
        let (long, _) = time(&many);
        last = (short, long);
        if long < short * MOST_RATIO {
            return reply;
        }
    }
    panic!("{name}: {last:?} for {N_PIECES} pieces and four times as many");
}

fn chat(deltas: impl Iterator<Item = Value>) -> String {
    let events = deltas.map(|delta| json!({"choices": [{"index": 0, "delta": delta}]}));
    let mut text: String = events.map(|event| format!("data: {event}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    text
}

// Rows G2, G8: entries that come in tens of thousands of pieces are joined once.
#[test]
fn reasoning_details_in_pieces() {
    let reply = assert_linear("reasoning_details", Format::Chat, |n| {
        chat((0..n).map(
            |_| json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "word "}]}),
        ))
    });
    assert_eq!(reply.reasoning.len(), 5 * N_PIECES);
    let mut details = reply.provider_items.iter();
    let detail = details.find(|item| item.kind == OpaqueKind::ReasoningDetail);
    let detail: Value = serde_json::from_str(&detail.unwrap().json).unwrap();
    assert_eq!(detail["text"].as_str().unwrap().len(), 5 * N_PIECES);
}

// Rows J9, M1: a tool that is named in every piece is not read anew with each of them.
#[test]
fn arguments_in_pieces_that_all_name_their_tool() {
    let piece =
        |text: String| json!({"tool_calls": [{"function": {"name": "f", "arguments": text}}]});
    let reply = assert_linear("arguments", Format::Chat, |n| {
        let first = piece("{\"a\":[{}".to_owned());
        let middle = (1..n).map(|_| piece(",{}".to_owned()));
        chat(
            std::iter::once(first)
                .chain(middle)
                .chain([piece("]}".to_owned())]),
        )
    });
    let [call] = reply.tool_calls.as_slice() else {
        panic!("{:?}", reply.tool_calls);
    };
    let expected = format!("{{\"a\":[{}]}}", vec!["{}"; N_PIECES].join(","));
    assert_eq!(call.arguments, Arguments::from_text(&expected).unwrap());
}

#[test]
fn text_in_pieces_on_every_wire() {
    let rows: [(Format, Value, Value, Value); 3] = [
        (
            Format::Responses,
            Value::Null,
            json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "word "}),
            json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}),
        ),
        (
            Format::Anthropic,
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}),
            json!({"type": "message_stop"}),
        ),
        (
            Format::Ollama,
            Value::Null,
            json!({"message": {"content": "word "}, "done": false}),
            json!({"message": {"content": ""}, "done": true, "done_reason": "stop"}),
        ),
    ];
    for (format, first, piece, end) in rows {
        let reply = assert_linear(&format!("{format:?}"), format, |n| {
            let first = Some(&first).filter(|first| !first.is_null());
            let events = first
                .into_iter()
                .chain((0..n).map(|_| &piece))
                .chain([&end]);
            let line = |event: &Value| match format {
                Format::Ollama => format!("{event}\n"),
                _ => format!("data: {event}\n\n"),
            };
            events.map(line).collect()
        });
        assert_eq!(reply.content.len(), 5 * N_PIECES, "{format:?}");
    }
}
