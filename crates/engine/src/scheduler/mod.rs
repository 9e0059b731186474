//! The one thread that owns the context: who is in the next decode, and what follows it.
//!
//! A step is one decode of the waiting tokens of every running stream and bounded chunks of new
//! prompts, on the processor in turn ([`batches`]). So a long prompt delays the others by one small chunk per step, and a short
//! prompt passes a long one.
//!
//! Sketch per step of 8 streams: one decode (milliseconds to hundreds), 8 draws of about
//! 0.2 ms, no allocation over the vocabulary (one candidate buffer serves all).
//!
//! Room: a turn is admitted while the cells that all turns need soon fit. If a decode finds
//! no room all the same, cached prefixes go first, then the newest stream gives up its cells
//! and is computed again when there is room; its reader only sees a pause.

mod batches;
mod places;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use twopass_core::chat::StopReason;

use crate::adapters::{AdapterId, Adapters};
use crate::draft::Guessing;
use crate::ffi::{Batch, Candidates, Context, Decoded};
use crate::inbox::{Inbox, Job};
use crate::prefix_cache::PrefixCache;
use crate::session::Session;
use crate::stats::StatsCell;
use crate::vocab::Vocab;
use crate::{Error, ErrorKind};

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
    /// Attention is computed in tiles of rows ([`batches`]).
    pub(crate) attends_in_tiles: bool,
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
    /// The adapters whose streams were in a decode while one of their prompts waited for its
    /// next chunk.
    owe_chunk: HashSet<AdapterId>,
    /// Batches so far.
    n_built: u64,
}

#[derive(Debug)]
struct Stream {
    job: Job,
    sequence: u32,
    /// The last batch that it was in, or, of one that was in none, the last before it came.
    last_built: u64,
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
            owe_chunk: HashSet::new(),
            n_built: 0,
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
            let Stream { job, sequence, .. } = &mut self.running[row.stream];
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
            let Stream { job, sequence, .. } = &mut self.running[row.stream];
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
            let Stream { job, sequence, .. } = &mut self.running[row.stream];
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
