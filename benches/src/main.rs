//! The parser of twopass-core beside the crates `tool-parser`, `reasoning-parser` and
//! `dynamo-parsers-v2`, over the same texts in the same run. Prints the time of each and how
//! many times longer the others take. Exit code 1 if another one is ahead.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml`

#[path = "../../crates/core/benches/rows.rs"]
#[expect(dead_code, reason = "the other program measures long texts as well")]
mod rows;

use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dynamo_parsers_v2::{
    Tool as DynamoTool, UnifiedParserEvent, UnifiedParserOutput, create_unified_parser_for_family,
};
use openai_protocol::common::Tool as OpenAiTool;
use reasoning_parser::ParserFactory as ReasoningFactory;
use rows::{Row, cut, is_whole, mb_per_s, options, ours, rows, time, tool};
use serde_json::json;
use tool_parser::ParserFactory as ToolFactory;

/// What another crate calls the formats of a row; `None` where it has none.
struct Names {
    tool_parser: Option<&'static str>,
    reasoning_parser: Option<&'static str>,
    dynamo: Option<&'static str>,
}

fn names(row: &Row) -> Names {
    let thinks = row.name.starts_with("(d)");
    let (tool_parser, dynamo) = match row.tools {
        "hermes" => (Some("qwen"), thinks.then_some("qwen3")),
        "kimi_k2" => (Some("kimik2"), Some("kimi_k2")),
        "qwen3_coder" => (Some("qwen_xml"), Some("qwen3")),
        _ => (None, None),
    };
    Names {
        tool_parser: tool_parser.filter(|_| !thinks),
        reasoning_parser: thinks.then_some("qwen3"),
        dynamo,
    }
}

/// The result of a future that never waits: these parsers are async in name only.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the parsers wait for nothing"),
    }
}

fn tool_parser(name: &str, pieces: &[&str], tools: &[OpenAiTool]) -> usize {
    let factory = ToolFactory::new();
    let mut parser = factory.registry().create_parser(name).expect("a parser");
    let mut n_payload = 0;
    for piece in pieces {
        let result = now(parser.parse_incremental(piece, tools)).expect("a result");
        n_payload += result.normal_text.len();
        n_payload += result
            .calls
            .iter()
            .map(|call| call.parameters.len())
            .sum::<usize>();
    }
    let rest = parser.get_unstreamed_tool_args().unwrap_or_default();
    n_payload + rest.iter().map(|call| call.parameters.len()).sum::<usize>()
}

fn reasoning_parser(name: &str, pieces: &[&str]) -> usize {
    let factory = ReasoningFactory::new();
    let mut parser = factory.registry().create_parser(name).expect("a parser");
    let mut n_payload = 0;
    for piece in pieces {
        let result = parser.parse_reasoning_streaming_incremental(piece);
        let result = result.expect("a result");
        n_payload += result.normal_text.len() + result.reasoning_text.len();
    }
    let result = parser.flush().expect("a result");
    n_payload + result.normal_text.len() + result.reasoning_text.len()
}

fn dynamo(family: &str, pieces: &[&str], tools: &[DynamoTool]) -> usize {
    let mut parser = create_unified_parser_for_family(family, tools).expect("a parser");
    let payload = |output: &UnifiedParserOutput| {
        let events = output.events.iter();
        events
            .map(|event| match event {
                UnifiedParserEvent::Text(text) | UnifiedParserEvent::Reasoning(text) => text.len(),
                UnifiedParserEvent::ToolCall(call) => call.arguments.len(),
                _ => 0,
            })
            .sum::<usize>()
    };
    let mut n_payload = 0;
    for piece in pieces {
        let mut output = UnifiedParserOutput::default();
        parser.parse_into(piece, &mut output).expect("a result");
        n_payload += payload(&output);
    }
    n_payload + payload(&parser.finish().expect("a result"))
}

/// Runs one row in one cutting; true if nobody is ahead of us.
fn compare(row: &Row, n_chars: Option<usize>) -> bool {
    const BUDGET: Duration = Duration::from_millis(200);
    let spec = tool();
    let openai: OpenAiTool = serde_json::from_value(json!({"type": "function", "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters}})).expect("a tool");
    let dynamo_tool = DynamoTool {
        name: spec.name.clone(),
        description: Some(spec.description.clone()),
        parameters: spec.parameters.clone(),
        strict: None,
    };
    let pieces = cut(&row.text, n_chars);
    let options = options(row);
    let (our_time, n_payload) = time(BUDGET, || ours(&options, &pieces));
    assert!(is_whole(row, n_payload), "{}: {n_payload} bytes", row.name);
    println!(
        "{:<42} {:>8} {:<18} {:>8.1} {:>10.1}",
        row.name,
        n_chars.map_or("whole".to_owned(), |n| format!("{n} chars")),
        "twopass",
        mb_per_s(row.text.len(), our_time),
        our_time.as_nanos() as f64 / pieces.len() as f64,
    );
    let names = names(row);
    let mut ahead = true;
    let mut show = |who: &str, measured: Option<(Duration, usize)>| {
        let Some((time, n_out)) = measured else {
            return;
        };
        let ratio = time.as_secs_f64() / our_time.as_secs_f64();
        ahead &= ratio >= 1.0;
        let note = if is_whole(row, n_out) {
            String::new()
        } else {
            format!("  ({n_out} of {} bytes came out)", row.n_payload)
        };
        println!(
            "{:<51} {who:<18} {:>8.1} {:>10.1} {ratio:>8.1} x{note}",
            "",
            mb_per_s(row.text.len(), time),
            time.as_nanos() as f64 / pieces.len() as f64,
        );
    };
    show(
        "tool-parser",
        names.tool_parser.map(|name| {
            time(BUDGET, || {
                tool_parser(name, &pieces, std::slice::from_ref(&openai))
            })
        }),
    );
    show(
        "reasoning-parser",
        names
            .reasoning_parser
            .map(|name| time(BUDGET, || reasoning_parser(name, &pieces))),
    );
    show(
        "dynamo-parsers-v2",
        names.dynamo.map(|name| {
            time(BUDGET, || {
                dynamo(name, &pieces, std::slice::from_ref(&dynamo_tool))
            })
        }),
    );
    ahead
}

fn main() -> ExitCode {
    println!(
        "{:<42} {:>8} {:<18} {:>8} {:>10} {:>10}",
        "row", "chunks", "parser", "MB/s", "ns/delta", "their time"
    );
    let mut ahead = true;
    for row in rows() {
        for n_chars in [None, Some(64), Some(4)] {
            ahead &= compare(&row, n_chars);
        }
    }
    if ahead {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
