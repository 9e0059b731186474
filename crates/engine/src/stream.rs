//! The way from the engine thread to the reader of one turn.
//!
//! Bounded: a stream that is `output_tokens` ahead of its reader is full and sits out until
//! the reader has caught up. Texts that wait are joined, so a reader that is a little late
//! gets larger pieces instead of more of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};

use twopass_core::chat::TokenLogprob;
use twopass_core::control::Phase;

use crate::inbox::Inbox;
use crate::request::{Outcome, Output};

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    is_cancelled: AtomicBool,
    /// True while a prompt chunk of this stream is being computed: cancelling then aborts
    /// the step.
    is_prefilling: AtomicBool,
    inbox: Arc<Inbox>,
    limit_tokens: u32,
}

#[derive(Debug, Default)]
struct State {
    outputs: VecDeque<Output>,
    waiting_tokens: u32,
    /// The engine sits this stream out until the reader takes something.
    is_stalled: bool,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wake_reader(&self, state: &mut State) {
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        self.changed.notify_all();
    }
}

/// More of a turn's text, as [`Output::Text`] has it.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) n_tokens: u32,
    pub(crate) phase: Phase,
    pub(crate) logprobs: Vec<TokenLogprob>,
}

/// The engine's end.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
    /// It counts among those that run and wait.
    has_place: AtomicBool,
}

/// A pair of ends.
pub(crate) fn channel(inbox: Arc<Inbox>, limit_tokens: u32) -> (Sender, Generation) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
        is_cancelled: AtomicBool::new(false),
        is_prefilling: AtomicBool::new(false),
        inbox,
        limit_tokens,
    });
    let sender = Sender {
        shared: Arc::clone(&shared),
        has_place: AtomicBool::new(false),
    };
    (sender, Generation { shared })
}

impl Sender {
    /// Appends text, joined to what waits if the phase is the same.
    pub(crate) fn send_text(&self, piece: Piece) {
        if piece.text.is_empty() {
            return;
        }
        self.shared.with(|state| {
            state.waiting_tokens += piece.n_tokens.max(1);
            match state.outputs.back_mut() {
                Some(Output::Text {
                    text,
                    n_tokens,
                    phase,
                    logprobs,
                }) if *phase == piece.phase => {
                    text.push_str(&piece.text);
                    *n_tokens += piece.n_tokens;
                    logprobs.extend(piece.logprobs);
                }
                _ => state.outputs.push_back(Output::Text {
                    text: piece.text,
                    n_tokens: piece.n_tokens,
                    phase: piece.phase,
                    logprobs: piece.logprobs,
                }),
            }
            self.shared.wake_reader(state);
        });
    }

    /// Counts this turn until it ends.
    pub(crate) fn hold_place(&self) {
        self.has_place.store(true, Ordering::Relaxed);
    }

    fn give_place_back(&self) {
        if self.has_place.swap(false, Ordering::Relaxed) {
            self.shared.inbox.give_back();
        }
    }

    /// Ends the turn.
    pub(crate) fn send_done(&self, outcome: Outcome) {
        // Who hears of the end may ask for the place.
        self.give_place_back();
        self.shared.with(|state| {
            state.outputs.push_back(Output::Done(Box::new(outcome)));
            state.is_closed = true;
            self.shared.wake_reader(state);
        });
    }

    /// True if the reader is too far behind; it will wake the engine when it has caught up.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.with(|state| {
            let is_full = state.waiting_tokens >= self.shared.limit_tokens;
            state.is_stalled |= is_full;
            is_full
        })
    }

    /// True if the reader has gone or does not want more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Acquire)
    }

    /// Tells whether the coming step computes prompt tokens of this stream.
    pub(crate) fn set_prefilling(&self, is_prefilling: bool) {
        self.shared
            .is_prefilling
            .store(is_prefilling, Ordering::Release);
    }
}

impl Drop for Sender {
    /// A reader never waits for an engine that is gone.
    fn drop(&mut self) {
        self.give_place_back();
        self.shared.with(|state| {
            state.is_closed = true;
            self.shared.wake_reader(state);
        });
    }
}

/// A turn being generated. Dropping it cancels; the slot is free at the next step.
#[derive(Debug)]
pub struct Generation {
    shared: Arc<Shared>,
}

impl Generation {
    /// The next output; `None` after `Done`, or if the engine ended without one.
    ///
    /// Cancel safe: a future that is dropped loses nothing.
    pub async fn next(&mut self) -> Option<Output> {
        std::future::poll_fn(|cx| {
            self.shared.with(|state| {
                if let Some(output) = self.take(state) {
                    return Poll::Ready(Some(output));
                }
                if state.is_closed {
                    return Poll::Ready(None);
                }
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    /// As [`Self::next`], for threads that may wait.
    pub fn blocking_next(&mut self) -> Option<Output> {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(output) = self.take(&mut state) {
                return Some(output);
            }
            if state.is_closed {
                return None;
            }
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the turn early. `Done` follows with `StopReason::Cancelled`.
    pub fn cancel(&self) {
        if self.shared.is_cancelled.swap(true, Ordering::AcqRel) {
            return;
        }
        let aborts_step = self.shared.is_prefilling.load(Ordering::Acquire);
        self.shared.inbox.wake_for_cancel(aborts_step);
    }

    fn take(&self, state: &mut State) -> Option<Output> {
        let output = state.outputs.pop_front()?;
        if state.outputs.is_empty() {
            state.waiting_tokens = 0;
        } else if let Output::Text { n_tokens, .. } = &output {
            state.waiting_tokens = state.waiting_tokens.saturating_sub((*n_tokens).max(1));
        }
        if std::mem::take(&mut state.is_stalled) {
            self.shared.inbox.wake();
        }
        Some(output)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let is_over = self.shared.with(|state| state.is_closed);
        if !is_over {
            self.cancel();
        }
    }
}
