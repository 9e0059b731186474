//! The one thread that owns the context: who is in the next decode, and what follows it.
//!
//! A step is one decode. It holds the waiting tokens of every running stream (one, or a
//! thought's closing tokens in one go) and, in what is left of the step's budget, chunks of
//! new prompts in equal shares. So a long prompt delays the others by one small chunk per
//! step, and a short prompt passes a long one.
//!
//! Sketch per step of 8 streams: one decode (milliseconds to hundreds), 8 draws of about
//! 0.2 ms, no allocation over the vocabulary (one candidate buffer serves all).
//!
//! Room: a turn is admitted while the cells that all turns need soon fit. If a decode finds
//! no room all the same, cached prefixes go first, then the newest stream gives up its cells
//! and is computed again when there is room; its reader only sees a pause.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use twopass_core::chat::StopReason;

use crate::ffi::{Batch, Candidates, Context, Decoded};
use crate::inbox::{Inbox, Job};
use crate::prefix_cache::{Entry, Place, PrefixCache, common_prefix};
use crate::stats::StatsCell;
use crate::vocab::Vocab;
use crate::{Error, ErrorKind, TokenId};

/// Cells that an admitted turn may count on beyond its tokens.
const HEADROOM_TOKENS: usize = 256;
/// Shorter beginnings are not worth sharing or keeping.
const PREFIX_MIN_TOKENS: usize = 8;

/// What the scheduler is made of.
#[derive(Debug)]
pub(crate) struct SchedulerParts {
    pub(crate) context: Context,
    pub(crate) vocab: Arc<Vocab>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) stats: Arc<StatsCell>,
    pub(crate) abort: Arc<AtomicBool>,
    pub(crate) max_streams: usize,
    pub(crate) cached_sequences: usize,
    pub(crate) cached_bytes: usize,
    pub(crate) step_tokens: usize,
    pub(crate) shared_step_tokens: usize,
    /// The model cannot cut a sequence's end off.
    pub(crate) is_stateful: bool,
    /// Width of the sliding attention window, 0 if there is none.
    pub(crate) sliding_window: usize,
}

/// The engine thread's state.
#[derive(Debug)]
pub(crate) struct Scheduler {
    parts: SchedulerParts,
    /// In the order of their admission.
    running: Vec<Stream>,
    /// Gave up their cells; they come before the queue.
    preempted: VecDeque<Job>,
    cache: PrefixCache,
    free_sequences: Vec<u32>,
    batch: Batch,
    rows: Vec<Row>,
    candidates: Candidates,
    /// The last step was aborted; the next one runs to its end, so that cancels cannot
    /// starve the others.
    was_aborted: bool,
    turn_of: usize,
}

#[derive(Debug)]
struct Stream {
    job: Job,
    sequence: u32,
}

/// A stream's part of the current batch.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// Index into `running`.
    stream: usize,
    /// Of the turn's own, without guesses.
    n_tokens: usize,
    /// First output row, if the stream draws after this step; guesses have the next ones.
    logits: Option<usize>,
}

impl Scheduler {
    pub(crate) fn new(parts: SchedulerParts) -> Self {
        let n_sequences = parts.context.params().n_sequences;
        Self {
            cache: PrefixCache::new(parts.cached_sequences, parts.cached_bytes),
            parts,
            running: Vec::new(),
            preempted: VecDeque::new(),
            free_sequences: (0..n_sequences).rev().collect(),
            batch: Batch::default(),
            rows: Vec::new(),
            candidates: Candidates::default(),
            was_aborted: false,
            turn_of: 0,
        }
    }

    /// Works until the engine is stopped, then ends every turn.
    pub(crate) fn run(mut self) {
        loop {
            // Cleared before looking for cancelled streams: one that cancels from here on
            // either is seen below or interrupts the decode.
            self.parts.abort.store(false, Ordering::Release);
            if self.parts.inbox.is_stopped() {
                break;
            }
            self.reap();
            self.admit();
            self.publish();
            self.build_batch();
            if self.rows.is_empty() {
                self.parts.inbox.wait();
            } else {
                self.step();
            }
        }
        self.end_all();
    }

    fn end_all(&mut self) {
        let gone = Error::new(ErrorKind::Stopped, "the engine was stopped");
        let waiting = self.parts.inbox.drain(true);
        let running = std::mem::take(&mut self.running);
        let jobs = running.into_iter().map(|s| s.job);
        let preempted = std::mem::take(&mut self.preempted);
        self.publish();
        for job in jobs.chain(preempted).chain(waiting) {
            job.turn
                .finish(Err(gone.clone()), &self.parts.vocab, &job.sender);
        }
    }

    /// Ends the turns that are over or cancelled, wherever they are.
    fn reap(&mut self) {
        let mut idx = 0;
        while idx < self.running.len() {
            let job = &self.running[idx].job;
            if job.turn.has_ended() || job.sender.is_cancelled() {
                let stream = self.running.remove(idx);
                self.retire(stream);
            } else {
                idx += 1;
            }
        }
        let mut gone = self.parts.inbox.drain(false);
        let (cancelled, kept) = std::mem::take(&mut self.preempted)
            .into_iter()
            .partition::<VecDeque<_>, _>(|job| job.sender.is_cancelled());
        self.preempted = kept;
        gone.extend(cancelled);
        for job in gone {
            self.finish(job);
        }
    }

    fn finish(&self, job: Job) {
        let is_cancelled = !job.turn.has_ended();
        let has_failed = job.turn.has_failed();
        self.parts.stats.update(|s| {
            if is_cancelled {
                s.cancelled += 1;
            } else if has_failed {
                s.failed += 1;
            } else {
                s.finished += 1;
            }
        });
        job.turn
            .finish(Ok(StopReason::Cancelled), &self.parts.vocab, &job.sender);
    }

    /// Frees a stream's slot; what it computed stays as a prefix for others.
    fn retire(&mut self, stream: Stream) {
        let n = stream.job.turn.in_cache();
        let keep = n >= PREFIX_MIN_TOKENS
            && self.parts.cached_sequences > 0
            && self.cut_to(stream.sequence, n);
        if keep {
            let entry = Entry {
                place: Place::Cells(stream.sequence),
                tokens: stream.job.turn.tokens()[..n].to_vec(),
            };
            for sequence in self.cache.insert(entry, self.parts.is_stateful) {
                self.free(sequence);
            }
        } else {
            self.free(stream.sequence);
        }
        self.publish();
        self.finish(stream.job);
    }

    fn free(&mut self, sequence: u32) {
        self.parts.context.cut(sequence, 0);
        self.free_sequences.push(sequence);
    }

    /// Makes a sequence end at `n` tokens; false if the model cannot.
    fn cut_to(&mut self, sequence: u32, n: usize) -> bool {
        self.parts.context.end_position(sequence) == n || self.parts.context.cut(sequence, n)
    }

    /// Gives slots to waiting turns, oldest first, while their cells fit.
    fn admit(&mut self) {
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
                    fits(turn.need_tokens(HEADROOM_TOKENS)) && !self.is_computed_soon(turn.tokens())
                }),
            };
            let Some(mut job) = job else {
                return;
            };
            let Some((sequence, shared)) = self.open_sequence(job.turn.tokens()) else {
                self.preempted.push_front(job);
                return;
            };
            job.turn.start(shared);
            self.parts
                .stats
                .update(|s| s.cached_tokens += shared as u64);
            self.running.push(Stream { job, sequence });
            self.park_idle();
        }
    }

    /// Moves kept sequences out of the cells: a stream's attention would run over them.
    fn park_idle(&mut self) {
        let context = &mut self.parts.context;
        for sequence in self.cache.park(|sequence| context.save(sequence)) {
            self.free(sequence);
        }
    }

    /// A sequence for these tokens that holds the longest beginning to be had, and its
    /// length. At least the last token is left to compute.
    fn open_sequence(&mut self, tokens: &[TokenId]) -> Option<(u32, usize)> {
        let prompt = &tokens[..tokens.len().saturating_sub(1)];
        let kept = self.cache.longest(prompt, self.parts.is_stateful);
        let running = self.longest_running(prompt);
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

    /// True if a running stream is computing a beginning of these tokens that nobody has yet:
    /// choices of one prompt then wait for the first one's.
    fn is_computed_soon(&self, tokens: &[TokenId]) -> bool {
        if self.parts.is_stateful {
            return false;
        }
        let prompt = &tokens[..tokens.len().saturating_sub(1)];
        let computing = self.running.iter().filter(|s| s.job.turn.is_prefilling());
        let soon = computing
            .map(|s| common_prefix(s.job.turn.tokens(), prompt))
            .max();
        let Some(n_soon) = soon.filter(|n| *n >= PREFIX_MIN_TOKENS) else {
            return false;
        };
        let kept = self.cache.longest(prompt, false).map_or(0, |kept| kept.1);
        let now = self.longest_running(prompt).map_or(0, |running| running.1);
        n_soon >= kept.max(now) + PREFIX_MIN_TOKENS
    }

    fn longest_running(&self, prompt: &[TokenId]) -> Option<(u32, usize)> {
        if self.parts.is_stateful {
            return None;
        }
        self.running
            .iter()
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

    fn build_batch(&mut self) {
        self.batch.clear();
        self.rows.clear();
        let most = self.parts.context.params().batch_tokens as usize;
        let n = self.running.len();
        if n == 0 {
            return;
        }
        self.turn_of = (self.turn_of + 1) % n;
        let order: Vec<usize> = (0..n).map(|k| (k + self.turn_of) % n).collect();
        let mut prompts = Vec::new();
        for &idx in &order {
            let job = &mut self.running[idx].job;
            let n_pending = job.turn.pending().len();
            if job.turn.is_prefilling() {
                prompts.push(idx);
            } else if n_pending <= most - self.batch.len() && !job.sender.is_full() {
                job.turn.make_draft(most - self.batch.len() - n_pending);
                self.add_row(idx, n_pending, false);
            }
        }
        let budget = if self.rows.is_empty() {
            self.parts.step_tokens
        } else {
            self.parts.shared_step_tokens
        };
        self.add_prompts(&prompts, budget.min(most - self.batch.len()));
    }

    /// Shares the budget: equal parts, and what short prompts leave goes to the others.
    ///
    /// The last token of a prompt is left for a step of its own, as a drawn token is: then it
    /// is computed alike whether the tokens before it were cached or not, and a lone stream
    /// gives the same text both times.
    fn add_prompts(&mut self, prompts: &[usize], mut budget: usize) {
        let pending = |s: &Self, idx: usize| s.running[idx].job.turn.pending().len() - 1;
        let mut by_need = prompts.to_vec();
        by_need.sort_by_key(|&idx| pending(self, idx));
        for (done, &idx) in by_need.iter().enumerate() {
            let share = budget.div_ceil(by_need.len() - done);
            let n_tokens = pending(self, idx).min(share);
            if n_tokens > 0 {
                self.add_row(idx, n_tokens, true);
                budget -= n_tokens;
            }
        }
    }

    fn add_row(&mut self, stream: usize, n_tokens: usize, is_prompt: bool) {
        let Stream { job, sequence } = &self.running[stream];
        let pending = job.turn.pending();
        let wants_logits = n_tokens == pending.len();
        let draft = if wants_logits { job.turn.draft() } else { &[] };
        let tokens: Vec<TokenId> = [&pending[..n_tokens], draft].concat();
        let n_outputs = if wants_logits { 1 + draft.len() } else { 0 };
        let start = job.turn.in_cache();
        let logits = self
            .batch
            .push(*sequence, start, tokens.into_iter(), n_outputs);
        job.sender.set_prefilling(is_prompt);
        self.rows.push(Row {
            stream,
            n_tokens,
            logits,
        });
    }

    fn step(&mut self) {
        if self.was_aborted {
            self.parts.abort.store(false, Ordering::Release);
            for row in &self.rows {
                self.running[row.stream].job.sender.set_prefilling(false);
            }
        }
        let (n_streams, n_tokens) = (self.rows.len(), self.batch.len());
        self.parts.stats.count_step(n_streams, n_tokens);
        let start = Instant::now();
        let decoded = self.parts.context.decode(&mut self.batch);
        let spent = start.elapsed().as_secs_f64();
        self.parts.stats.update(|s| s.decode_seconds += spent);
        for row in &self.rows {
            self.running[row.stream].job.sender.set_prefilling(false);
        }
        self.was_aborted = decoded == Decoded::Aborted;
        match decoded {
            Decoded::Done => self.after_decode(),
            Decoded::Aborted => {
                self.parts.stats.update(|s| s.aborted_steps += 1);
                self.roll_back();
            }
            Decoded::NoRoom => self.make_room(),
            Decoded::Failed(reason) => self.fail_step(&reason),
        }
    }

    fn after_decode(&mut self) {
        let mut in_grammars = Duration::ZERO;
        for row in std::mem::take(&mut self.rows) {
            let Stream { job, sequence } = &mut self.running[row.stream];
            let n_prompt = job.turn.take_computed(row.n_tokens);
            self.parts
                .stats
                .update(|s| s.prefill_tokens += n_prompt as u64);
            let Some(first) = row.logits else {
                continue;
            };
            let n_drafted = job.turn.draft().len();
            let (n_forced, n_free) = (job.turn.n_forced(), job.turn.n_without_draw());
            let mut n_accepted = 0;
            while let Some(logits) = self.parts.context.logits(first + n_accepted) {
                let turn = &mut job.turn;
                turn.advance(logits, &mut self.candidates, &self.parts.vocab, &job.sender);
                if !turn.accept_draft(n_accepted) {
                    break;
                }
                n_accepted += 1;
            }
            let turn = &mut job.turn;
            in_grammars += turn.take_grammar_time();
            if turn.take_rewound() || n_accepted < n_drafted {
                let n = turn.in_cache();
                let is_cut = self.parts.context.cut(*sequence, n);
                if !is_cut {
                    self.parts.context.cut(*sequence, 0);
                }
                turn.set_in_cache(if is_cut { n } else { 0 });
            }
            let n_free = turn.n_without_draw() - n_free;
            let n_forced = turn.n_forced() - n_forced;
            self.parts.stats.update(|s| {
                s.prefill_tokens += n_forced as u64;
                // The last row was not drawn from if the grammar left no choice.
                s.decode_tokens += n_accepted as u64 + u64::from(n_free == 0);
                s.drafted_tokens += n_drafted as u64;
                s.accepted_tokens += n_accepted as u64;
                s.forced_tokens += n_free;
            });
        }
        let in_grammars = in_grammars.as_secs_f64();
        self.parts
            .stats
            .update(|s| s.grammar_seconds += in_grammars);
    }

    /// After an aborted step: the streams of the batch are where they were before it.
    fn roll_back(&mut self) {
        for row in std::mem::take(&mut self.rows) {
            let Stream { job, sequence } = &mut self.running[row.stream];
            let n = job.turn.in_cache();
            let context = &mut self.parts.context;
            let end = context.end_position(*sequence);
            let is_back = end == n || (end > n && context.cut(*sequence, n));
            if !is_back {
                context.cut(*sequence, 0);
                job.turn.set_in_cache(0);
            }
        }
    }

    /// No cells: a cached prefix goes, or the newest stream waits for better times.
    fn make_room(&mut self) {
        if let Some(sequence) = self.cache.evict() {
            self.free(sequence);
            return;
        }
        if self.running.len() > 1
            && let Some(mut stream) = self.running.pop()
        {
            self.free(stream.sequence);
            stream.job.turn.set_in_cache(0);
            self.preempted.push_front(stream.job);
            self.parts.stats.update(|s| s.preempted += 1);
            return;
        }
        if let Some(stream) = self.running.first_mut() {
            stream.job.turn.fail(Error::new(
                ErrorKind::ContextFull,
                "the KV cache is full although only one stream is running",
            ));
        }
    }

    fn fail_step(&mut self, reason: &str) {
        for row in std::mem::take(&mut self.rows) {
            let Stream { job, sequence } = &mut self.running[row.stream];
            self.parts.context.cut(*sequence, 0);
            job.turn.set_in_cache(0);
            job.turn
                .fail(Error::new(ErrorKind::Internal, reason.to_owned()));
        }
    }

    /// Shows the streams' states; before a turn's end is told, so that its reader finds the
    /// slot free.
    fn publish(&self) {
        let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let running = clamp(self.running.len());
        let queued = clamp(self.preempted.len() + self.parts.inbox.len());
        let cached = clamp(self.cache.len());
        self.parts.stats.update(|s| {
            s.running = running;
            s.queued = queued;
            s.cached_sequences = cached;
        });
    }
}
