//! The steps of the turn parser, one for each mode.

use std::sync::Arc;

use super::{
    BlockReader, BlockRules, ChannelReader, Diagnostic, DiagnosticKind, Draft, Event, Input,
    MarkerMatch, Mode, Place, Progress, RawStart, Role, Step, TextContext, TurnParser,
};
use crate::text::prefix_within;

/// What to do with a marker in answer text.
enum Found {
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
        // The prompt opened no block, and prose mentioned an opening tag: this closes the
        // mention.
        if self.prompt_opened == Some(false) && self.shown.open_mentions > 0 && !self.is_special(at)
        {
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
        let is_late =
            self.shown.seen_block || (self.calls.n_started() > 0 && self.prompt_opened.is_some());
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

    pub(super) fn step_reasoning(
        &mut self,
        held: &str,
        pair: Option<usize>,
        at_end: bool,
        out: &mut Vec<Event>,
    ) -> Step {
        if self.shown.label_pending && !self.skip_label(held, pair, at_end) {
            return Step::Wait;
        }
        let bytes = held.as_bytes();
        let from = self.pos;
        let mut at = from;
        while at < bytes.len() {
            let run = at;
            at = self.in_reasoning.stops.find(bytes, at);
            if at > run {
                self.shown.prev = bytes[at - 1];
            }
            if at == bytes.len() {
                break;
            }
            if self.absolute(at) >= self.literal_until {
                match self.in_reasoning.scanner.match_at(&bytes[at..], at_end) {
                    MarkerMatch::Partial => break,
                    MarkerMatch::Full { idx, len } => {
                        match self.on_reasoning_marker(held, from..at, idx, len, pair, at_end, out)
                        {
                            Found::Taken => return Step::Again,
                            Found::Wait => break,
                            Found::Mention => {
                                at += len;
                                self.shown.prev = bytes[at - 1];
                                continue;
                            }
                        }
                    }
                    MarkerMatch::No => {}
                }
            }
            self.shown.prev = bytes[at];
            at += 1;
        }
        self.show_reasoning(&held[from..at], out);
        self.pos = at;
        Step::Wait
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the state of one step, used at one place"
    )]
    fn on_reasoning_marker(
        &mut self,
        held: &str,
        before: std::ops::Range<usize>,
        idx: usize,
        len: usize,
        pair: Option<usize>,
        at_end: bool,
        out: &mut Vec<Event>,
    ) -> Found {
        let at = before.end;
        let ticked = self.shown.prev == b'`';
        let role = self.in_reasoning.roles[idx].clone();
        match role {
            Role::ThinkOpen(idx) => {
                // The prompt opened the block and the model opens it again.
                let again = pair.is_none()
                    && !self.shown.any_in_block
                    && held[before.clone()].trim().is_empty();
                if !again {
                    return Found::Mention;
                }
                self.pos = at + len;
                self.mode = Mode::Reasoning { pair: Some(idx) };
                Found::Taken
            }
            Role::ThinkClose(idx) => {
                if pair.is_some_and(|pair| pair != idx) {
                    return Found::Mention;
                }
                if ticked && !self.is_special(at) {
                    match held.as_bytes().get(at + len) {
                        Some(b'`') => return Found::Mention,
                        None if !at_end => return Found::Wait,
                        _ => {}
                    }
                }
                self.show_reasoning(&held[before], out);
                self.pos = at + len;
                self.leave_reasoning(out);
                Found::Taken
            }
            Role::ToolOpen(blocks) => {
                if ticked && !self.is_special(at) {
                    return Found::Mention;
                }
                // Only a whole call counts here, so the strict reading of a mention is right.
                let place = if self.is_special(at) {
                    Place::Special
                } else {
                    Place::MidLine
                };
                self.show_reasoning(&held[before], out);
                let reader = BlockReader::after_open(blocks, place, &held[at..at + len], at + len);
                self.enter_block(reader, at, len, Some(pair), out);
                Found::Taken
            }
            Role::ToolClose | Role::AnswerOpen | Role::AnswerClose | Role::ChannelOpen(_) => {
                Found::Mention
            }
        }
    }

    /// Drops the label line of a block; false if more text is needed.
    fn skip_label(&mut self, held: &str, pair: Option<usize>, at_end: bool) -> bool {
        let label = match pair {
            Some(pair) => self.reasoning.pairs[pair].label,
            None => self.reasoning.pairs.iter().find_map(|pair| pair.label),
        };
        let Some(label) = label else {
            self.shown.label_pending = false;
            return true;
        };
        let rest = &held.as_bytes()[self.pos..];
        let known = rest.len().min(label.len());
        if rest[..known] == label.as_bytes()[..known] {
            let after = &rest[known..];
            match after.first() {
                None if !at_end => return false,
                Some(b'\n') => self.pos += known + 1,
                Some(&byte) if self.in_reasoning.stops.contains(byte) => self.pos += known,
                None if known == label.len() => self.pos += known,
                _ => {}
            }
        }
        self.shown.label_pending = false;
        true
    }

    pub(super) fn step_block(&mut self, held: &str, at_end: bool, out: &mut Vec<Event>) -> Step {
        let Some(mut reader) = self.reader.take() else {
            self.mode = Mode::Text;
            return Step::Again;
        };
        let mut input = Input {
            text: held,
            pos: self.pos,
            at_end,
        };
        let progress = match &mut self.draft {
            Some(draft) => reader.read(&mut input, &mut self.calls, &mut draft.events),
            None => reader.read(&mut input, &mut self.calls, out),
        };
        self.pos = input.pos;
        let draft_in_reasoning = self.draft.as_ref().and_then(|draft| draft.in_reasoning);
        if let Some(pair) = draft_in_reasoning {
            return self.after_draft_read(held, reader, progress, pair, out);
        }
        if progress == Progress::NotACall {
            self.give_back(held, out);
            return Step::Again;
        }
        if (reader.is_committed() || progress != Progress::Need)
            && let Some(draft) = self.draft.take()
        {
            out.extend(draft.events);
        }
        match progress {
            Progress::Ended { owed_close } => {
                self.keep_call_text(&held[self.block_at..self.pos]);
                self.shown.owed_close = owed_close;
                self.context.after_block();
                self.mode = Mode::Text;
                Step::Again
            }
            Progress::Need | Progress::NotACall | Progress::Broken => {
                self.reader = Some(reader);
                Step::Wait
            }
        }
    }

    /// A draft inside a think block was read on.
    fn after_draft_read(
        &mut self,
        held: &str,
        reader: BlockReader,
        progress: Progress,
        pair: Option<usize>,
        out: &mut Vec<Event>,
    ) -> Step {
        let broken = reader.is_skipping() || self.draft.as_mut().is_some_and(Draft::is_broken);
        match progress {
            Progress::Need if !broken => {
                self.reader = Some(reader);
                Step::Wait
            }
            Progress::Ended { .. } if !broken => {
                self.mode = Mode::AfterDraft;
                Step::Again
            }
            _ => {
                self.draft_was_reasoning(held, pair, true, out);
                Step::Again
            }
        }
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

    pub(super) fn step_after_draft(
        &mut self,
        held: &str,
        at_end: bool,
        out: &mut Vec<Event>,
    ) -> Step {
        let Some(pair) = self.draft.as_ref().and_then(|draft| draft.in_reasoning) else {
            self.mode = Mode::Text;
            return Step::Again;
        };
        let bytes = held.as_bytes();
        while bytes.get(self.pos).is_some_and(u8::is_ascii_whitespace) {
            self.pos += 1;
        }
        if self.pos == bytes.len() {
            if !at_end {
                return Step::Wait;
            }
            // Case rule 8: a whole call at the very end closes the block and counts.
            if let Some(draft) = self.draft.take() {
                out.push(Event::ReasoningBlockEnd);
                let message = "the turn ended in a call inside the think block: the call counts";
                out.push(Event::Diagnostic(Diagnostic::new(
                    DiagnosticKind::EndedInThought,
                    message,
                )));
                out.extend(draft.events);
            }
            self.context.after_block();
            self.mode = Mode::Text;
            return Step::Wait;
        }
        match self
            .in_reasoning
            .scanner
            .match_at(&bytes[self.pos..], at_end)
        {
            MarkerMatch::Partial => return Step::Wait,
            MarkerMatch::Full { idx, len } => {
                if let Role::ToolOpen(blocks) = self.in_reasoning.roles[idx].clone() {
                    self.reader = Some(BlockReader::after_open(
                        blocks,
                        Place::MidLine,
                        &held[self.pos..self.pos + len],
                        self.pos + len,
                    ));
                    self.pos += len;
                    self.mode = Mode::Block;
                    return Step::Again;
                }
            }
            MarkerMatch::No => {}
        }
        self.draft_was_reasoning(held, pair, false, out);
        Step::Again
    }

    /// The draft was no call: its text is answer text, read again without its marker.
    fn give_back(&mut self, held: &str, out: &mut Vec<Event>) {
        self.mode = Mode::Text;
        let Some(draft) = self.draft.take() else {
            return;
        };
        self.calls.restore(draft.snapshot);
        let read_to = self.pos;
        self.literal_until = self.absolute(draft.at + draft.marker_len.max(1));
        self.pos = draft.at;
        if !self.calls.may_reread(read_to - draft.at) {
            self.context.mention(&held[draft.at..read_to]);
            self.show_text(&held[draft.at..read_to], out);
            self.pos = read_to;
        }
    }

    /// The draft was reasoning. `reread`: a closing tag may stand in it.
    fn draft_was_reasoning(
        &mut self,
        held: &str,
        pair: Option<usize>,
        reread: bool,
        out: &mut Vec<Event>,
    ) {
        self.mode = Mode::Reasoning { pair };
        let Some(draft) = self.draft.take() else {
            return;
        };
        self.calls.restore(draft.snapshot);
        let read_to = self.pos;
        if reread && self.calls.may_reread(read_to - draft.at) {
            self.literal_until = self.absolute(draft.at + draft.marker_len);
            self.pos = draft.at;
        } else {
            self.show_reasoning(&held[draft.at..read_to], out);
            self.shown.prev = held.as_bytes()[read_to.saturating_sub(1)];
        }
    }

    fn enter_block(
        &mut self,
        reader: BlockReader,
        at: usize,
        marker_len: usize,
        in_reasoning: Option<Option<usize>>,
        out: &mut Vec<Event>,
    ) {
        // What follows may be given back, and must not take the call before it along.
        self.calls.settle(false, out);
        self.pos = at + marker_len;
        self.block_at = at;
        self.reader = Some(reader);
        self.mode = Mode::Block;
        self.draft = Some(Draft {
            at,
            marker_len,
            in_reasoning,
            n_judged: 0,
            broken: false,
            events: Vec::new(),
            snapshot: self.calls.snapshot(),
        });
    }

    fn enter_reasoning(&mut self, pair: usize) {
        self.mode = Mode::Reasoning { pair: Some(pair) };
        self.shown.seen_block = true;
        self.shown.any_in_block = false;
        self.shown.label_pending = true;
        self.shown.prev = 0;
    }

    fn leave_reasoning(&mut self, out: &mut Vec<Event>) {
        out.push(Event::ReasoningBlockEnd);
        self.mode = Mode::Text;
        self.shown.seen_block = true;
        self.shown.any_in_block = false;
        self.context = TextContext::new();
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

    /// Keeps the text of a call while a closing tag could still make it part of a thought.
    pub(super) fn keep_call_text(&mut self, text: &str) {
        let may_be_thought =
            self.prompt_opened.is_none() && !self.shown.seen_block && !self.thinking_off;
        if may_be_thought && !self.reasoning.pairs.is_empty() {
            let most = self.calls.limits().max_block_bytes;
            let left = most.saturating_sub(self.shown.call_text.len());
            self.shown.call_text.push_str(prefix_within(text, left));
        }
    }

    fn tell_not_allowed(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.shown.told_not_allowed, true) {
            let message = "a call was written although none was allowed; it is kept as text";
            out.push(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::CallNotAllowed,
                message,
            )));
        }
    }

    /// Shows answer text. White space before the first of it is framing.
    fn show_text(&mut self, text: &str, out: &mut Vec<Event>) {
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

    /// Shows reasoning. White space before the first of a block is framing.
    fn show_reasoning(&mut self, text: &str, out: &mut Vec<Event>) {
        let text = if self.shown.any_in_block {
            text
        } else {
            text.trim_start()
        };
        if !text.is_empty() {
            self.shown.any_in_block = true;
            out.push(Event::ReasoningDelta(text.to_owned()));
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

impl Draft {
    /// True if a call of the draft was not whole. Each event is looked at once.
    fn is_broken(&mut self) -> bool {
        use crate::chat::CallErrorKind::{
            ArgumentsTooLarge, MalformedArguments, TruncatedToolCall,
        };
        self.broken |= self.events[self.n_judged..]
            .iter()
            .any(|event| match event {
                Event::CallRejected { call, .. } => {
                    matches!(
                        call.kind,
                        TruncatedToolCall | MalformedArguments | ArgumentsTooLarge
                    )
                }
                _ => false,
            });
        self.n_judged = self.events.len();
        self.broken
    }
}
