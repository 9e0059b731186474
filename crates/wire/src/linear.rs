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
    /// Takes the next event and appends those whose turn it is.
    pub(crate) fn push(&mut self, event: &Event, out: &mut Vec<Event>) {
        self.held.push_back(event.clone());
        loop {
            let next = match self.open {
                None => self.held.pop_front(),
                Some(idx) => self
                    .held
                    .iter()
                    .position(|event| call_of(event) == Some(idx))
                    .and_then(|at| self.held.remove(at)),
            };
            let Some(event) = next else { return };
            match &event {
                Event::CallStarted { call_idx, .. } => self.open = Some(*call_idx),
                Event::CallFinished { .. } | Event::CallRejected { .. } => self.open = None,
                _ => {}
            }
            out.push(event);
        }
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
