//! Who is in the next decode.
//!
//! ggml's fused attention on the processor takes the rows of a decode in tiles of [`TILE_ROWS`] and
//! computes all rows of a tile over the cells of each of them. A tile of one prompt costs
//! little so; in a tile of many streams each pays for all others. A decode of fewer rows than a
//! tile has none: every row goes over its own cells only.
//!
//! So there are two kinds of decodes, in turn while both have work:
//!
//! - the waiting tokens of all running streams (one each, guesses, or a thought's closing tokens
//!   in one go), and in what is left of a tile the rests of prompts that fit whole;
//! - a chunk of one prompt, the one that waits longest for its next.
//!
//! Where attention has no such tiles (a GPU, keys and values of 8 bits, attention that is not
//! fused) one decode holds the streams' tokens and, in equal shares, chunks of all prompts.

use crate::TokenId;
use crate::draft::Wanted;

use super::{Row, Scheduler, Stream};

/// Source: `GGML_FA_TILE_Q` in ggml's `common.h`, `use_tiled` in its `ops.cpp`.
const TILE_ROWS: usize = 64;

impl Scheduler {
    pub(super) fn build_batch(&mut self) {
        self.batch.clear();
        self.rows.clear();
        let n = self.running.len();
        if n == 0 {
            return;
        }
        self.turn_of = (self.turn_of + 1) % n;
        let order: Vec<usize> = (0..n).map(|k| (k + self.turn_of) % n).collect();
        let order = self.of_one_adapter(order);
        let (mut prompts, mut talkers): (Vec<usize>, Vec<usize>) = order
            .into_iter()
            .partition(|&idx| self.running[idx].job.turn.is_prefilling());
        talkers.retain(|&idx| !self.running[idx].job.sender.is_full());
        self.n_built += 1;
        let budget = match talkers.is_empty() {
            true => self.parts.step_tokens,
            false => self.parts.shared_step_tokens,
        };
        let pending = |idx: &usize| self.running[*idx].job.turn.pending().len();
        let n_pending: usize = talkers.iter().map(pending).sum();
        let room = self.most_rows().saturating_sub(n_pending);
        if !self.parts.attends_in_tiles {
            self.guess_ahead(&talkers);
            self.add_talkers(&talkers, room);
            self.add_shares(&prompts, budget);
            return;
        }
        let room = room.min((TILE_ROWS - 1).saturating_sub(n_pending));
        // The one that waits longest comes first, so none is passed over again and again.
        prompts.sort_by_key(|&idx| self.running[idx].last_built);
        let (rests, long): (Vec<usize>, Vec<usize>) = prompts
            .into_iter()
            .partition(|&idx| self.need(idx) <= room.min(budget));
        let has_others = !talkers.is_empty() || !rests.is_empty();
        if let Some(&first) = long.first() {
            let adapter = self.running[first].job.turn.adapter();
            if self.owe_chunk.remove(&adapter) || !has_others {
                return self.add_chunk(first, budget, long.len());
            }
            self.owe_chunk.insert(adapter);
        }
        self.add_mixed(&talkers, &rests, room);
    }

    /// Tokens of a prompt that wait. Its last token is left for a step of its own, as a drawn
    /// token is: then it is computed alike whether the tokens before it were cached or not, and
    /// a lone stream gives the same text both times.
    fn need(&self, idx: usize) -> usize {
        self.running[idx].job.turn.pending().len() - 1
    }

    fn most_rows(&self) -> usize {
        self.parts.context.params().batch_tokens as usize
    }

    /// The next chunk of a prompt. The more of them wait, the shorter it is, down to a tile.
    fn add_chunk(&mut self, idx: usize, budget: usize, n_waiting: usize) {
        let share = (budget / n_waiting).max(TILE_ROWS).min(budget);
        self.add_row(idx, self.need(idx).min(share), true);
    }

    /// The waiting tokens of running streams, the rests that fit, and guesses in what they leave.
    fn add_mixed(&mut self, talkers: &[usize], rests: &[usize], mut room: usize) {
        let mut fitting = Vec::new();
        for &idx in rests {
            let need = self.need(idx);
            if need <= room {
                room -= need;
                fitting.push((idx, need));
            }
        }
        self.guess_ahead(talkers);
        self.add_talkers(talkers, room);
        for (idx, need) in fitting {
            self.add_row(idx, need, true);
        }
    }

    /// The waiting tokens of running streams, and guesses in this much room.
    fn add_talkers(&mut self, talkers: &[usize], mut room: usize) {
        let most = self.most_rows();
        for &idx in talkers {
            let turn = &mut self.running[idx].job.turn;
            let n_pending = turn.pending().len();
            if n_pending <= most - self.batch.len() {
                turn.limit_draft(room);
                room -= turn.draft().len();
                self.add_row(idx, n_pending, false);
            }
        }
    }

    /// Chunks of all prompts: equal parts, and what short prompts leave goes to the others.
    fn add_shares(&mut self, prompts: &[usize], budget: usize) {
        let mut budget = budget.min(self.most_rows() - self.batch.len());
        let mut by_need = prompts.to_vec();
        by_need.sort_by_key(|&idx| self.need(idx));
        for (done, &idx) in by_need.iter().enumerate() {
            let share = budget.div_ceil(by_need.len() - done);
            let n_tokens = self.need(idx).min(share);
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
            if limit > 0 && !is_known {
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
        self.running[stream].last_built = self.n_built;
        let Stream { job, sequence, .. } = &self.running[stream];
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
}
