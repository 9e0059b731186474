//! The step of the turn parser in answer text, and in a framed output.

use std::sync::Arc;

use super::{
    AnswerForm, BlockReader, BlockRules, ChannelReader, Diagnostic, DiagnosticKind, Event, Input,
    MarkerMatch, Mode, Place, RawStart, Role, Step, TurnParser,
};

/// What to do with a marker in answer text.
pub(super) enum Found {
    /// It was dealt with; go on in the new mode.
    Taken,
    /// It is text.
    Mention,
    /// The next byte decides.
    Wait,
}

impl TurnParser {
    pub(super) fn step_text(&mut self, held: &str, at_end: bool, out: &mut Vec<Event>) -> Step {
        let bytes = held.as_bytes();
        let from = self.pos;
        let mut at = from;
        while at < bytes.len() {
            let run = at;
            at = self.in_text.stops.find(bytes, at);
            if at > run {
                self.context.plain(&bytes[run..at]);
            }
            let Some(&byte) = bytes.get(at) else { break };
            match self.match_text(held, at, at_end) {
                MarkerMatch::Full { idx, len } => {
                    match self.on_text_marker(held, from..at, idx, len, at_end, out) {
                        Found::Taken => return Step::Again,
                        Found::Mention => {
                            self.context.mention(&held[at..at + len]);
                            at += len;
                            continue;
                        }
                        Found::Wait => break,
                    }
                }
                MarkerMatch::Partial => break,
                MarkerMatch::No => {}
            }
            if self.begin_raw(held, from, at, byte, out) {
                return Step::Again;
            }
            self.context.byte(byte);
            at += 1;
        }
        self.show_text(&held[from..at], out);
        self.pos = at;
        Step::Wait
    }

    /// True if the answer is of a demanded form: what stands in its strings is data.
    pub(super) fn is_data(&mut self, held: &str) -> bool {
        let begins = || held[self.pos..].trim_start().starts_with(['{', '[']);
        if self.answer_form == AnswerForm::Asked && !self.shown.any_text && begins() {
            self.answer_form = AnswerForm::Bound;
        }
        self.answer_form == AnswerForm::Bound
    }

    pub(super) fn step_data(&mut self, held: &str, out: &mut Vec<Event>) -> Step {
        self.show_text(&held[self.pos..], out);
        self.pos = held.len();
        Step::Wait
    }

    fn match_text(&self, held: &str, at: usize, at_end: bool) -> MarkerMatch {
        if self.absolute(at) < self.literal_until {
            return MarkerMatch::No;
        }
        self.in_text
            .scanner
            .match_at(&held.as_bytes()[at..], at_end)
    }

    fn on_text_marker(
        &mut self,
        held: &str,
        before: std::ops::Range<usize>,
        idx: usize,
        len: usize,
        at_end: bool,
        out: &mut Vec<Event>,
    ) -> Found {
        let at = before.end;
        let special = self.is_special(at);
        let fences = held.as_bytes()[at] == b'`';
        let in_code = if fences {
            self.context.in_fence() || self.context.prev() == b'`'
        } else {
            self.context.in_code()
        };
        if in_code && !special {
            return Found::Mention;
        }
        let role = self.in_text.roles[idx].clone();
        match role {
            Role::ThinkOpen(pair) => {
                if self.thinking_off || !(special || self.context.at_block_start()) {
                    self.shown.open_mentions += 1;
                    return Found::Mention;
                }
                self.show_text(&held[before], out);
                self.pos = at + len;
                self.enter_reasoning(pair);
                Found::Taken
            }
            Role::ThinkClose(_) => self.on_late_close(held, before, len, at_end, out),
            Role::ToolOpen(blocks) => self.on_tool_open(held, before, len, blocks, out),
            Role::ToolClose => {
                let stray = self.shown.owed_close
                    || special
                    || (self.context.at_block_start() && self.calls.n_started() > 0);
                if !stray || self.tools_off {
                    return Found::Mention;
                }
                self.shown.owed_close = false;
                self.drop_marker(held, before, len, out);
                Found::Taken
            }
            Role::ChannelOpen(kind) => {
                self.show_text(&held[before], out);
                self.pos = at;
                self.channels = Some(ChannelReader::new(kind, false, self.shown.any_text));
                self.mode = Mode::Channels;
                Found::Taken
            }
            Role::AnswerOpen => {
                if !(special || self.context.at_block_start()) || self.thinking_off {
                    return Found::Mention;
                }
                self.shown.answer_open = true;
                self.drop_marker(held, before, len, out);
                Found::Taken
            }
            Role::AnswerClose => {
                if !(special || self.shown.answer_open) {
                    return Found::Mention;
                }
                self.shown.answer_open = false;
                self.drop_marker(held, before, len, out);
                Found::Taken
            }
        }
    }

    fn on_tool_open(
        &mut self,
        held: &str,
        before: std::ops::Range<usize>,
        len: usize,
        blocks: Vec<Arc<BlockRules>>,
        out: &mut Vec<Event>,
    ) -> Found {
        let at = before.end;
        let special = self.is_special(at);
        let fences = held.as_bytes()[at] == b'`';
        let quoted = matches!(self.context.prev(), b'"' | b'\'') || self.context.is_quoting();
        if (quoted && !special) || (fences && !self.context.at_block_start()) {
            return Found::Mention;
        }
        if self.tools_off {
            self.tell_not_allowed(out);
            return Found::Mention;
        }
        let place = match (special, self.context.at_block_start()) {
            (true, _) => Place::Special,
            (false, _) if is_unmistakable(&held[at..at + len]) => Place::Special,
            (false, _) if is_plain_word(&held[at..at + len]) => Place::MidLine,
            (false, true) => Place::BlockStart,
            (false, false) => Place::MidLine,
        };
        self.show_text(&held[before], out);
        let reader = BlockReader::after_open(blocks, place, &held[at..at + len], at + len);
        self.enter_block(reader, at, len, None, out);
        Found::Taken
    }

    /// A closing tag outside a think block.
    fn on_late_close(
        &mut self,
        held: &str,
        before: std::ops::Range<usize>,
        len: usize,
        at_end: bool,
        out: &mut Vec<Event>,
    ) -> Found {
        let at = before.end;
        let prev = self.context.prev();
        if self.thinking_off {
            if self.shown.any_text || !self.context.at_block_edge() {
                return Found::Mention;
            }
            self.drop_marker(held, before, len, out);
            return Found::Taken;
        }
        let is_late =
            self.shown.seen_block || (self.calls.n_started() > 0 && self.prompt_opened.is_some());
        // No block can be open, and prose mentioned an opening tag: this closes the mention.
        let none_open = is_late || self.prompt_opened == Some(false);
        if none_open && self.shown.open_mentions > 0 && !self.is_special(at) {
            self.shown.open_mentions -= 1;
            return Found::Mention;
        }
        if matches!(prev, b'"' | b'\'') {
            match held.as_bytes().get(at + len) {
                Some(&next) if next == prev => return Found::Mention,
                None if !at_end => return Found::Wait,
                _ => {}
            }
        }
        if is_late {
            if prev == b' ' && !self.context.at_line_start() && !self.is_special(at) {
                return Found::Mention;
            }
            let message = "a closing tag without a think block was dropped";
            self.drop_marker(held, before, len, out);
            out.push(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::StrayClose,
                message,
            )));
            return Found::Taken;
        }
        // Row C6: everything so far was reasoning.
        let any_call = self.calls.n_started() > 0 || !self.shown.call_text.is_empty();
        if self.shown.any_text || any_call {
            self.show_text(&held[before], out);
            out.push(Event::Reclassified);
            let calls = std::mem::take(&mut self.shown.call_text);
            if !calls.is_empty() {
                out.push(Event::ReasoningDelta(calls));
            }
            let none = self.calls.start();
            self.calls.restore(none);
        } else {
            self.shown.any_in_block = false;
            self.show_reasoning(&held[before], out);
        }
        let message = "a closing tag came without an opening one: the text before it is reasoning";
        out.push(Event::Diagnostic(Diagnostic::new(
            DiagnosticKind::OrphanClose,
            message,
        )));
        self.pos = at + len;
        self.leave_reasoning(out);
        Found::Taken
    }

    /// Begins a body that has no opening marker, if one may stand here.
    fn begin_raw(
        &mut self,
        held: &str,
        from: usize,
        at: usize,
        byte: u8,
        out: &mut Vec<Event>,
    ) -> bool {
        if self.raw_blocks.blocks.is_empty()
            || self.absolute(at) < self.literal_until
            || !self.context.at_block_start()
            || self.context.in_code()
        {
            return false;
        }
        let at_edge = self.context.at_block_edge();
        let at_line_start = self.context.at_line_start();
        let candidates: Vec<_> = self
            .raw_blocks
            .blocks
            .iter()
            .filter(|block| match block.raw {
                RawStart::No => false,
                RawStart::AnswerStart => at_edge,
                RawStart::LineStart => at_edge || at_line_start,
            })
            .cloned()
            .collect();
        let Some(reader) = BlockReader::raw(candidates, byte, at) else {
            return false;
        };
        self.show_text(&held[from..at], out);
        self.enter_block(reader, at, 0, None, out);
        true
    }

    pub(super) fn step_channels(&mut self, held: &str, at_end: bool, out: &mut Vec<Event>) -> Step {
        if let Some(channels) = &mut self.channels {
            let mut input = Input {
                text: held,
                pos: self.pos,
                at_end,
            };
            channels.read(&mut input, &mut self.calls, out);
            self.pos = input.pos;
        }
        Step::Wait
    }

    fn drop_marker(
        &mut self,
        held: &str,
        before: std::ops::Range<usize>,
        len: usize,
        out: &mut Vec<Event>,
    ) {
        self.pos = before.end + len;
        self.show_text(&held[before], out);
        self.context.after_block();
    }

    pub(super) fn tell_not_allowed(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.shown.told_not_allowed, true) {
            let message = "a call was written although none was allowed; it is kept as text";
            out.push(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::CallNotAllowed,
                message,
            )));
        }
    }

    /// Shows answer text. White space before the first of it is framing.
    pub(super) fn show_text(&mut self, text: &str, out: &mut Vec<Event>) {
        let text = if self.shown.any_text {
            text
        } else {
            text.trim_start()
        };
        if !text.is_empty() {
            self.shown.any_text = true;
            out.push(Event::TextDelta(text.to_owned()));
        }
    }
}

/// True for a marker that nobody writes by chance.
fn is_unmistakable(marker: &str) -> bool {
    [
        "<|",
        "|>",
        "<｜",
        "]<]",
        "[TOOL_CALLS]",
        "<TOOLCALL>",
        ":tool_call",
        "_function_call>",
        "longcat",
    ]
    .iter()
    .any(|part| marker.contains(part))
}

/// True for a marker that is an ordinary word: only what follows can show a call.
fn is_plain_word(marker: &str) -> bool {
    marker
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic())
}
