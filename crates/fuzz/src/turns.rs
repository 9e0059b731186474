//! The turn parser with each dialect of tool calls.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use twopass_core::chat::{Arguments, Event, Reply, StopReason, ToolCall, ToolChoice, ToolSpec};
use twopass_core::control::{
    AnswerForm, ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax,
};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::text::Utf8Assembler;
use twopass_core::tool_parser::{
    Body, CallRules, DIALECTS, RawStart, ToolDialect, ToolSet, ToolSyntax,
};

use crate::Target;
use crate::random::{Random, pieces};

/// Letters that no marker holds: where they go shows whether text is lost.
const WITNESSES: [char; 4] = ['Ж', 'Щ', 'Ю', 'Я'];

/// Markup and text that counts in every dialect.
const PARTS: [&str; 44] = [
    "<think>",
    "</think>",
    "<thinking>",
    "</THINK >",
    "\n",
    "\n\n",
    " ",
    "word ",
    "a sentence. ",
    "`",
    "```",
    "```json\n",
    "\"",
    "'",
    "\\",
    "> ",
    "<",
    "😀",
    "f",
    "write",
    "unknown_tool",
    "{\"name\": \"f\", ",
    "\"arguments\": ",
    "{\"x\": 1}",
    "{\"s\": \"a\\n</tool_call>\"}",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ", ",
    ":",
    "=",
    "x=1",
    "s='a'",
    "null",
    "<|channel|>",
    "<|message|>",
    "<|start|>assistant",
    "<|end|>",
    "<|open|>",
    "<|sep|>",
    "<![CDATA[",
];

/// One dialect, or `auto`.
struct Turns {
    name: &'static str,
    row: Option<&'static ToolDialect>,
    parts: Vec<&'static str>,
}

pub(crate) fn targets() -> Vec<Box<dyn Target>> {
    let auto = Turns {
        name: "auto",
        row: None,
        parts: DIALECTS.iter().flat_map(markers).collect(),
    };
    let rows = DIALECTS.iter().map(|row| Turns {
        name: row.name,
        row: Some(row),
        parts: markers(row),
    });
    let all = rows.chain([auto]);
    all.map(|target| Box::new(target) as Box<dyn Target>)
        .collect()
}

fn markers(row: &'static ToolDialect) -> Vec<&'static str> {
    let mut parts: Vec<&str> = row.opens.iter().chain(row.closes).copied().collect();
    match row.body {
        Body::Xml(form) => parts.extend([
            form.call_open,
            form.name_end,
            form.call_close,
            form.param_open,
            form.key_end,
            form.value_open,
            form.param_close,
        ]),
        Body::Named {
            call_open,
            separators,
            call_close,
            ..
        } => {
            parts.extend([call_open, call_close]);
            parts.extend(separators);
        }
        Body::Gemma { quote } => parts.extend([quote, "call:f{"]),
        Body::Json { frame, .. } => parts.extend([frame.0, frame.1]),
        Body::Python { .. } => parts.extend(["f(x=1)", "None"]),
        Body::Channels(_) => parts.extend([
            "analysis",
            "commentary to=functions.f ",
            "<|constrain|>json",
            "<|call|>",
            "final",
            "<|close|>",
            "tools",
            "call tool=\"f\" index=\"1\"",
            "argument key=\"x\" type=\"number\"",
            "response",
            "think",
            "<|message_model|>",
            "<|content_invoke_tool_json|>",
            "<|content_text|>",
            "<|content_thinking|>",
            "<|end_message|>",
            " to=f",
            "<|constrain|>xml",
            "<rfl:parameter name=\"x\">",
            "</rfl:parameter>",
            " to=self",
            "<atem:function_calls>",
            "<atem:invoke name=\"f\">",
            "<atem:parameter name=\"x\">",
            "</atem:parameter>",
            "</atem:invoke>",
            "<|eom|>",
        ]),
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, parameters| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters,
    };
    vec![
        tool(
            "f",
            json!({"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}, "o": {"type": "object"}}}),
        ),
        tool(
            "write",
            json!({"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}),
        ),
    ]
}

impl Turns {
    /// Calls as the dialect writes them.
    fn calls(&self, random: &mut Random) -> String {
        let row = self.row.unwrap_or_else(|| random.pick(DIALECTS));
        let calls: Vec<ToolCall> = (0..1 + random.below(2))
            .map(|idx| {
                let mut object = Map::new();
                let text = (0..random.below(4)).map(|_| *random.pick(&PARTS));
                object.insert("s".to_owned(), Value::from(text.collect::<String>()));
                if random.one_in(2) {
                    object.insert("o".to_owned(), json!({"k": [1, null, "}"]}));
                }
                ToolCall {
                    id: format!("call_{idx}"),
                    name: (*random.pick(&["f", "write", "other"])).to_owned(),
                    arguments: Arguments::from_object(object),
                }
            })
            .collect();
        row.write_calls(&calls)
    }

    fn options(&self, random: &mut Random) -> TurnParserOptions {
        let reasoning = self.row.map_or("auto", |row| row.reasoning);
        TurnParserOptions {
            syntax: TurnSyntax::new(
                ReasoningSyntax::from_name(reasoning).unwrap_or_else(ReasoningSyntax::auto),
                ToolSyntax::from_name(self.name).unwrap_or_default(),
            ),
            prompt_opened: *random.pick(&[None, Some(false), Some(true)]),
            thinking_off: random.one_in(8),
            answer_form: AnswerForm::Free,
            calls: CallRules {
                tools: (!random.one_in(8)).then(|| Arc::new(ToolSet::new(tools()))),
                choice: random
                    .pick(&[
                        ToolChoice::Auto,
                        ToolChoice::Auto,
                        ToolChoice::Required,
                        ToolChoice::Only("f".to_owned()),
                        ToolChoice::None,
                    ])
                    .clone(),
                ..CallRules::default()
            },
        }
    }

    /// True if text can be held only for a marker.
    fn holds_markers_only(&self) -> bool {
        self.row
            .is_some_and(|row| row.raw == RawStart::No && !matches!(row.body, Body::Channels(_)))
    }

    fn is_framed(&self) -> bool {
        self.row
            .is_none_or(|row| matches!(row.body, Body::Channels(_)))
    }
}

/// One run.
struct Run {
    events: Vec<Event>,
    reply: Reply,
    most_held: usize,
}

fn run(options: &TurnParserOptions, end: &TurnEnd, bytes: &[u8], lens: &[usize]) -> Run {
    let mut parser = TurnParser::new(options.clone());
    let mut utf8 = Utf8Assembler::new();
    let mut events = Vec::new();
    let mut text = String::new();
    let mut most_held = 0;
    for piece in pieces(bytes, lens) {
        text.clear();
        utf8.push(piece, &mut text);
        parser.push(&text, &mut events);
        if !parser.in_call() && !parser.in_reasoning() {
            most_held = most_held.max(parser.held_bytes());
        }
    }
    text.clear();
    utf8.finish(&mut text);
    parser.push(&text, &mut events);
    let stop = parser.finish(end, &mut events);
    let mut assembler = ReplyAssembler::new();
    events.iter().for_each(|event| assembler.handle(event));
    Run {
        events,
        reply: assembler.finish(stop),
        most_held,
    }
}

impl Target for Turns {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn input(&self, random: &mut Random) -> Vec<u8> {
        let mut text = String::new();
        for _ in 0..1 + random.below(12) {
            match random.below(6) {
                0 => text.push_str(&self.calls(random)),
                1 | 2 if !self.parts.is_empty() => text.push_str(random.pick::<&str>(&self.parts)),
                3 if !text.is_empty() => {
                    // A cut in the middle of what stands there.
                    let keep = text.chars().count() - random.below(8).min(text.chars().count());
                    text = text.chars().take(keep).collect();
                }
                _ => text.push_str(random.pick::<&str>(&PARTS)),
            }
        }
        for witness in WITNESSES {
            if random.one_in(2) {
                let at = random.below(text.chars().count() + 1);
                let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
                text.insert(at, witness);
            }
        }
        text.into_bytes()
    }

    fn check(&self, input: &[u8], random: &mut Random) -> Result<(), String> {
        let options = self.options(random);
        let end = TurnEnd {
            stop_reason: random
                .pick(&[StopReason::EndTurn, StopReason::Length])
                .clone(),
            stop_string: None,
        };
        let setting = format!(
            "prompt_opened {:?}, thinking_off {}, tools {}, choice {:?}, {:?}",
            options.prompt_opened,
            options.thinking_off,
            options.calls.tools.is_some(),
            options.calls.choice,
            end.stop_reason
        );
        let fail = |what: String| Err(format!("{what} ({setting})"));
        let whole = run(&options, &end, input, &[input.len()]);
        let singles = vec![1; input.len()];
        for lens in [singles, random.cuts(input.len())] {
            let cut = run(&options, &end, input, &lens);
            if cut.reply != whole.reply {
                return fail(format!(
                    "in {} pieces: {} instead of {}",
                    lens.len(),
                    brief(&cut.reply),
                    brief(&whole.reply)
                ));
            }
            let longest = TurnParser::new(options.clone()).longest_marker_bytes();
            if self.holds_markers_only() && cut.most_held > longest {
                return fail(format!(
                    "{} bytes were held, the longest marker has {longest}",
                    cut.most_held
                ));
            }
        }
        let text = String::from_utf8_lossy(input);
        if let Some(what) = invented(&whole, &text).or_else(|| self.lost(&whole, &text)) {
            return fail(what);
        }
        if random.one_in(400) {
            return is_linear(&options, &end, &text).or_else(fail);
        }
        Ok(())
    }
}

/// What can differ between two replies to one text.
fn brief(reply: &Reply) -> String {
    let calls: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|call| (&call.id, &call.name))
        .collect();
    let invalid: Vec<_> = reply
        .invalid_tool_calls
        .iter()
        .map(|call| (&call.id, call.kind.as_str(), &call.arguments))
        .collect();
    let notes: Vec<_> = reply
        .diagnostics
        .iter()
        .map(|note| note.kind.as_str())
        .collect();
    format!(
        "reasoning {:?}, content {:?}, calls {calls:?}, invalid {invalid:?}, {notes:?}, {:?}",
        reply.reasoning, reply.content, reply.stop_reason
    )
}

/// Shown text that the input does not hold, in this order.
fn invented(run: &Run, input: &str) -> Option<String> {
    if run.events.contains(&Event::Reclassified) {
        return None;
    }
    let mut rest = input.chars();
    let shown = run.events.iter().filter_map(|event| match event {
        Event::TextDelta(text) | Event::ReasoningDelta(text) => Some(text.as_str()),
        _ => None,
    });
    let is_there = |c: char, rest: &mut std::str::Chars<'_>| rest.any(|other| other == c);
    for c in shown.flat_map(str::chars) {
        if !is_there(c, &mut rest) {
            return Some(format!("{c:?} was shown and is not there"));
        }
    }
    None
}

impl Turns {
    /// Text outside of calls that is neither answer nor reasoning.
    fn lost(&self, run: &Run, input: &str) -> Option<String> {
        let reply = &run.reply;
        let any_call = !reply.tool_calls.is_empty() || !reply.invalid_tool_calls.is_empty();
        if self.is_framed() || any_call {
            return None;
        }
        WITNESSES
            .into_iter()
            .filter(|&witness| input.contains(witness))
            .find(|&witness| !reply.content.contains(witness) && !reply.reasoning.contains(witness))
            .map(|witness| format!("{witness:?} is lost: {}", brief(reply)))
    }
}

/// Eight times the text must take about eight times as long.
fn is_linear(options: &TurnParserOptions, end: &TurnEnd, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let time = |n_bytes: usize| {
        let text = text.repeat(n_bytes / text.len() + 1);
        let lens = vec![4; text.len() / 4 + 1];
        let started = busy_time();
        run(options, end, text.as_bytes(), &lens);
        busy_time().saturating_sub(started)
    };
    let mut last = (Duration::ZERO, Duration::ZERO);
    // A busy machine may disturb one measurement, not all of them.
    for _ in 0..3 {
        last = (time(16 << 10), time(128 << 10));
        if last.1 < (last.0 * 24).max(Duration::from_millis(100)) {
            return Ok(());
        }
    }
    Err(format!("{:?} for 16 KB, {:?} for 128 KB", last.0, last.1))
}

/// Processor time of this thread where the system tells it, so that waiting for a busy machine
/// does not count; else time on the clock.
fn busy_time() -> Duration {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = stat.and_then(|stat| stat.split(' ').next()?.parse().ok());
    ns.map_or_else(
        || STARTED.get_or_init(Instant::now).elapsed(),
        Duration::from_nanos,
    )
}
