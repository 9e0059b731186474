//! Running a turn through the parser, in any cutting.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use twopass_core::chat::{DiagnosticKind, Event, Reply, StopReason, ToolChoice, ToolSpec};
use twopass_core::control::{
    AnswerForm, ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax,
};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::text::Utf8Assembler;
use twopass_core::tool_parser::{CallRules, ToolSet, ToolSyntax};

/// Options of a turn: dialect names and tools.
pub(crate) fn options(reasoning: &str, tools: &str, specs: Vec<ToolSpec>) -> TurnParserOptions {
    TurnParserOptions {
        syntax: TurnSyntax::new(
            ReasoningSyntax::from_name(reasoning).unwrap(),
            ToolSyntax::from_name(tools).unwrap(),
        ),
        prompt_opened: Some(false),
        thinking_off: false,
        answer_form: AnswerForm::Free,
        calls: CallRules {
            tools: Some(Arc::new(ToolSet::new(specs))),
            choice: ToolChoice::Auto,
            taken_ids: HashSet::new(),
            ..CallRules::default()
        },
    }
}

pub(crate) fn end(stop: &str, stop_string: Option<&str>) -> TurnEnd {
    let stop_reason = match stop {
        "length" => StopReason::Length,
        "tool_calls" => StopReason::ToolCalls,
        _ => StopReason::EndTurn,
    };
    TurnEnd {
        stop_reason,
        stop_string: stop_string.map(str::to_owned),
    }
}

/// One run: the merged events, and the reply that they make.
pub(crate) struct Run {
    pub(crate) events: Vec<Event>,
    pub(crate) reply: Reply,
    pub(crate) blocks: Vec<String>,
    pub(crate) most_held: usize,
}

/// Parses bytes in pieces of the given lengths; what is left over comes as one last piece.
pub(crate) fn run(options: &TurnParserOptions, end: &TurnEnd, bytes: &[u8], lens: &[usize]) -> Run {
    let mut parser = TurnParser::new(options.clone());
    let mut utf8 = Utf8Assembler::new();
    let mut events = Vec::new();
    let mut rest = bytes;
    let mut most_held = 0;
    let all = [bytes.len()];
    for &len in lens.iter().chain(&all) {
        let (piece, after) = rest.split_at(len.min(rest.len()));
        rest = after;
        let mut text = String::new();
        utf8.push(piece, &mut text);
        parser.push(&text, &mut events);
        if !parser.in_call() && !parser.in_reasoning() {
            most_held = most_held.max(parser.held_bytes());
        }
    }
    let mut text = String::new();
    utf8.finish(&mut text);
    parser.push(&text, &mut events);
    let stop = parser.finish(end, &mut events);
    // Row M1: finishing twice changes nothing.
    let n_events = events.len();
    assert_eq!(parser.finish(end, &mut events), stop);
    assert_eq!(events.len(), n_events);
    let mut assembler = ReplyAssembler::new();
    for event in &events {
        assembler.handle(event);
    }
    let blocks = assembler.reasoning_blocks();
    Run {
        reply: assembler.finish(stop),
        events: merged(events),
        blocks,
        most_held,
    }
}

/// Joins adjacent deltas of one kind.
fn merged(events: Vec<Event>) -> Vec<Event> {
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
                    call_idx: idx,
                    text: more,
                },
            ) if *call_idx == *idx => text.push_str(more),
            _ => out.push(event),
        }
    }
    out
}

/// Cuttings of a short text: every single cut, byte by byte, small chunks, seeded random.
pub(crate) fn cuttings(len: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (1..len.min(400)).map(|at| vec![at]).collect();
    all.extend([1, 2, 3, 5, 7, 13].map(|bytes| vec![bytes; len / bytes]));
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for _ in 0..8 {
        let mut lens = Vec::new();
        let mut left = len;
        while left > 0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let piece = usize::try_from(1 + state % 17).unwrap().min(left);
            lens.push(piece);
            left -= piece;
        }
        all.push(lens);
    }
    all
}

/// Runs every cutting, holds them to one result (row M1) and returns it.
pub(crate) fn run_all(options: &TurnParserOptions, end: &TurnEnd, text: &str) -> Run {
    let whole = run(options, end, text.as_bytes(), &[]);
    let was_reclassified = |run: &Run| run.events.contains(&Event::Reclassified);
    for lens in cuttings(text.len()) {
        let cut = run(options, end, text.as_bytes(), &lens);
        assert_eq!(
            cut.reply,
            whole.reply,
            "cut {:?} of {text:?}",
            &lens[..lens.len().min(8)]
        );
        // `Reclassified` may move text that had been shown; nothing else may differ.
        if !was_reclassified(&cut) && !was_reclassified(&whole) {
            assert_eq!(
                cut.events,
                whole.events,
                "cut {:?} of {text:?}",
                &lens[..lens.len().min(8)]
            );
        }
    }
    whole
}

/// A reply in the words of the data files.
pub(crate) fn outcome(run: &Run) -> Value {
    let reply = &run.reply;
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments.as_object()}))
        .collect();
    let errors: Vec<Value> = reply
        .invalid_tool_calls
        .iter()
        .map(|call| json!({"kind": call.kind.as_str(), "name": call.name, "path": call.path, "id": call.id}))
        .collect();
    let kinds: Vec<&str> = reply
        .diagnostics
        .iter()
        .map(|diagnostic| diagnostic.kind.as_str())
        .collect();
    json!({
        "reasoning": reply.reasoning,
        "blocks": run.blocks,
        "content": reply.content,
        "calls": calls,
        "errors": errors,
        "diagnostics": kinds,
        "stop": reply.stop_reason.as_str(),
        "closed": !reply.diagnostics.iter().any(|d| d.kind == DiagnosticKind::UnclosedReasoning),
    })
}
