//! What must hold for each dialect by its name, one after the other.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Map, Value, json};
use twopass_core::chat::{Arguments, Event, ToolCall};
use twopass_core::control::TurnParser;
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::tool_parser::{Body, ChannelKind, DIALECTS, RawStart, ToolDialect};

use crate::harness::{end, options, run};
use crate::round_trip::{calls, reads_back, tool_of};

/// Checks each dialect with values of its own strategy, and says which one failed.
fn for_each_dialect<S: Strategy>(
    n_cases: u32,
    strategy: impl Fn(&'static ToolDialect) -> S,
    check: impl Fn(&'static ToolDialect, S::Value) -> Result<(), TestCaseError>,
) {
    for row in DIALECTS {
        let mut runner = TestRunner::new(ProptestConfig {
            cases: n_cases,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let checked = runner.run(&strategy(row), |value| check(row, value));
        assert!(checked.is_ok(), "{}: {checked:?}", row.name);
    }
}

/// A whole turn as a well-behaved model writes it.
#[derive(Debug, Clone)]
struct Turn {
    thought: String,
    prose: String,
    calls: Vec<ToolCall>,
}

/// Words that hold no marker of any dialect.
fn words() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "plan",
        "is",
        "a",
        "天気",
        "😀",
        "Ω.",
        "one,",
        "two\nlines",
        "x < y",
        "\"quoted\"",
    ]);
    proptest::collection::vec(word, 0..8).prop_map(|words| words.join(" "))
}

fn turn() -> impl Strategy<Value = Turn> {
    (words(), words(), calls()).prop_map(|(thought, prose, calls)| Turn {
        thought,
        prose,
        calls,
    })
}

/// How a framed format writes its thought and its answer, and what stands between messages.
fn frames(kind: ChannelKind) -> (&'static str, &'static str, &'static str, &'static str) {
    match kind {
        ChannelKind::Harmony | ChannelKind::Beam => (
            "<|channel|>analysis<|message|>",
            "<|channel|>final<|message|>",
            "<|end|>",
            "<|start|>assistant",
        ),
        ChannelKind::Muse => (
            " to=self<|message|>",
            " to=user<|message|>",
            "<|eom|>",
            "<|start|>assistant",
        ),
        ChannelKind::Inkling => (
            "<|message_model|><|content_thinking|>",
            "<|message_model|><|content_text|>",
            "<|end_message|>",
            "",
        ),
        ChannelKind::KimiK3 => ("<|open|>think<|sep|>", "<|open|>response<|sep|>", "", ""),
    }
}

impl Turn {
    /// What of the turn the dialect has a place for: a body without a marker stands first.
    fn fitted(mut self, row: &ToolDialect) -> Self {
        if row.raw == RawStart::AnswerStart {
            self.prose.clear();
        }
        if !matches!(row.body, Body::Channels(_)) && pairs_of(row).pairs.is_empty() {
            self.thought.clear();
        }
        self
    }

    fn written(&self, row: &ToolDialect) -> String {
        let calls = row.write_calls(&self.calls);
        if let Body::Channels(kind) = row.body {
            let (thought, text, close, between) = frames(kind);
            let framed = |open: &str, text: &str| {
                let close = match kind {
                    ChannelKind::KimiK3 => open.replace("open", "close"),
                    _ => close.to_owned(),
                };
                (!text.is_empty()).then(|| format!("{open}{text}{close}"))
            };
            let parts = [
                framed(thought, &self.thought),
                framed(text, &self.prose),
                Some(calls),
            ];
            let parts: Vec<_> = parts.into_iter().flatten().collect();
            return parts.join(between);
        }
        let mut out = String::new();
        if !self.thought.is_empty() {
            let pair = &pairs_of(row).pairs[0];
            let label = pair.label.map(|label| format!("{label}\n"));
            let label = label.unwrap_or_default();
            out.push_str(&format!(
                "{}{label}{}{}\n",
                pair.open[0], self.thought, pair.close[0]
            ));
        }
        if !self.prose.is_empty() {
            out.push_str(&format!("{}\n", self.prose));
        }
        out + &calls
    }
}

fn pairs_of(row: &ToolDialect) -> ReasoningSyntax {
    ReasoningSyntax::from_name(row.reasoning).unwrap()
}

fn squashed(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

// Rows C7, E11, E18, M1: what a turn says comes out as thought, answer and calls, nothing is
// lost, nothing is added, however it is cut; outside of calls only a marker's beginning is held.
#[test]
fn m1_turns_in_every_dialect() {
    let cuts = proptest::collection::vec(1_usize..9, 0..40);
    let cuts = std::rc::Rc::new(cuts);
    for_each_dialect(
        24,
        |row| (turn().prop_map(|turn| turn.fitted(row)), cuts.clone()),
        |row, (turn, lens)| {
            let text = turn.written(row);
            let tools = turn.calls.iter().map(tool_of).collect();
            let options = options(row.reasoning, row.name, tools);
            let end = end("stop", None);
            let whole = run(&options, &end, text.as_bytes(), &[]);
            let reply = &whole.reply;
            prop_assert_eq!(
                squashed(&reply.reasoning),
                squashed(&turn.thought),
                "{}",
                text
            );
            prop_assert_eq!(squashed(&reply.content), squashed(&turn.prose), "{}", text);
            prop_assert!(reply.invalid_tool_calls.is_empty(), "{:?} {}", reply, text);
            let read: Vec<_> = reply
                .tool_calls
                .iter()
                .map(|call| (&call.name, call.arguments.as_object()))
                .collect();
            let written: Vec<_> = turn
                .calls
                .iter()
                .map(|call| (&call.name, call.arguments.as_object()))
                .collect();
            prop_assert_eq!(read, written, "{}", text);
            for lens in [lens, vec![1; text.len()]] {
                let cut = run(&options, &end, text.as_bytes(), &lens);
                prop_assert_eq!(&cut.events, &whole.events, "{}", text);
                prop_assert_eq!(&cut.reply, &whole.reply, "{}", text);
                let longest = TurnParser::new(options.clone()).longest_marker_bytes();
                if row.raw == RawStart::No && !matches!(row.body, Body::Channels(_)) {
                    prop_assert!(cut.most_held < longest, "{} of {longest}", cut.most_held);
                }
            }
            Ok(())
        },
    );
}

/// Markup of the dialect, whole and cut, words, and one letter that no marker holds.
pub(crate) fn soup(row: &'static ToolDialect) -> impl Strategy<Value = String> {
    let common = [
        "<think>",
        "</think>",
        "{\"name\": \"f\", ",
        "\"arguments\": {\"x\": 1}}",
        "[",
        "]",
        "{",
        "}",
        "f",
        "(",
        "x=1",
        ")",
        "\"",
        "'",
        "\\",
        "`",
        "```",
        "\n",
        " ",
        "word ",
        "> ",
        "<",
        "😀",
        ":",
        ",",
        "<function=f>",
        "<parameter=x>",
        "</parameter>",
        "</function>",
        "<|channel|>analysis<|message|>",
        "<|end|>",
        "<|sep|>",
        "call:f{",
        "Ж",
    ];
    let mut pieces: Vec<String> = common.iter().map(|piece| (*piece).to_owned()).collect();
    for marker in row.opens.iter().chain(row.closes) {
        let half = marker.chars().count() / 2;
        pieces.push((*marker).to_owned());
        pieces.push(marker.chars().take(half).collect());
    }
    let example = ToolCall {
        id: String::new(),
        name: "f".to_owned(),
        arguments: Arguments::from_text("{\"x\": 1, \"s\": \"a\"}").unwrap(),
    };
    let written = row.write_calls(&[example]);
    let half = written.chars().count() / 2;
    pieces.push(written.chars().take(half).collect());
    pieces.push(written);
    proptest::collection::vec(proptest::sample::select(pieces), 0..24)
        .prop_map(|pieces| pieces.concat())
}

// Rows M1, M7: whatever is written, every cut gives the same, and without a call, good or bad,
// no letter is lost.
#[test]
fn m1_m7_soup_in_every_dialect() {
    let tool = tool_of(&ToolCall {
        id: String::new(),
        name: "f".to_owned(),
        arguments: Arguments::from_text("{\"x\": 1, \"s\": \"a\"}").unwrap(),
    });
    for_each_dialect(
        48,
        |row| {
            (
                soup(row),
                proptest::collection::vec(1_usize..9, 0..40),
                any::<bool>(),
            )
        },
        |row, (text, lens, is_cut)| {
            let options = options(row.reasoning, row.name, vec![tool.clone()]);
            let end = end(if is_cut { "length" } else { "stop" }, None);
            let whole = run(&options, &end, text.as_bytes(), &[]);
            for lens in [lens, vec![1; text.len()]] {
                let cut = run(&options, &end, text.as_bytes(), &lens);
                prop_assert_eq!(&cut.reply, &whole.reply, "{:?}", text);
            }
            let reply = &whole.reply;
            let is_framed = matches!(row.body, Body::Channels(_));
            let any_call = !reply.tool_calls.is_empty() || !reply.invalid_tool_calls.is_empty();
            if !is_framed && !any_call && !whole.events.contains(&Event::Reclassified) {
                let shown =
                    reply.content.matches('Ж').count() + reply.reasoning.matches('Ж').count();
                prop_assert_eq!(shown, text.matches('Ж').count(), "{:?} {:?}", text, reply);
            }
            Ok(())
        },
    );
}

/// A call with one argument.
fn call(name: &str, value: Value) -> ToolCall {
    ToolCall {
        id: String::new(),
        name: name.to_owned(),
        arguments: Arguments::from_object(Map::from_iter([("x".to_owned(), value)])),
    }
}

// Row E18: names of every form that services allow, the largest integers, deep nesting, and the
// dialect's own markers as data.
#[test]
fn e18_hard_values_in_every_dialect() {
    let nested = |depth: usize| {
        (0..depth).fold(json!(1), |inner, level| match level % 2 {
            0 => json!([inner]),
            _ => json!({"k": inner}),
        })
    };
    let long_name = "a".repeat(64);
    for row in DIALECTS {
        for name in [
            "f",
            "get-weather_2",
            "fs.read",
            "CamelCase",
            long_name.as_str(),
        ] {
            reads_back(
                row,
                &[call(name, json!("v")), call(name, json!("w"))],
                false,
            );
        }
        for value in [
            json!(i64::MIN),
            json!(i64::MAX),
            json!(9_223_372_036_854_775_808_u64),
            json!(u64::MAX),
            json!([u64::MAX, {"k": i64::MIN}]),
            nested(50),
        ] {
            reads_back(row, &[call("f", value)], false);
        }
        // An element has no way to write its own end.
        if !matches!(row.body, Body::Xml(_) | Body::Channels(_)) {
            let markers: String = row.opens.iter().chain(row.closes).copied().collect();
            reads_back(
                row,
                &[call("f", json!(markers)), call("f", json!("b"))],
                true,
            );
        }
    }
}

// Rows E16, M1: four times the text takes about four times as long, up to several megabytes.
#[test]
fn m1_linear_in_every_dialect() {
    const SHORT_BYTES: usize = 1 << 20;
    let turn = Turn {
        thought: "plan of two\nlines".to_owned(),
        prose: "Some words of an answer, and some more of them.".to_owned(),
        calls: vec![
            call("f", json!("some text")),
            call("f", json!([1, {"k": null}])),
        ],
    };
    let time = |row: &ToolDialect, text: &str| {
        let mut tool = tool_of(&turn.calls[0]);
        tool.parameters = json!({"type": "object"});
        let options = options(row.reasoning, row.name, vec![tool]);
        let lens = vec![64; text.len() / 64];
        let started = Instant::now();
        run(&options, &end("stop", None), text.as_bytes(), &lens);
        started.elapsed()
    };
    for row in DIALECTS {
        let unit = turn.clone().fitted(row).written(row) + "\n";
        let short = unit.repeat(SHORT_BYTES / unit.len());
        let long = unit.repeat(4 * SHORT_BYTES / unit.len());
        let mut last = (Duration::ZERO, Duration::ZERO);
        // A busy machine may disturb one measurement, not all of them.
        let is_linear = (0..5).any(|_| {
            last = (time(row, &short), time(row, &long));
            last.1 < last.0 * 10
        });
        assert!(is_linear, "{}: {last:?} for 1 MB and 4 MB", row.name);
    }
}
