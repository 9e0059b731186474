use std::collections::VecDeque;

use twopass_core::chat::Event;

/// Puts a turn's events in an order in which no call overlaps with anything else, for wires
/// whose blocks do not overlap: while a call is open, all other events wait.
#[derive(Debug, Default)]
pub(crate) struct Linear {
    open: Option<usize>,
    held: VecDeque<Event>,
}

impl Linear {
    /// Takes the next event and appends those whose turn it is. What waits is looked through
    /// once for each call, not for each event.
    pub(crate) fn push(&mut self, event: &Event, out: &mut Vec<Event>) {
        if self.open.is_some() && call_of(event) != self.open {
            self.held.push_back(event.clone());
            return;
        }
        self.give(event.clone(), out);
        while self.open.is_none() {
            let Some(event) = self.held.pop_front() else {
                return;
            };
            self.give(event, out);
            let opened = self.open;
            if opened.is_some() {
                for event in std::mem::take(&mut self.held) {
                    match call_of(&event) == opened {
                        true => self.give(event, out),
                        false => self.held.push_back(event),
                    }
                }
            }
        }
    }

    fn give(&mut self, event: Event, out: &mut Vec<Event>) {
        match &event {
            Event::CallStarted { call_idx, .. } => self.open = Some(*call_idx),
            Event::CallFinished { .. } | Event::CallRejected { .. } => self.open = None,
            _ => {}
        }
        out.push(event);
    }
    /// Appends all that still waits: the turn ended.
    pub(crate) fn finish(&mut self, out: &mut Vec<Event>) {
        self.open = None;
        out.extend(self.held.drain(..));
    }
}

fn call_of(event: &Event) -> Option<usize> {
    match event {
        Event::ArgumentsDelta { call_idx, .. }
        | Event::CallFinished { call_idx, .. }
        | Event::CallRejected { call_idx, .. } => Some(*call_idx),
        _ => None,
    }
}
