//! Guessing by a smaller model of the same vocabulary.
//!
//! The draft model reads what the turns hold and writes on greedily, all turns in one batch,
//! as long as it is sure of its tokens. It has a cache of its own, in slots: each turn takes
//! the slot that holds most of its tokens, so nobody has to say which turn is whose.
//!
//! Sketch: a draft a tenth of the model's size costs a tenth of a step per token guessed. What
//! it lacks of a new prompt it reads in pieces of one batch per step, so that no step waits
//! for a long one; until then it guesses nothing for this turn.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::draw::{argmax, log_sum_exp};
use crate::ffi::{Batch, Context, ContextParams, Decoded, Model};
use crate::prefix_cache::common_prefix;
use crate::vocab::Vocab;
use crate::{EngineOptions, Error, TokenId};

/// A token that is less probable ends the guess. Source: the default of llama.cpp's
/// `--draft-p-min`, read 2026-01.
const LEAST_PROBABILITY: f32 = 0.75;
/// Tokens without text that a vocabulary may have more than another: sizes are padded.
/// Source: llama.cpp's `common/speculative.cpp`, read 2026-01.
const PADDING_LIMIT: u32 = 128;

/// A second model that guesses for the first.
#[derive(Debug)]
pub(crate) struct DraftModel {
    model: Arc<Model>,
    context: Context,
    batch: Batch,
    /// What the cache holds, by sequence.
    held: Vec<Vec<TokenId>>,
    limit_tokens: u32,
}

/// A guess that is wanted.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// What it goes on from.
    pub(crate) tokens: &'a [TokenId],
    /// Most tokens of it.
    pub(crate) limit: usize,
    /// The guess; empty at first.
    pub(crate) guess: Vec<TokenId>,
}

/// A guess that is being made.
#[derive(Debug, Clone, Copy)]
struct Growing {
    wanted: usize,
    sequence: usize,
    /// The output row of its last token.
    row: usize,
}

impl DraftModel {
    /// Loads the draft of these options for a model with this vocabulary.
    ///
    /// # Errors
    /// `BadOption` says why the file is no draft for this model.
    pub(crate) fn load(options: &EngineOptions, path: &Path, vocab: &Vocab) -> Result<Self, Error> {
        let bad = |why: String| {
            let text = format!("cannot draft with `{}`: {why}", path.display());
            Error::bad_option("draft_model", text)
        };
        crate::gguf::check_file(path).map_err(|e| bad(e.to_string()))?;
        let model = Arc::new(Model::load(path, options.gpu_layers).map_err(bad)?);
        if !model.is_causal_decoder() || model.is_stateful() || model.sliding_window() > 0 {
            return Err(bad(
                "it must be a decoder without running state and sliding window".to_owned(),
            ));
        }
        let own = Vocab::new(Arc::clone(&model)).map_err(|e| bad(e.to_string()))?;
        check_vocab(vocab, &own).map_err(bad)?;
        let params = ContextParams {
            context_tokens: options.context_tokens,
            batch_tokens: options.step_tokens + options.max_streams,
            n_sequences: options.max_streams,
            n_outputs: options.max_streams,
            threads: options.resolved_threads(),
            cache_type: options.cache_type,
            flash_attention: options.flash_attention,
        };
        let abort = Arc::new(AtomicBool::new(false));
        let context = Context::new(Arc::clone(&model), params, abort).map_err(bad)?;
        Ok(Self {
            model,
            context,
            batch: Batch::default(),
            held: vec![Vec::new(); options.max_streams as usize],
            limit_tokens: options.draft_tokens,
        })
    }

    /// Most tokens of a guess.
    pub(crate) fn limit_tokens(&self) -> u32 {
        self.limit_tokens
    }

    /// Makes guesses, at most one per sequence of the cache. Where it cannot, or is not sure,
    /// they are short or empty.
    pub(crate) fn guess(&mut self, wanted: &mut [Wanted<'_>]) {
        let mut growing = self.catch_up(wanted);
        while !growing.is_empty() {
            growing.retain(|one| {
                let token = self.context.logits(one.row).and_then(sure_token);
                let token = token.filter(|&token| !self.model.is_eog(token));
                let Wanted { limit, guess, .. } = &mut wanted[one.wanted];
                guess.extend(token);
                token.is_some() && guess.len() < *limit
            });
            self.batch.clear();
            for one in &mut growing {
                let held = &mut self.held[one.sequence];
                let token = wanted[one.wanted].guess.last().copied();
                if let Some(row) = push(&mut self.batch, one.sequence, held.len(), token) {
                    one.row = row;
                }
                held.extend(token);
            }
            if !growing.is_empty() && !self.decode() {
                return;
            }
        }
    }

    /// Reads what the cache lacks, one batch at most. Gives the guesses that can begin.
    fn catch_up(&mut self, wanted: &[Wanted<'_>]) -> Vec<Growing> {
        self.batch.clear();
        let mut growing = Vec::new();
        let most = self.context.params().batch_tokens as usize;
        for (wanted_idx, sequence) in self.places(wanted) {
            let tokens = wanted[wanted_idx].tokens;
            let held = &mut self.held[sequence];
            // The last token is computed anew: what follows it is asked for.
            let n_kept = common_prefix(held, tokens).min(tokens.len().saturating_sub(1));
            held.truncate(n_kept);
            let id = u32::try_from(sequence).unwrap_or(u32::MAX);
            let ends_there = self.context.end_position(id) == n_kept;
            if !ends_there && !self.context.cut(id, n_kept) {
                self.context.cut(id, 0);
                held.clear();
            }
            let missing = &tokens[held.len()..];
            let n_read = missing.len().min(most - self.batch.len());
            let is_whole = n_read == missing.len();
            let row = self.batch.push(
                id,
                held.len(),
                missing[..n_read].iter().copied(),
                usize::from(is_whole),
            );
            held.extend_from_slice(&missing[..n_read]);
            growing.extend(row.map(|row| Growing {
                wanted: wanted_idx,
                sequence,
                row,
            }));
        }
        if self.batch.len() == 0 || !self.decode() {
            return Vec::new();
        }
        growing
    }

    /// Which sequence each guess is made in: those that hold most of its tokens come first.
    fn places(&self, wanted: &[Wanted<'_>]) -> Vec<(usize, usize)> {
        let shared = |(w, s): (usize, usize)| common_prefix(&self.held[s], wanted[w].tokens);
        let pairs = (0..wanted.len()).flat_map(|w| (0..self.held.len()).map(move |s| (w, s)));
        let mut pairs: Vec<_> = pairs.map(|pair| (shared(pair), pair)).collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.0));
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (_, (w, s)) in pairs {
            if places.iter().all(|place| place.0 != w && place.1 != s) {
                places.push((w, s));
            }
        }
        places
    }

    /// False if the batch could not be computed: the cache is then empty.
    fn decode(&mut self) -> bool {
        let is_done = self.context.decode(&mut self.batch) == Decoded::Done;
        if !is_done {
            for (held, id) in self.held.iter_mut().zip(0..) {
                held.clear();
                self.context.cut(id, 0);
            }
        }
        is_done
    }
}

fn push(batch: &mut Batch, sequence: usize, at: usize, token: Option<TokenId>) -> Option<usize> {
    let id = u32::try_from(sequence).unwrap_or(u32::MAX);
    batch.push(id, at, token.into_iter(), 1)
}

/// The likeliest token, if it is likely enough to be guessed.
fn sure_token(logits: &[f32]) -> Option<TokenId> {
    let token = argmax(logits)?;
    let logit = logits.get(token as usize)?;
    let probability = (logit - log_sum_exp(logits)).exp();
    (probability >= LEAST_PROBABILITY).then_some(token)
}

/// Fails unless every token stands for the same in both.
fn check_vocab(model: &Vocab, draft: &Vocab) -> Result<(), String> {
    let (n_model, n_draft) = (model.len(), draft.len());
    if n_model.abs_diff(n_draft) > PADDING_LIMIT {
        return Err(format!(
            "its vocabulary has {n_draft} tokens, the model's {n_model}"
        ));
    }
    let same = |&token: &TokenId| {
        model.piece(token) == draft.piece(token) && model.ends_turn(token) == draft.ends_turn(token)
    };
    match (0..n_model.min(n_draft)).find(|token| !same(token)) {
        None => Ok(()),
        Some(token) => Err(format!(
            "its vocabulary is another: token {token} is `{}`, in the model `{}`",
            draft.text(token).escape_debug(),
            model.text(token).escape_debug(),
        )),
    }
}
