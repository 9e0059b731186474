//! Which turns have a place, and what their sequences begin with.

use super::{HEADROOM_TOKENS, PREFIX_MIN_TOKENS, Scheduler, Stream};
use crate::TokenId;
use crate::prefix_cache::{Entry, Place, common_prefix};
use crate::turn::Turn;

impl Scheduler {
    /// Frees a stream's slot; what it computed stays as a prefix for others.
    pub(super) fn retire(&mut self, stream: Stream) {
        let n = stream.job.turn.in_cache();
        let keep = n >= PREFIX_MIN_TOKENS
            && self.parts.cached_sequences > 0
            && self.cut_to(stream.sequence, n);
        if keep {
            let entry = Entry {
                place: Place::Cells(stream.sequence),
                adapter: stream.job.turn.adapter(),
                tokens: stream.job.turn.tokens()[..n].to_vec(),
            };
            for sequence in self.cache.insert(entry, self.parts.is_stateful) {
                self.free(sequence);
            }
            if let Some(session) = &mut self.parts.session {
                session.note_change();
            }
        } else {
            self.free(stream.sequence);
        }
        self.publish();
        self.finish(stream.job);
    }

    pub(super) fn free(&mut self, sequence: u32) {
        self.parts.context.cut(sequence, 0);
        self.free_sequences.push(sequence);
    }

    /// Makes a sequence end at `n` tokens; false if the model cannot.
    fn cut_to(&mut self, sequence: u32, n: usize) -> bool {
        self.parts.context.end_position(sequence) == n || self.parts.context.cut(sequence, n)
    }

    /// Gives slots to waiting turns, oldest first, while their cells fit.
    pub(super) fn admit(&mut self) {
        while self.running.len() < self.parts.max_streams {
            let total = self.parts.context.params().context_tokens as usize;
            let taken: usize = self
                .running
                .iter()
                .map(|s| s.job.turn.need_tokens(HEADROOM_TOKENS))
                .sum();
            let is_alone = self.running.is_empty();
            let fits = |need: usize| is_alone || taken + need <= total;
            let job = match self.preempted.front() {
                Some(job) if fits(job.turn.need_tokens(HEADROOM_TOKENS)) => {
                    self.preempted.pop_front()
                }
                Some(_) => None,
                None => self.parts.inbox.pop_if(|turn| {
                    fits(turn.need_tokens(HEADROOM_TOKENS)) && !self.is_computed_soon(turn)
                }),
            };
            let Some(mut job) = job else {
                return;
            };
            let Some((sequence, shared)) = self.open_sequence(&job.turn) else {
                self.preempted.push_front(job);
                return;
            };
            job.turn.start(shared);
            self.parts
                .stats
                .update(|s| s.cached_tokens += shared as u64);
            let last_built = self.n_built;
            self.running.push(Stream {
                job,
                sequence,
                last_built,
            });
            self.park_idle();
        }
    }

    /// Moves kept sequences out of the cells: a stream's attention would run over them.
    pub(super) fn park_idle(&mut self) {
        let context = &mut self.parts.context;
        for sequence in self.cache.park(|sequence| context.save(sequence)) {
            self.free(sequence);
        }
    }

    /// A sequence for this turn's tokens that holds the longest beginning to be had, and its
    /// length. At least the last token is left to compute.
    fn open_sequence(&mut self, turn: &Turn) -> Option<(u32, usize)> {
        let prompt = reusable(turn);
        let kept = self
            .cache
            .longest(prompt, turn.adapter(), self.parts.is_stateful);
        let running = self.longest_running(turn);
        let n_kept = kept.map_or(0, |k| k.1);
        let n_running = running.map_or(0, |r| r.1);
        if n_kept.max(n_running) < PREFIX_MIN_TOKENS {
            return Some((self.free_sequence()?, 0));
        }
        if let Some((idx, n)) = kept
            && n_kept >= n_running
        {
            // A prompt that was asked before takes the whole sequence over and gives up the
            // old answer: its tokens then get the cells of the old ones, which the kernels
            // sum in the same order.
            if n == prompt.len() || self.cache.tokens(idx).len() == n {
                let place = self.cache.take(idx).place;
                let sequence = match place {
                    Place::Cells(sequence) => sequence,
                    Place::Parked(bytes) => {
                        let sequence = self.free_sequence()?;
                        self.parts.context.restore(sequence, &bytes);
                        sequence
                    }
                };
                return Some((sequence, self.usable(sequence, n)));
            }
            self.cache.touch(idx);
            let sequence = self.free_sequence()?;
            match self.cache.latest().map(|entry| &entry.place) {
                Some(Place::Cells(source)) => self.parts.context.copy(*source, sequence),
                Some(Place::Parked(bytes)) => self.parts.context.restore(sequence, bytes),
                None => {}
            }
            return Some((sequence, self.usable(sequence, n)));
        }
        let (source, n) = running?;
        let sequence = self.free_sequence()?;
        self.parts.context.copy(source, sequence);
        Some((sequence, self.usable(sequence, n)))
    }

    /// True if a running stream is computing a beginning of this turn that nobody has yet:
    /// choices of one prompt then wait for the first one's.
    fn is_computed_soon(&self, turn: &Turn) -> bool {
        if self.parts.is_stateful {
            return false;
        }
        let prompt = reusable(turn);
        let same = |s: &&Stream| s.job.turn.adapter() == turn.adapter();
        let computing = self.running.iter().filter(same);
        let computing = computing.filter(|s| s.job.turn.is_prefilling());
        let soon = computing
            .map(|s| common_prefix(s.job.turn.tokens(), prompt))
            .max();
        let Some(n_soon) = soon.filter(|n| *n >= PREFIX_MIN_TOKENS) else {
            return false;
        };
        let kept = self.cache.longest(prompt, turn.adapter(), false);
        let kept = kept.map_or(0, |kept| kept.1);
        let now = self.longest_running(turn).map_or(0, |running| running.1);
        n_soon >= kept.max(now) + PREFIX_MIN_TOKENS
    }

    fn longest_running(&self, turn: &Turn) -> Option<(u32, usize)> {
        if self.parts.is_stateful {
            return None;
        }
        let prompt = reusable(turn);
        self.running
            .iter()
            .filter(|s| s.job.turn.adapter() == turn.adapter())
            .map(|s| {
                let held = &s.job.turn.tokens()[..s.job.turn.in_cache()];
                (s.sequence, common_prefix(held, prompt))
            })
            .max_by_key(|&(_, n)| n)
    }

    /// Cuts a sequence to its first `n` tokens. Where it holds fewer, the model cannot, or its sliding window
    /// has dropped what the next token looks at, the sequence begins anew.
    fn usable(&mut self, sequence: u32, n: usize) -> usize {
        let window = self.parts.sliding_window;
        let context = &mut self.parts.context;
        let end = context.end_position(sequence);
        let is_cut = end == n || (end > n && context.cut(sequence, n));
        let first_needed = if window > 0 {
            n.saturating_sub(window)
        } else {
            0
        };
        let has_window = context
            .first_position(sequence)
            .is_some_and(|first| first <= first_needed);
        if is_cut && (has_window || self.parts.is_stateful) {
            return n;
        }
        context.cut(sequence, 0);
        0
    }

    fn free_sequence(&mut self) -> Option<u32> {
        if self.free_sequences.is_empty() {
            let evicted = self.cache.evict()?;
            self.free(evicted);
        }
        self.free_sequences.pop()
    }
}

/// What of a turn's tokens may be there already: its last is always computed.
fn reusable(turn: &Turn) -> &[TokenId] {
    let tokens = turn.tokens();
    &tokens[..tokens.len().saturating_sub(1)]
}
