//! Who is in the next decode.
//!
//! ggml's attention on the processor takes the rows of a decode in tiles of [`TILE_ROWS`] and
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
//! A GPU reads its weights anew in every decode and has no such tiles: there one decode holds
//! the streams' tokens and, in equal shares, chunks of all prompts.

use crate::TokenId;
use crate::draft::Wanted;

use super::{Row, Scheduler, Stream};

/// Source: `GGML_FA_TILE_Q` in ggml's `common.h`.
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
        let (prompts, mut talkers): (Vec<usize>, Vec<usize>) = order
            .into_iter()
            .partition(|&idx| self.running[idx].job.turn.is_prefilling());
        talkers.retain(|&idx| !self.running[idx].job.sender.is_full());
        let room = self.room_beside(&talkers);
        let is_long = |idx: &usize| self.need(*idx) > room;
        let long: Vec<usize> = match self.parts.on_processor {
            true => prompts.iter().copied().filter(is_long).collect(),
            false => Vec::new(),
        };
        let has_others = !talkers.is_empty() || prompts.len() > long.len();
        self.n_decodes += 1;
        if !long.is_empty() && (self.owes_chunk || !has_others) {
            self.add_chunk(&long, talkers.is_empty());
            self.owes_chunk = false;
        } else {
            let left = self.add_talkers(&talkers, room);
            self.add_prompts(&prompts, left);
            self.owes_chunk = !long.is_empty();
        }
    }

    /// Tokens of a prompt that wait. Its last token is left for a step of its own, as a drawn
    /// token is: then it is computed alike whether the tokens before it were cached or not, and
    /// a lone stream gives the same text both times.
    fn need(&self, idx: usize) -> usize {
        self.running[idx].job.turn.pending().len() - 1
    }

    /// Rows of a decode that are left beside the streams' own.
    fn room_beside(&self, talkers: &[usize]) -> usize {
        let pending = |idx: &usize| self.running[*idx].job.turn.pending().len();
        let n_pending: usize = talkers.iter().map(pending).sum();
        if self.parts.on_processor {
            return (TILE_ROWS - 1).saturating_sub(n_pending);
        }
        let budget = match talkers.is_empty() {
            true => self.parts.step_tokens,
            false => self.parts.shared_step_tokens,
        };
        let most = self.parts.context.params().batch_tokens as usize;
        budget.min(most.saturating_sub(n_pending))
    }

    /// The next chunk of the prompt that waits longest. While nobody talks it may be long, but
    /// several prompts share what is computed in one go.
    fn add_chunk(&mut self, prompts: &[usize], is_quiet: bool) {
        let last_chunk = |idx: &usize| self.running[*idx].last_chunk;
        let Some(idx) = prompts.iter().copied().min_by_key(last_chunk) else {
            return;
        };
        let parts = &self.parts;
        let share = (parts.step_tokens / prompts.len()).max(TILE_ROWS);
        let budget = match is_quiet {
            true => share.min(parts.step_tokens),
            false => parts.shared_step_tokens,
        };
        self.running[idx].last_chunk = self.n_decodes;
        self.add_row(idx, self.need(idx).min(budget), true);
    }

    /// The waiting tokens of streams, and guesses in this much room; what is left of it.
    fn add_talkers(&mut self, talkers: &[usize], mut room: usize) -> usize {
        self.guess_ahead(talkers);
        let most = self.parts.context.params().batch_tokens as usize;
        for &idx in talkers {
            let turn = &mut self.running[idx].job.turn;
            let n_pending = turn.pending().len();
            if n_pending <= most - self.batch.len() {
                turn.limit_draft(room.min(most - self.batch.len() - n_pending));
                room -= turn.draft().len();
                self.add_row(idx, n_pending, false);
            }
        }
        room
    }

    /// Rests of prompts, short ones first. On the processor those that fit whole, else equal
    /// parts, and what short prompts leave goes to the others.
    fn add_prompts(&mut self, prompts: &[usize], mut room: usize) {
        let most = self.parts.context.params().batch_tokens as usize;
        let mut by_need = prompts.to_vec();
        by_need.sort_by_key(|&idx| self.need(idx));
        room = room.min(most - self.batch.len());
        for (done, &idx) in by_need.iter().enumerate() {
            let need = self.need(idx);
            let n_tokens = match self.parts.on_processor {
                true if need > room => return,
                true => need,
                false => need.min(room.div_ceil(by_need.len() - done)),
            };
            if n_tokens > 0 {
                self.add_row(idx, n_tokens, true);
                room -= n_tokens;
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
