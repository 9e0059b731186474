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

mod places;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use twopass_core::chat::StopReason;

use crate::adapters::Adapters;
use crate::draft::{Guessing, Wanted};
use crate::ffi::{Batch, Candidates, Context, Decoded};
use crate::inbox::{Inbox, Job};
use crate::prefix_cache::PrefixCache;
use crate::session::Session;
use crate::stats::StatsCell;
use crate::vocab::Vocab;
use crate::{Error, ErrorKind, TokenId};

/// Cells that an admitted turn may count on beyond its tokens.
const HEADROOM_TOKENS: usize = 256;
/// Kept sequences are saved when nothing was asked for so long.
const IDLE: Duration = Duration::from_secs(10);
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
    /// Where kept sequences outlive the engine.
    pub(crate) session: Option<Session>,
    pub(crate) adapters: Arc<Adapters>,
    /// Guesses ahead.
    pub(crate) guessing: Guessing,
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
        let mut cache = PrefixCache::new(parts.cached_sequences, parts.cached_bytes);
        for entry in parts.session.iter().flat_map(Session::load) {
            // Saved entries lie in no sequence, so none is to be freed.
            cache.insert(entry, parts.is_stateful);
        }
        let scheduler = Self {
            cache,
            parts,
            running: Vec::new(),
            preempted: VecDeque::new(),
            free_sequences: (0..n_sequences).rev().collect(),
            batch: Batch::default(),
            rows: Vec::new(),
            candidates: Candidates::default(),
            was_aborted: false,
            turn_of: 0,
        };
        scheduler.publish();
        scheduler
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
                self.rest();
            } else {
                self.step();
            }
        }
        self.end_all();
        self.save_session();
    }

    /// Nothing is to be done until somebody asks; when nobody does for a while, what is kept
    /// is saved.
    fn rest(&mut self) {
        let is_stale = self.parts.session.as_ref().is_some_and(Session::is_stale);
        if !is_stale {
            self.parts.inbox.wait();
        } else if !self.parts.inbox.wait_for(IDLE) && self.running.is_empty() {
            self.save_session();
        }
    }

    fn save_session(&mut self) {
        if self.parts.session.as_ref().is_some_and(Session::is_stale) {
            self.park_idle();
            if let Some(session) = &mut self.parts.session {
                session.save(self.cache.entries());
            }
        }
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
        let order = self.of_one_adapter(order);
        self.guess_ahead(&order);
        let mut prompts = Vec::new();
        for &idx in &order {
            let job = &mut self.running[idx].job;
            let n_pending = job.turn.pending().len();
            if job.turn.is_prefilling() {
                prompts.push(idx);
            } else if n_pending <= most - self.batch.len() && !job.sender.is_full() {
                job.turn.limit_draft(most - self.batch.len() - n_pending);
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

    /// Those of the adapter whose turn it is: a decode has one.
    fn of_one_adapter(&mut self, mut order: Vec<usize>) -> Vec<usize> {
        let can_go_on = |idx: &&usize| {
            let job = &self.running[**idx].job;
            job.turn.is_prefilling() || !job.sender.is_full()
        };
        let Some(&first) = order.iter().find(can_go_on) else {
            return order;
        };
        let adapter = self.running[first].job.turn.adapter();
        let parts = &mut self.parts;
        parts.context.set_adapter(parts.adapters.get(adapter));
        order.retain(|&idx| self.running[idx].job.turn.adapter() == adapter);
        order
    }

    /// Has the next tokens of these streams guessed, where one may be drawn in this step.
    fn guess_ahead(&mut self, order: &[usize]) {
        let guessing = &mut self.parts.guessing;
        let lookup_limit = guessing.lookup_tokens as usize;
        let mut unknown = Vec::new();
        for &idx in order {
            let job = &mut self.running[idx].job;
            let limit = job.turn.clear_draft();
            let is_known = job.turn.look_up_draft(limit.min(lookup_limit));
            if limit > 0 && !is_known && !job.sender.is_full() {
                unknown.push((idx, limit));
            }
        }
        let Some(model) = &mut guessing.model else {
            return;
        };
        let wanted = unknown.iter().map(|&(idx, limit)| Wanted {
            tokens: self.running[idx].job.turn.tokens(),
            limit: limit.min(model.limit_tokens() as usize),
            guess: Vec::new(),
        });
        let mut wanted: Vec<Wanted<'_>> = wanted.collect();
        model.guess(&mut wanted);
        let guesses: Vec<_> = wanted.into_iter().map(|wanted| wanted.guess).collect();
        for ((idx, _), guess) in unknown.into_iter().zip(guesses) {
            self.running[idx].job.turn.set_draft(guess);
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
            let n_cells = self.parts.context.params().context_tokens;
            let n_tokens = stream.job.turn.tokens().len();
            stream.job.turn.fail(Error::new(
                ErrorKind::ContextFull,
                format!("the KV cache of {n_cells} tokens has no room for a turn of {n_tokens}"),
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
