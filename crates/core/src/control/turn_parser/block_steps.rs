//! The steps of the turn parser in a call block, and what becomes of a block that was none.

use super::{
    BlockReader, Diagnostic, DiagnosticKind, Draft, Event, Input, MarkerMatch, Mode, Place,
    Progress, Role, Step, TurnParser,
};
use crate::text::prefix_within;

impl TurnParser {
    pub(super) fn enter_block(
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
    pub(super) fn after_draft_read(
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
    pub(super) fn give_back(&mut self, held: &str, out: &mut Vec<Event>) {
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
    pub(super) fn draft_was_reasoning(
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

    /// Keeps the text of a call while a closing tag could still make it part of a thought.
    pub(super) fn keep_call_text(&mut self, text: &str) {
        let may_be_thought =
            self.prompt_opened.is_none() && !self.shown.seen_block && !self.thinking_off;
        if may_be_thought && !self.syntax.reasoning().pairs.is_empty() {
            let most = self.calls.limits().max_block_bytes;
            let left = most.saturating_sub(self.shown.call_text.len());
            self.shown.call_text.push_str(prefix_within(text, left));
        }
    }
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
