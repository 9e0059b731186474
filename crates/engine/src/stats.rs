use std::sync::{Mutex, PoisonError};

/// What an engine has done since it was loaded, and what it is doing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct EngineStats {
    /// Prompt tokens that were computed (twice, if their stream was preempted) and closing
    /// tokens that were forced.
    pub prefill_tokens: u64,
    /// Prompt tokens that a cached prefix saved.
    pub cached_tokens: u64,
    /// Tokens that were drawn, ends of turns included.
    pub decode_tokens: u64,
    /// Tokens that were guessed ahead ([`crate::EngineOptions::prompt_lookup_tokens`] and
    /// [`crate::EngineOptions::draft_model`]).
    pub drafted_tokens: u64,
    /// Guesses that the draw met: each saved a decode.
    pub accepted_tokens: u64,
    /// Tokens of answers that a grammar left no choice about: they were not drawn.
    pub forced_tokens: u64,
    /// Decodes.
    pub steps: u64,
    /// Decodes that a cancelled prompt interrupted.
    pub aborted_steps: u64,
    /// Time in decodes, in seconds.
    pub decode_seconds: f64,
    /// Time that grammars took on the engine's thread, between decodes, in seconds.
    pub grammar_seconds: f64,
    /// Streams per step, on average.
    pub batch_streams_mean: f64,
    /// Streams in the fullest step.
    pub batch_streams_max: u32,
    /// Tokens in the fullest step.
    pub batch_tokens_max: u32,
    /// Streams that hold a slot.
    pub running: u32,
    /// Requests that wait for one.
    pub queued: u32,
    /// Slots.
    pub slots: u32,
    /// Finished sequences that are kept as prefixes.
    pub cached_sequences: u32,
    /// Turns that ended by themselves.
    pub finished: u64,
    /// Turns that were cancelled.
    pub cancelled: u64,
    /// Turns that ended in an error.
    pub failed: u64,
    /// Times that a stream gave up its cells to older ones and was computed again later.
    pub preempted: u64,
}

/// The statistics while they grow.
#[derive(Debug, Default)]
pub(crate) struct StatsCell {
    inner: Mutex<(EngineStats, u64)>,
    warnings: Mutex<Vec<String>>,
}

/// Most warnings that are kept.
const WARNING_LIMIT: usize = 16;

impl StatsCell {
    /// Changes them.
    pub(crate) fn update(&self, change: impl FnOnce(&mut EngineStats)) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut inner.0);
    }

    /// Keeps a sentence for people; one that is kept already is not kept twice.
    pub(crate) fn warn(&self, text: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < WARNING_LIMIT && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// The warnings so far.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.clone()
    }

    /// Counts a step.
    pub(crate) fn count_step(&self, n_streams: usize, n_tokens: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.1 += n_streams as u64;
        let total = inner.1;
        let stats = &mut inner.0;
        stats.steps += 1;
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let mean = total as f64 / stats.steps as f64;
        stats.batch_streams_mean = mean;
        let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        stats.batch_streams_max = stats.batch_streams_max.max(clamp(n_streams));
        stats.batch_tokens_max = stats.batch_tokens_max.max(clamp(n_tokens));
    }

    /// A copy.
    pub(crate) fn get(&self) -> EngineStats {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}
