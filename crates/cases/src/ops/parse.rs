use std::time::Instant;

use serde_json::{Value, json};
use twopass_core::chat::{DiagnosticKind, Event, Reply};
use twopass_core::control::{
    AnswerForm, ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax,
};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::text::Utf8Assembler;
use twopass_core::tool_parser::ToolSyntax;

use crate::Verdict;
use crate::case::{bytes_of, call_rules_of, end_of};
use crate::cuts;
use crate::expect::meets;

/// One run of the turn parser.
pub(crate) struct Parsed {
    pub(crate) reply: Reply,
    pub(crate) blocks: Vec<String>,
    pub(crate) text_deltas: Vec<String>,
    pub(crate) elapsed_ms: f64,
}

/// Parses bytes in the given pieces.
fn parse(options: TurnParserOptions, end: &TurnEnd, bytes: &[u8], lens: &[usize]) -> Parsed {
    let mut parser = TurnParser::new(options);
    let mut utf8 = Utf8Assembler::new();
    let mut assembler = ReplyAssembler::new();
    let mut events = Vec::new();
    let mut text_deltas = Vec::new();
    let mut text = String::new();
    let started = Instant::now();
    let mut take = |events: &mut Vec<Event>, assembler: &mut ReplyAssembler| {
        for event in events.drain(..) {
            if let Event::TextDelta(delta) = &event {
                text_deltas.push(delta.clone());
            }
            assembler.handle(&event);
        }
    };
    for piece in cuts::pieces(bytes, lens) {
        text.clear();
        utf8.push(piece, &mut text);
        parser.push(&text, &mut events);
        take(&mut events, &mut assembler);
    }
    text.clear();
    utf8.finish(&mut text);
    parser.push(&text, &mut events);
    let stop_reason = parser.finish(end, &mut events);
    take(&mut events, &mut assembler);
    let elapsed_ms = started.elapsed().as_secs_f64() * 1000.0;
    let blocks = assembler.reasoning_blocks();
    Parsed {
        reply: assembler.finish(stop_reason),
        blocks,
        text_deltas,
        elapsed_ms,
    }
}

/// Runs all cuttings; `judge` says what is wrong with one run. All must give one result.
pub(crate) fn run_cuttings(
    options: &TurnParserOptions,
    end: &TurnEnd,
    bytes: &[u8],
    own: Option<Vec<usize>>,
    judge: impl Fn(&Parsed) -> Result<(), String>,
) -> Verdict {
    let mut whole: Option<Value> = None;
    for cutting in cuts::all(bytes.len(), own) {
        let parsed = parse(options.clone(), end, bytes, &cutting.lens);
        if let Err(why) = judge(&parsed) {
            return Verdict::Failed(format!("{}: {why}", cutting.name));
        }
        let result = outcome(&parsed);
        match &whole {
            None => whole = Some(result),
            Some(whole) if *whole != result => {
                return Verdict::Failed(format!(
                    "{}: other result than whole: {result} instead of {whole}",
                    cutting.name
                ));
            }
            Some(_) => {}
        }
    }
    Verdict::Passed
}

/// A reply in the words of the case files.
fn outcome(parsed: &Parsed) -> Value {
    let reply = &parsed.reply;
    let has = |kind: DiagnosticKind| {
        reply
            .diagnostics
            .iter()
            .any(|diagnostic| diagnostic.kind == kind)
    };
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments.as_object()}))
        .collect();
    let invalid: Vec<Value> = reply
        .invalid_tool_calls
        .iter()
        .map(|call| {
            json!({
                "id": call.id, "name": call.name, "arguments": call.arguments,
                "kind": call.kind.as_str(), "path": call.path, "message": call.message,
            })
        })
        .collect();
    let mut errors = invalid.clone();
    if has(DiagnosticKind::MissingToolCall) {
        errors.push(json!({"kind": "tool_choice_violation"}));
    }
    let mut ids: Vec<&str> = reply
        .tool_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    ids.sort_unstable();
    let n_ids = ids.len();
    ids.dedup();
    json!({
        "thinking": reply.reasoning,
        "thinking_blocks": parsed.blocks,
        "content": reply.content,
        "terminated": !has(DiagnosticKind::UnclosedReasoning),
        "answer_missing": reply.answer_missing(),
        "tool_calls": calls,
        "invalid_tool_calls": invalid,
        "errors": errors,
        "repaired": has(DiagnosticKind::RepairedJson),
        "ids_unique": ids.len() == n_ids && ids.iter().all(|id| !id.is_empty()),
        "finish_reason": reply.stop_reason.as_str(),
        "warnings": reply.diagnostics.iter().map(|diagnostic| diagnostic.kind.as_str()).collect::<Vec<_>>(),
    })
}

fn judge_by(case: &Value) -> impl Fn(&Parsed) -> Result<(), String> {
    let expect = case["expect"].clone();
    move |parsed| {
        let mut actual = outcome(parsed);
        // Exactly as streamed, for cases that compare every character.
        actual["content_exact"] = json!(parsed.text_deltas.concat());
        let answer = expect["content"].as_str().unwrap_or_default();
        actual["no_marker_in_content_deltas"] = json!(no_marker_in_deltas(parsed, answer));
        if let Some(message) = expect.get("message") {
            meets(message, &actual, parsed.elapsed_ms)?;
        }
        let mut rest = expect.clone();
        if let Value::Object(keys) = &mut rest {
            keys.shift_remove("message");
        }
        meets(&rest, &actual, parsed.elapsed_ms)
    }
}

/// True if nothing was streamed as text that is not part of the final answer; what the
/// expected answer holds itself is no piece of a marker.
fn no_marker_in_deltas(parsed: &Parsed, answer: &str) -> bool {
    let is_clean = |delta: &String| {
        let begins = ["<tool", "<"].iter().find(|begin| match **begin {
            "<" => delta.trim_end().ends_with('<'),
            begin => delta.contains(begin),
        });
        begins.is_none_or(|begin| answer.contains(begin))
    };
    parsed.text_deltas.concat().trim() == parsed.reply.content
        && parsed.text_deltas.iter().all(is_clean)
}

pub(crate) fn split(case: &Value) -> Verdict {
    let input = &case["input"];
    let tag = input["tag"].as_str().unwrap_or("auto");
    // `auto` in these cases means both spellings of the XML tag.
    let name = if tag == "auto" { "think_tags" } else { tag };
    let Some(reasoning) = ReasoningSyntax::from_name(name) else {
        return Verdict::Failed(format!("no reasoning dialect `{tag}`"));
    };
    let options = TurnParserOptions {
        syntax: TurnSyntax::new(reasoning, ToolSyntax::none()),
        prompt_opened: input["prompt_opened"].as_bool(),
        thinking_off: input["thinking_enabled"] == false,
        answer_form: AnswerForm::Free,
        ..TurnParserOptions::default()
    };
    let (bytes, own) = bytes_of(input);
    run_cuttings(&options, &end_of(input), &bytes, own, judge_by(case))
}

pub(crate) fn extract(case: &Value) -> Verdict {
    let input = &case["input"];
    let format = input["format"].as_str().unwrap_or("auto");
    let Some(tools) = ToolSyntax::from_name(format) else {
        return Verdict::Failed(format!("no tool dialect `{format}`"));
    };
    let reasoning = ReasoningSyntax::from_name(input["tag"].as_str().unwrap_or("think_tags"));
    let options = TurnParserOptions {
        syntax: TurnSyntax::new(reasoning.unwrap_or_else(ReasoningSyntax::think_tags), tools),
        prompt_opened: prompt_opened(input),
        thinking_off: input["thinking_enabled"] == false,
        answer_form: AnswerForm::Free,
        calls: call_rules_of(input),
    };
    let (bytes, own) = bytes_of(input);
    run_cuttings(&options, &end_of(input), &bytes, own, judge_by(case))
}

/// Whether the prompt ended inside a think block: as the case says, or as its prompt ends.
fn prompt_opened(input: &Value) -> Option<bool> {
    let said = input.get("prompt_opened").and_then(Value::as_bool);
    said.or_else(|| {
        let prompt = input.get("prompt")?.as_str()?.trim_end();
        Some(
            ["<think>", "<thinking>"]
                .iter()
                .any(|tag| prompt.ends_with(tag)),
        )
    })
}

pub(crate) fn split_channels(case: &Value) -> Verdict {
    let input = &case["input"];
    let format = input["format"].as_str().unwrap_or("harmony");
    let Some(tools) = ToolSyntax::from_name(format) else {
        return Verdict::Skipped {
            op: "tool_parser/split_channels".to_owned(),
            reason: format!("no dialect `{format}` yet"),
        };
    };
    let options = TurnParserOptions {
        syntax: TurnSyntax::new(
            ReasoningSyntax::from_name(format).unwrap_or_default(),
            tools,
        ),
        prompt_opened: input["prompt_opened"].as_bool(),
        thinking_off: false,
        answer_form: AnswerForm::Free,
        calls: call_rules_of(input),
    };
    let (bytes, own) = bytes_of(input);
    run_cuttings(&options, &end_of(input), &bytes, own, judge_by(case))
}
