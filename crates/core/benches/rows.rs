//! The texts that are measured, how they are cut, and our parser over them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use twopass_core::chat::{Event, ToolSpec};
use twopass_core::control::{AnswerForm, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::text::JsonLimits;
use twopass_core::tool_parser::{CallRules, ParserLimits, ToolSet, ToolSyntax};

/// The text of one measurement and the dialects that it is written in.
pub struct Row {
    pub name: String,
    pub tools: &'static str,
    pub reasoning: &'static str,
    pub text: String,
    /// The bytes that must come out as reasoning, text or arguments.
    pub n_payload: usize,
}

/// Rows (a) to (d): JSON and XML arguments, prose, reasoning.
pub fn rows() -> Vec<Row> {
    vec![
        json_call("hermes", 50 << 10),
        json_call("kimi_k2", 50 << 10),
        xml_call(48 << 10),
        prose("hermes", 150 << 10),
        prose("qwen3_coder", 150 << 10),
        prose("auto", 150 << 10),
        thought(32 << 10),
    ]
}

/// The same kinds of text, much longer: time must grow as they do.
pub fn long_rows(n_bytes: usize) -> Vec<Row> {
    vec![
        json_call("hermes", n_bytes),
        xml_call(n_bytes),
        prose("hermes", n_bytes),
        thought(n_bytes),
    ]
}

/// Program text, as in the file that an agent writes.
fn code(n_bytes: usize) -> String {
    let line = "    if (a[i] <= b && name != \"x\") { total += f(a[i]); }  // größer\n";
    let mut text = line.repeat(n_bytes / line.len() + 1);
    text.truncate(n_bytes - n_bytes % line.len());
    text
}

/// Paragraphs with a code span and a `<` in each.
fn words(n_bytes: usize) -> String {
    let paragraph = "Whether the bridge holds depends on the river's width, on the wind and on the load \
        that crosses it at once. We measured all three for a year; the wind matters least. As long as \
        width < 40 m, the sum in `load.rs` is right to 2 %, and nothing else needs to be known.\n\n";
    paragraph.repeat(n_bytes / paragraph.len())
}

fn size(n_bytes: usize) -> String {
    if n_bytes >= 1 << 20 {
        format!("{} MB", n_bytes >> 20)
    } else {
        format!("{} KB", n_bytes >> 10)
    }
}

fn json_call(tools: &'static str, n_bytes: usize) -> Row {
    let arguments = json!({"path": "a.c", "text": code(n_bytes)}).to_string();
    let (open, close) = match tools {
        "kimi_k2" => (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>",
            "<|tool_call_end|><|tool_calls_section_end|>",
        ),
        _ => (
            "<tool_call>\n{\"name\": \"write\", \"arguments\": ",
            "}\n</tool_call>",
        ),
    };
    Row {
        name: format!("(a) JSON argument {}, {tools}", size(n_bytes)),
        tools,
        reasoning: "none",
        text: format!("{open}{arguments}{close}"),
        n_payload: arguments.len(),
    }
}

fn xml_call(n_bytes: usize) -> Row {
    let value = code(n_bytes);
    Row {
        name: format!("(b) XML argument {}, qwen3_coder", size(n_bytes)),
        tools: "qwen3_coder",
        reasoning: "none",
        text: format!(
            "<tool_call>\n<function=write>\n<parameter=path>\na.c\n</parameter>\n<parameter=text>\n{value}\n</parameter>\n</function>\n</tool_call>"
        ),
        n_payload: json!({"path": "a.c", "text": value}).to_string().len(),
    }
}

fn prose(tools: &'static str, n_bytes: usize) -> Row {
    let text = words(n_bytes);
    Row {
        name: format!("(c) prose {}, {tools}", size(n_bytes)),
        tools,
        reasoning: "think",
        n_payload: text.len(),
        text,
    }
}

fn thought(n_bytes: usize) -> Row {
    let thought = words(n_bytes);
    Row {
        name: format!("(d) reasoning {}, think", size(n_bytes)),
        tools: "hermes",
        reasoning: "think",
        n_payload: thought.len() + "Yes.".len(),
        text: format!("<think>{thought}</think>Yes."),
    }
}

/// The text in pieces of so many characters; `None`: in one piece.
pub fn cut(text: &str, n_chars: Option<usize>) -> Vec<&str> {
    let Some(n_chars) = n_chars else {
        return vec![text];
    };
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((end, _)) = rest.char_indices().nth(n_chars) {
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// The tool that every call names.
pub fn tool() -> ToolSpec {
    ToolSpec {
        name: "write".to_owned(),
        description: "Writes a file.".to_owned(),
        parameters: json!({"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}, "required": ["path", "text"]}),
    }
}

/// How a row is read; no limit is in the way of long texts.
pub fn options(row: &Row) -> TurnParserOptions {
    let limits = ParserLimits {
        max_block_bytes: 1 << 30,
        arguments: JsonLimits {
            max_bytes: 1 << 30,
            ..JsonLimits::default()
        },
        ..ParserLimits::default()
    };
    TurnParserOptions {
        syntax: TurnSyntax::new(
            ReasoningSyntax::from_name(row.reasoning).expect("a reasoning dialect"),
            ToolSyntax::from_name(row.tools).expect("a tool dialect"),
        ),
        prompt_opened: Some(false),
        thinking_off: false,
        answer_form: AnswerForm::Free,
        calls: CallRules {
            tools: Some(Arc::new(ToolSet::new([tool()]))),
            limits,
            ..CallRules::default()
        },
    }
}

/// Reads the pieces; returns how many bytes of payload were streamed.
pub fn ours(options: &TurnParserOptions, pieces: &[&str]) -> usize {
    let mut parser = TurnParser::new(options.clone());
    let mut events = Vec::new();
    let mut n_payload = 0;
    let mut take = |events: &mut Vec<Event>| {
        for event in events.drain(..) {
            n_payload += match &event {
                Event::TextDelta(text)
                | Event::ReasoningDelta(text)
                | Event::ArgumentsDelta { text, .. } => text.len(),
                _ => 0,
            };
        }
    };
    for piece in pieces {
        parser.push(piece, &mut events);
        take(&mut events);
    }
    parser.finish(&TurnEnd::default(), &mut events);
    take(&mut events);
    n_payload
}

/// The median time of a run: runs for about `budget`, at least once.
pub fn time(budget: Duration, mut run: impl FnMut() -> usize) -> (Duration, usize) {
    let started = Instant::now();
    let mut times = Vec::new();
    loop {
        let begun = Instant::now();
        let result = std::hint::black_box(run());
        times.push(begun.elapsed());
        if started.elapsed() >= budget {
            times.sort_unstable();
            return (times[times.len() / 2], result);
        }
    }
}

/// True if all of a row came out; the spaces of written JSON may differ.
pub fn is_whole(row: &Row, n_payload: usize) -> bool {
    n_payload.abs_diff(row.n_payload) <= 8
}

/// MB/s of so many bytes in this time.
pub fn mb_per_s(n_bytes: usize, time: Duration) -> f64 {
    n_bytes as f64 / 1e6 / time.as_secs_f64()
}
