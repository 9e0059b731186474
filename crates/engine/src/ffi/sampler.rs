//! llama.cpp's sampler chain over a reusable buffer of candidates.

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

/// How far back the penalties look, in tokens.
const PENALTY_WINDOW_TOKENS: i32 = 256;

/// More candidates than this are left to llama.cpp to choose.
const BEST_LIMIT: usize = 256;

/// A checked set of sampling values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SamplerParams {
    /// 0 = greedy.
    pub(crate) temperature: f32,
    pub(crate) top_k: u32,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    pub(crate) seed: u32,
    pub(crate) repeat_penalty: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) presence_penalty: f32,
}

/// One stream's sampler chain with its random state.
#[derive(Debug)]
pub(crate) struct Sampler {
    chain: NonNull<sys::llama_sampler>,
    has_penalties: bool,
    is_greedy: bool,
    top_k: usize,
}

// SAFETY: a chain is owned by one value and used by one thread at a time.
unsafe impl Send for Sampler {}

impl Sampler {
    /// `None` if llama.cpp cannot allocate the chain.
    pub(crate) fn new(params: SamplerParams, n_vocab: u32) -> Option<Self> {
        // SAFETY: a plain struct in, an owned chain out.
        let chain = NonNull::new(unsafe {
            let mut chain_params = sys::llama_sampler_chain_default_params();
            chain_params.no_perf = true;
            sys::llama_sampler_chain_init(chain_params)
        })?;
        let has_penalties = params.repeat_penalty != 1.0
            || params.frequency_penalty != 0.0
            || params.presence_penalty != 0.0;
        let is_greedy = params.temperature <= 0.0;
        let sampler = Self {
            chain,
            has_penalties,
            is_greedy,
            top_k: params.top_k as usize,
        };
        let n_vocab = i32::try_from(n_vocab).unwrap_or(i32::MAX);
        if has_penalties {
            // SAFETY: plain values in, an owned sampler out.
            sampler.add(unsafe {
                sys::llama_sampler_init_penalties(
                    n_vocab,
                    PENALTY_WINDOW_TOKENS,
                    params.repeat_penalty,
                    params.frequency_penalty,
                    params.presence_penalty,
                )
            })?;
        }
        if is_greedy {
            // SAFETY: as above.
            sampler.add(unsafe { sys::llama_sampler_init_greedy() })?;
            return Some(sampler);
        }
        if params.top_k > 0 {
            let k = i32::try_from(params.top_k).unwrap_or(i32::MAX);
            // SAFETY: as above.
            sampler.add(unsafe { sys::llama_sampler_init_top_k(k) })?;
        }
        if params.top_p < 1.0 {
            // SAFETY: as above.
            sampler.add(unsafe { sys::llama_sampler_init_top_p(params.top_p, 1) })?;
        }
        if params.min_p > 0.0 {
            // SAFETY: as above.
            sampler.add(unsafe { sys::llama_sampler_init_min_p(params.min_p, 1) })?;
        }
        // SAFETY: as above.
        sampler.add(unsafe { sys::llama_sampler_init_temp(params.temperature) })?;
        // SAFETY: as above.
        sampler.add(unsafe { sys::llama_sampler_init_dist(params.seed) })?;
        Some(sampler)
    }

    fn add(&self, link: *mut sys::llama_sampler) -> Option<()> {
        let link = NonNull::new(link)?;
        // SAFETY: the chain takes ownership of the link.
        unsafe { sys::llama_sampler_chain_add(self.chain.as_ptr(), link.as_ptr()) };
        Some(())
    }

    /// True if the choice is the plain maximum of the logits.
    pub(crate) fn is_plain_greedy(&self) -> bool {
        self.is_greedy && !self.has_penalties
    }

    /// How many of the best tokens the chain looks at, if that depends on the logits alone
    /// and is worth choosing beforehand.
    pub(crate) fn best_only(&self) -> Option<usize> {
        let is_plain = !self.is_greedy && !self.has_penalties;
        (is_plain && (1..=BEST_LIMIT).contains(&self.top_k)).then_some(self.top_k)
    }

    /// Tells the chain that this token was taken.
    pub(crate) fn accept(&mut self, token: u32) {
        if self.has_penalties {
            // SAFETY: the chain is alive; the token comes from its vocabulary.
            unsafe { sys::llama_sampler_accept(self.chain.as_ptr(), token.cast_signed()) };
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; frees its links too.
        unsafe { sys::llama_sampler_free(self.chain.as_ptr()) };
    }
}

/// The tokens that may be drawn, with their logits. One buffer serves all streams.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    data: Vec<sys::llama_token_data>,
}

impl Candidates {
    /// Takes every token of the vocabulary but the excluded ones.
    pub(crate) fn fill(&mut self, logits: &[f32], excluded: &[u32]) {
        self.data.clear();
        self.data.extend(
            logits
                .iter()
                .zip(0_i32..)
                .map(|(&logit, id)| entry(id, logit)),
        );
        if !excluded.is_empty() {
            self.data
                .retain(|c| !excluded.contains(&c.id.cast_unsigned()));
        }
    }

    /// Takes the `k` tokens of the largest logits, as the chain's own top-k would: one pass
    /// that reads the logits instead of one that copies them into twelve bytes each.
    pub(crate) fn fill_best(&mut self, logits: &[f32], k: usize) {
        self.data.clear();
        let mut least = f32::NEG_INFINITY;
        for (&logit, id) in logits.iter().zip(0_i32..) {
            if logit > least {
                self.data.push(entry(id, logit));
                if self.data.len() == 2 * k {
                    least = keep_best(&mut self.data, k);
                }
            }
        }
        if self.data.len() > k {
            keep_best(&mut self.data, k);
        }
    }

    /// Takes only these tokens, less the excluded ones.
    pub(crate) fn fill_allowed(
        &mut self,
        logits: &[f32],
        allowed: impl Iterator<Item = u32>,
        excluded: &[u32],
    ) {
        self.data.clear();
        for id in allowed {
            if let Some(&logit) = logits.get(id as usize)
                && !excluded.contains(&id)
            {
                self.data.push(entry(id.cast_signed(), logit));
            }
        }
    }

    /// Draws one. `None` if there is no candidate or no finite logit among them.
    pub(crate) fn draw(&mut self, sampler: &mut Sampler) -> Option<u32> {
        // A NaN or an all-infinite row would hit an assertion in the chain.
        let mut best = f32::NEG_INFINITY;
        for c in &self.data {
            if c.logit.is_nan() {
                return None;
            }
            best = best.max(c.logit);
        }
        if !best.is_finite() {
            return None;
        }
        let mut array = sys::llama_token_data_array {
            data: self.data.as_mut_ptr(),
            size: self.data.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: the array points to `size` valid entries that outlive the call; samplers
        // reorder or shorten it in place.
        unsafe { sys::llama_sampler_apply(sampler.chain.as_ptr(), &raw mut array) };
        let selected = usize::try_from(array.selected).ok()?;
        if selected >= array.size || array.size > self.data.len() {
            return None;
        }
        self.data.get(selected).map(|c| c.id.cast_unsigned())
    }
}

/// Keeps the `k` largest of more than `k` entries, returns the least logit kept.
fn keep_best(data: &mut Vec<sys::llama_token_data>, k: usize) -> f32 {
    let (_, nth, _) = data.select_nth_unstable_by(k - 1, |a, b| b.logit.total_cmp(&a.logit));
    let least = nth.logit;
    data.truncate(k);
    least
}

fn entry(id: i32, logit: f32) -> sys::llama_token_data {
    sys::llama_token_data { id, logit, p: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> SamplerParams {
        SamplerParams {
            temperature: 0.8,
            top_k: 5,
            top_p: 0.9,
            min_p: 0.01,
            seed: 3,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
        }
    }

    /// Plain against fast: the same draws from the same seeds.
    #[test]
    fn choosing_the_best_beforehand_changes_no_draw() {
        let logits: Vec<f32> = (0..2000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) % 10_007) as f32 / 1000.0)
            .collect();
        let draw = |is_fast: bool| {
            let mut sampler = Sampler::new(params(), 2000).unwrap();
            let k = sampler.best_only().unwrap();
            let mut candidates = Candidates::default();
            let mut draws = Vec::new();
            for _ in 0..200 {
                if is_fast {
                    candidates.fill_best(&logits, k);
                    assert_eq!(candidates.data.len(), k);
                } else {
                    candidates.fill(&logits, &[]);
                }
                draws.push(candidates.draw(&mut sampler).unwrap());
            }
            draws
        };
        assert_eq!(draw(true), draw(false));
    }

    #[test]
    fn rows_without_a_number_draw_nothing() {
        let mut sampler = Sampler::new(params(), 8).unwrap();
        let mut candidates = Candidates::default();
        for row in [[f32::NAN; 8], [f32::NEG_INFINITY; 8], [f32::INFINITY; 8]] {
            candidates.fill(&row, &[]);
            assert_eq!(candidates.draw(&mut sampler), None);
            candidates.fill_best(&row, 5);
            assert_eq!(candidates.draw(&mut sampler), None);
        }
        candidates.fill_allowed(&[1.0; 8], std::iter::empty(), &[]);
        assert_eq!(candidates.draw(&mut sampler), None);
    }
}
