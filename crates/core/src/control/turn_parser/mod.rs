//! One reply, read as it comes: reasoning, answer text and tool calls in order.
//!
//! ```text
//!            opener at a block start          closing marker
//!   Text  ---------------------------> Reasoning -----------> Text
//!   Text  -- call marker --> Block -- its end --> Text
//!   Reasoning -- call marker --> Block (a draft) -- its end --> AfterDraft
//!   AfterDraft -- end of output --> the draft counts; anything else: it was reasoning
//! ```
//!
//! What is not yet certain (a block whose marker may be a mention, a call inside an open
//! think block) is a *draft*: its events wait, and its text can be given back. Everything
//! else is shown at once; at most a marker less one byte is held.
//!
//! Cost: each byte is looked at once in its mode. Text of a broken draft is read a second
//! time, for which the input pays at a fixed rate, so that the whole stays linear.

mod assembler;
mod context;
mod block_steps;
mod markers;
mod reasoning_steps;
mod steps;
mod syntax;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::chat::{Diagnostic, DiagnosticKind, Event, StopReason, ToolChoice};
use crate::text::{Marker, MarkerMatch};
use crate::tool_parser::{
    BlockReader, BlockRules, CallRules, Calls, ChannelReader, Input, Place, Progress, RawStart,
    Snapshot, ToolSyntax,
};

pub use assembler::ReplyAssembler;
use context::TextContext;
use markers::{Markers, Role};
pub use syntax::TurnSyntax;

/// How one reply is read.
#[derive(Debug, Clone, Default)]
pub struct TurnParserOptions {
    /// The think tags and the call formats.
    pub syntax: TurnSyntax,
    /// Whether the prompt ended inside a think block; `None` if that is not known.
    pub prompt_opened: Option<bool>,
    /// True if thinking was switched off for the request: then nothing is split.
    pub thinking_off: bool,
    /// Whether a form was asked for: no tag or call is looked for in it.
    pub answer_form: AnswerForm,
    /// What may be called, ids that are taken, limits.
    pub calls: CallRules,
}

/// What is known of the answer's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerForm {
    /// Any text.
    #[default]
    Free,
    /// JSON was asked for: what begins as an object or an array is data to its end.
    Asked,
    /// A grammar binds it: all of it is data.
    Bound,
}

/// How a reply ended.
#[derive(Debug, Clone, Default)]
pub struct TurnEnd {
    /// The reason that the backend gave.
    pub stop_reason: StopReason,
    /// The stop string that ended it, which is not part of the text.
    pub stop_string: Option<String>,
}

/// Reads one reply. Never fails; belongs to one reply and is not used again.
pub struct TurnParser {
    syntax: TurnSyntax,
    prompt_opened: Option<bool>,
    thinking_off: bool,
    answer_form: AnswerForm,
    tools_off: bool,
    in_text: Arc<Markers>,
    in_reasoning: Arc<Markers>,
    raw_blocks: Arc<ToolSyntax>,
    calls: Calls,
    /// Text that is not yet dealt with, from the start of the open draft or block on.
    held: String,
    pos: usize,
    /// Bytes of the reply before `held`.
    dropped_bytes: u64,
    special: VecDeque<Range<u64>>,
    /// Markers that begin before this place are text.
    literal_until: u64,
    mode: Mode,
    context: TextContext,
    reader: Option<BlockReader>,
    channels: Option<ChannelReader>,
    block_at: usize,
    draft: Option<Draft>,
    shown: Shown,
    finished: Option<StopReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Text,
    Reasoning { pair: Option<usize> },
    Block,
    AfterDraft,
    Channels,
}

/// A block that may still turn out to be text.
struct Draft {
    at: usize,
    marker_len: usize,
    /// The think block that it stands in, if it does.
    in_reasoning: Option<Option<usize>>,
    events: Vec<Event>,
    /// Events that were judged, and whether one of them shows a broken call.
    n_judged: usize,
    broken: bool,
    snapshot: Snapshot,
}

/// What was shown so far, as far as it decides what comes next.
#[derive(Default)]
struct Shown {
    any_text: bool,
    any_in_block: bool,
    seen_block: bool,
    label_pending: bool,
    owed_close: bool,
    answer_open: bool,
    told_not_allowed: bool,
    /// Opening tags in prose that no closing tag has followed yet.
    open_mentions: usize,
    prev: u8,
    /// Text of calls that a late closing tag would make part of the reasoning.
    call_text: String,
}

#[derive(PartialEq, Eq)]
enum Step {
    Again,
    Wait,
}

impl TurnParser {
    /// A parser at the start of a reply.
    #[must_use]
    pub fn new(options: TurnParserOptions) -> Self {
        let TurnParserOptions {
            syntax,
            prompt_opened,
            thinking_off,
            answer_form,
            calls,
        } = options;
        let reasoning = syntax.reasoning();
        let tools_off = calls.choice == ToolChoice::None;
        let splits = !thinking_off || reasoning.bare_close_when_off;
        let channel = syntax.tools().channel;
        let channels = channel
            .filter(|_| answer_form != AnswerForm::Bound || prompt_opened == Some(true))
            .map(|kind| ChannelReader::new(kind, prompt_opened == Some(true), false));
        let mode = match prompt_opened {
            _ if channels.is_some() => Mode::Channels,
            Some(true) if !thinking_off && !reasoning.pairs.is_empty() => {
                Mode::Reasoning { pair: None }
            }
            _ => Mode::Text,
        };
        Self {
            in_text: syntax.in_text(splits),
            in_reasoning: syntax.in_reasoning(!tools_off),
            prompt_opened,
            thinking_off,
            answer_form,
            tools_off,
            raw_blocks: match tools_off {
                true => Arc::default(),
                false => syntax.raw_blocks(),
            },
            syntax,
            calls: Calls::new(calls),
            held: String::new(),
            pos: 0,
            dropped_bytes: 0,
            special: VecDeque::new(),
            literal_until: 0,
            mode,
            context: TextContext::new(),
            reader: None,
            channels,
            block_at: 0,
            draft: None,
            shown: Shown {
                seen_block: matches!(mode, Mode::Reasoning { .. }),
                label_pending: matches!(mode, Mode::Reasoning { .. }),
                ..Shown::default()
            },
            finished: None,
        }
    }

    /// Takes more text; appends to `out` what it means.
    pub fn push(&mut self, text: &str, out: &mut Vec<Event>) {
        if self.finished.is_some() || text.is_empty() {
            return;
        }
        self.calls.note_input(text.len());
        self.read_on(text, false, out);
    }

    /// Takes text that is known to come from a special token: a marker in it is never a
    /// mention.
    pub fn push_special(&mut self, text: &str, out: &mut Vec<Event>) {
        let from = self.dropped_bytes + self.held.len() as u64;
        self.special.push_back(from..from + text.len() as u64);
        self.push(text, out);
    }

    /// Ends the reply: nothing is held back any longer. Returns why the turn ended, which
    /// the calls decide. Further calls change nothing.
    pub fn finish(&mut self, end: &TurnEnd, out: &mut Vec<Event>) -> StopReason {
        if let Some(reason) = &self.finished {
            return reason.clone();
        }
        let restored = end
            .stop_string
            .as_deref()
            .filter(|text| self.is_own_close(text));
        if let Some(text) = restored {
            self.push(text, out);
        }
        let cut = end.stop_reason == StopReason::Length;
        self.calls.note_end(cut);
        if cut {
            self.drop_cut_close();
        }
        self.read_on("", true, out);
        self.calls.settle(cut, out);
        let in_channel = self
            .channels
            .as_ref()
            .is_some_and(ChannelReader::in_reasoning);
        if matches!(self.mode, Mode::Reasoning { .. }) || in_channel {
            let message = "the output ended inside the think block";
            out.push(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::UnclosedReasoning,
                message,
            )));
        }
        let has_calls = self.calls.n_finished() > 0;
        if !has_calls && self.calls.rules().choice.forces_call() {
            let message = "a tool call was required and none came";
            out.push(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::MissingToolCall,
                message,
            )));
        }
        let reason = match &end.stop_reason {
            StopReason::Length | StopReason::ContentFilter | StopReason::Cancelled => {
                end.stop_reason.clone()
            }
            _ if has_calls => StopReason::ToolCalls,
            StopReason::ToolCalls => StopReason::EndTurn,
            StopReason::StopSequence(_) if restored.is_some() => StopReason::EndTurn,
            other => other.clone(),
        };
        self.finished = Some(reason.clone());
        reason
    }

    /// Drops the beginning of a stray closing tag that the cap cut: whole, it would have been
    /// dropped too. A shorter beginning than `</thi` may be anything and stays text.
    fn drop_cut_close(&mut self) {
        const TELLING_BYTES: usize = 5;
        let cut = &self.held.as_bytes()[self.pos..];
        let begins = |marker: &Marker| {
            let start = marker.as_str().as_bytes().get(..cut.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(cut))
        };
        let may_be_stray = self.mode == Mode::Text
            && self.shown.seen_block
            && !matches!(self.context.prev(), b'"' | b'\'' | b' ')
            && !self.context.in_code();
        let mut rows = self
            .in_text
            .scanner
            .markers()
            .iter()
            .zip(&self.in_text.roles);
        if may_be_stray
            && cut.len() >= TELLING_BYTES
            && rows.any(|(marker, role)| matches!(role, Role::ThinkClose(_)) && begins(marker))
        {
            self.held.truncate(self.pos);
        }
    }

    /// True inside a think block.
    #[must_use]
    pub fn in_reasoning(&self) -> bool {
        matches!(self.mode, Mode::Reasoning { .. } | Mode::AfterDraft)
            || self
                .draft
                .as_ref()
                .is_some_and(|draft| draft.in_reasoning.is_some())
            || self
                .channels
                .as_ref()
                .is_some_and(ChannelReader::in_reasoning)
    }

    /// True inside a call block.
    #[must_use]
    pub fn in_call(&self) -> bool {
        self.mode == Mode::Block
    }

    /// Bytes that are held back.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len() - self.pos
    }

    /// The longest marker that text can be held back for, in bytes.
    #[must_use]
    pub fn longest_marker_bytes(&self) -> usize {
        self.in_text
            .scanner
            .max_len()
            .max(self.in_reasoning.scanner.max_len())
    }

    fn is_own_close(&self, text: &str) -> bool {
        let roles = self
            .in_text
            .scanner
            .markers()
            .iter()
            .zip(&self.in_text.roles);
        let mut closes =
            roles.filter(|(_, role)| matches!(role, Role::ToolClose | Role::ThinkClose(_)));
        closes.any(|(marker, _)| marker.as_str() == text)
    }

    /// Reads what is held and `more`, and holds what is still needed of it.
    fn read_on(&mut self, more: &str, at_end: bool, out: &mut Vec<Event>) {
        if self.held.is_empty() {
            // Most text is shown as it comes and never copied here.
            self.run(more, at_end, out);
            let done = self.done_bytes();
            self.forget(&more[..done]);
            self.held.push_str(&more[done..]);
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        held.push_str(more);
        self.run(&held, at_end, out);
        let done = self.done_bytes();
        // What is moved is paid for by what goes.
        if done >= held.len() - done {
            self.forget(&held[..done]);
            held.drain(..done);
        }
        self.held = held;
    }

    fn run(&mut self, held: &str, at_end: bool, out: &mut Vec<Event>) {
        loop {
            let step = match self.mode {
                Mode::Text => match self.is_data(held) {
                    true => self.step_data(held, out),
                    false => self.step_text(held, at_end, out),
                },
                Mode::Reasoning { pair } => self.step_reasoning(held, pair, at_end, out),
                Mode::Block => self.step_block(held, at_end, out),
                Mode::AfterDraft => self.step_after_draft(held, at_end, out),
                Mode::Channels => self.step_channels(held, at_end, out),
            };
            if step == Step::Wait {
                return;
            }
        }
    }

    /// How much of the text nobody needs any more: the open reader and draft know places in
    /// it by their offset.
    fn done_bytes(&self) -> usize {
        let channels = self.channels.as_ref();
        let is_kept = self.draft.is_some()
            || channels.is_some_and(ChannelReader::keeps_text)
            || (self.mode == Mode::Block && !self.reader_skips());
        if is_kept { 0 } else { self.pos }
    }

    /// Takes note that this text, the start of what is held, is dropped.
    fn forget(&mut self, dropped: &str) {
        let done = dropped.len();
        if self.mode == Mode::Block && self.block_at < done {
            self.keep_call_text(&dropped[self.block_at..]);
        }
        self.dropped_bytes += done as u64;
        self.pos -= done;
        self.block_at = self.block_at.saturating_sub(done);
        while self
            .special
            .front()
            .is_some_and(|range| range.end <= self.dropped_bytes)
        {
            self.special.pop_front();
        }
    }

    fn reader_skips(&self) -> bool {
        self.reader.as_ref().is_some_and(BlockReader::is_skipping)
    }

    fn absolute(&self, at: usize) -> u64 {
        self.dropped_bytes + at as u64
    }

    fn is_special(&self, at: usize) -> bool {
        let at = self.absolute(at);
        self.special.iter().any(|range| range.contains(&at))
    }
}
