//! Where a turn's tokens come from: the sampler chain, or a script.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use twopass_core::chat::Sampling;

use crate::ffi::{Candidates, Sampler, SamplerParams};
use crate::vocab::Vocab;
use crate::{Error, ErrorKind, TokenId};

/// Draws tokens.
#[derive(Debug)]
pub(crate) enum Source {
    /// From the model's logits.
    Sampler(Sampler),
    /// These tokens, then the end of the turn.
    Script {
        /// The tokens.
        tokens: Vec<TokenId>,
        /// The next one.
        next: usize,
    },
}

/// What may be drawn at one point.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Tokens that were refused here.
    pub(crate) refused: Vec<TokenId>,
    /// The only tokens that are allowed, if the grammar had to say.
    pub(crate) allowed: Option<Vec<TokenId>>,
}

impl Source {
    /// Draws one token; `None` if nothing is left to draw.
    pub(crate) fn draw(
        &mut self,
        logits: &[f32],
        choice: &Choice,
        candidates: &mut Candidates,
        vocab: &Vocab,
    ) -> Result<Option<TokenId>, Error> {
        let sampler = match self {
            Self::Script { tokens, next } => {
                return Ok(Some(tokens.get(*next).copied().unwrap_or(vocab.eog())));
            }
            Self::Sampler(sampler) => sampler,
        };
        let no_number = || {
            Error::new(
                ErrorKind::Internal,
                "the model gave no finite logit: the file is damaged or not supported",
            )
        };
        match &choice.allowed {
            Some(allowed) => {
                let allowed = allowed.iter().copied();
                candidates.fill_allowed(logits, allowed, &choice.refused);
                Ok(candidates.draw(sampler))
            }
            None if sampler.is_plain_greedy() && choice.refused.is_empty() => {
                argmax(logits).ok_or_else(no_number).map(Some)
            }
            None => {
                match sampler.best_only() {
                    Some(k) if choice.refused.is_empty() => candidates.fill_best(logits, k),
                    _ => candidates.fill(logits, &choice.refused),
                }
                candidates.draw(sampler).ok_or_else(no_number).map(Some)
            }
        }
    }

    /// The drawn token was refused: a script goes on to its next one.
    pub(crate) fn skip(&mut self) {
        if let Self::Script { next, .. } = self {
            *next += 1;
        }
    }

    /// The drawn token was taken.
    pub(crate) fn took(&mut self, token: TokenId) {
        match self {
            Self::Sampler(sampler) => sampler.accept(token),
            Self::Script { next, .. } => *next += 1,
        }
    }

    /// The last tokens were taken back: a script draws them again.
    pub(crate) fn untake(&mut self, n_tokens: usize) {
        if let Self::Script { next, .. } = self {
            *next = next.saturating_sub(n_tokens);
        }
    }

    /// True for a script that has been told to its end.
    pub(crate) fn is_script_over(&self) -> bool {
        matches!(self, Self::Script { tokens, next } if *next >= tokens.len())
    }

    /// True for a script.
    pub(crate) fn is_script(&self) -> bool {
        matches!(self, Self::Script { .. })
    }
}

/// The largest finite logit; the first of equals.
pub(crate) fn argmax(logits: &[f32]) -> Option<TokenId> {
    let mut best = (f32::NEG_INFINITY, None);
    for (&logit, token) in logits.iter().zip(0_u32..) {
        if logit > best.0 {
            best = (logit, Some(token));
        }
    }
    best.1.filter(|_| best.0.is_finite())
}

/// Logarithm of the sum of all exponentials: what logits and log probabilities differ by.
pub(crate) fn log_sum_exp(logits: &[f32]) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // Summed in double precision: the terms differ by many orders of magnitude.
    let sum: f64 = logits.iter().map(|l| f64::from((l - most).exp())).sum();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "logits are single precision"
    )]
    let log = sum.ln() as f32;
    most + log
}

/// Checks the caller's values and fills in the defaults.
pub(crate) fn sampler_params(sampling: &Sampling) -> Result<SamplerParams, Error> {
    let number = |name, value: Option<f32>, default: f32, low: f32, high: f32| {
        let value = value.unwrap_or(default);
        if (low..=high).contains(&value) {
            Ok(value)
        } else {
            let text = format!("must be {low} to {high}, got {value}");
            Err(Error::bad_request(name, text))
        }
    };
    let s = sampling;
    let seed = s
        .seed
        .unwrap_or_else(|| RandomState::new().build_hasher().finish());
    #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed in")]
    let seed = (seed ^ (seed >> 32)) as u32;
    Ok(SamplerParams {
        temperature: number("temperature", s.temperature, 0.3, 0.0, 100.0)?,
        top_k: s.top_k.unwrap_or(40),
        top_p: number("top_p", s.top_p, 0.95, 0.0, 1.0)?,
        min_p: number("min_p", s.min_p, 0.05, 0.0, 1.0)?,
        // llama.cpp reads the largest seed as "any".
        seed: seed.min(u32::MAX - 1),
        repeat_penalty: number("repeat_penalty", s.repeat_penalty, 1.0, 0.01, 10.0)?,
        frequency_penalty: number("frequency_penalty", s.frequency_penalty, 0.0, -2.0, 2.0)?,
        presence_penalty: number("presence_penalty", s.presence_penalty, 0.0, -2.0, 2.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_a_softmax() {
        let logits = [0.0, 1.0, -2.0, 1000.0_f32.ln()];
        let sum: f32 = logits.iter().map(|l| l.exp()).sum();
        assert!((log_sum_exp(&logits) - sum.ln()).abs() < 1e-5);
        // No overflow.
        assert!((log_sum_exp(&[500.0, 500.0]) - (500.0 + 2.0_f32.ln())).abs() < 1e-4);
    }
}
