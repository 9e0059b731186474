//! The step of the turn parser in a think block.

use super::steps::Found;
use super::{BlockReader, Event, MarkerMatch, Mode, Place, Role, Step, TextContext, TurnParser};

impl TurnParser {
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
    pub(super) fn on_reasoning_marker(
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
    pub(super) fn skip_label(&mut self, held: &str, pair: Option<usize>, at_end: bool) -> bool {
        let label = match pair {
            Some(pair) => self.syntax.reasoning().pairs[pair].label,
            None => self
                .syntax
                .reasoning()
                .pairs
                .iter()
                .find_map(|pair| pair.label),
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

    pub(super) fn enter_reasoning(&mut self, pair: usize) {
        self.mode = Mode::Reasoning { pair: Some(pair) };
        self.shown.seen_block = true;
        self.shown.open_mentions = 0;
        self.shown.any_in_block = false;
        self.shown.label_pending = true;
        self.shown.prev = 0;
    }

    pub(super) fn leave_reasoning(&mut self, out: &mut Vec<Event>) {
        out.push(Event::ReasoningBlockEnd);
        self.mode = Mode::Text;
        self.shown.seen_block = true;
        self.shown.any_in_block = false;
        self.context = TextContext::new();
    }

    /// Shows reasoning. White space before the first of a block is framing.
    pub(super) fn show_reasoning(&mut self, text: &str, out: &mut Vec<Event>) {
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
