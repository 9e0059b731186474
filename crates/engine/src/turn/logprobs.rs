//! How likely the tokens of the answer were, by the model's own distribution.

use twopass_core::chat::{TokenLogprob, TopLogprob};
use twopass_core::control::Phase;

use super::Turn;
use crate::TokenId;
use crate::draw::log_sum_exp;
use crate::vocab::Vocab;

impl Turn {
    /// Notes the probability of a token that is about to be taken, if its reader wants it.
    /// Tokens of the thought have none.
    pub(super) fn note_logprob(&mut self, token: TokenId, logits: &[f32], vocab: &Vocab) {
        let Some(n_top) = self.logprobs.filter(|_| self.phase() == Phase::Answering) else {
            return;
        };
        let norm = log_sum_exp(logits);
        let of = |token: TokenId| {
            logits
                .get(token as usize)
                .map_or(f32::NEG_INFINITY, |l| l - norm)
        };
        let top = likeliest(logits, n_top as usize).into_iter();
        self.text.logprobs.push(TokenLogprob {
            bytes: vocab.piece(token).to_vec(),
            logprob: of(token),
            top: top
                .map(|token| TopLogprob {
                    bytes: vocab.piece(token).to_vec(),
                    logprob: of(token),
                })
                .collect(),
        });
    }
}

/// The tokens of the largest logits, the largest first; of equal ones the first.
fn likeliest(logits: &[f32], n: usize) -> Vec<TokenId> {
    let mut best: Vec<(f32, TokenId)> = Vec::with_capacity(n + 1);
    for (&logit, token) in logits.iter().zip(0..) {
        if best.len() == n && best.last().is_none_or(|least| logit <= least.0) {
            continue;
        }
        let at = best.partition_point(|&(other, _)| other >= logit);
        best.insert(at, (logit, token));
        best.truncate(n);
    }
    best.into_iter().map(|(_, token)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first() {
        let logits = [1.0, 4.0, 3.0, 4.0, f32::NEG_INFINITY];
        let rows: [(usize, &[TokenId]); 4] =
            [(0, &[]), (1, &[1]), (3, &[1, 3, 2]), (9, &[1, 3, 2, 0, 4])];
        for (n, expect) in rows {
            assert_eq!(likeliest(&logits, n), expect, "{n}");
        }
    }
}
