//! Bringing a bound text to its end before the tokens run out.

use twopass_core::control::Phase;

use super::Turn;
use crate::vocab::Vocab;
use crate::{Error, TokenId};

/// Tokens that are left over, for words that take more than they were measured by.
const SPARE_TOKENS: usize = 4;
/// A way out that is longer than this is not measured.
const MEASURE_LIMIT: usize = 1024;

/// When the way out is taken.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// It is measured again once no more tokens than this are left; `None`: it never was.
    measure_at: Option<usize>,
    /// It is being taken.
    is_on: bool,
    /// Tokens were drawn for their being short.
    pub(super) is_hurried: bool,
}

impl Turn {
    /// The tokens to draw from where the text has to come to its end; `None`: it has time.
    pub(super) fn exits(&mut self, vocab: &Vocab) -> Result<Option<Vec<TokenId>>, Error> {
        if self.phase() != Phase::Answering || self.source.is_script() {
            return Ok(None);
        }
        let left = self.tokens_left();
        let Some(grammar) = &mut self.grammar else {
            return Ok(None);
        };
        let ending = &mut self.ending;
        if !ending.is_on && ending.measure_at.is_some_and(|at| left > at) {
            return Ok(None);
        }
        if grammar.may_end()? {
            return Ok(None);
        }
        if !ending.is_on {
            let most = left.min(MEASURE_LIMIT);
            let needed = grammar.tokens_to_end(most, vocab);
            let needed = needed.map_or(most, |n_tokens| n_tokens + SPARE_TOKENS);
            if needed < left {
                // The farther the end, the more rarely it is looked for.
                ending.measure_at = Some(needed + (left - needed) / 2);
                return Ok(None);
            }
            ending.is_on = true;
        }
        ending.is_hurried = true;
        grammar.exits(vocab).map(Some)
    }

    /// Tokens that the answer may still have.
    fn tokens_left(&self) -> usize {
        let room = self.limit_tokens.saturating_sub(self.tokens.len());
        let cap = self.max_tokens.map_or(usize::MAX, |cap| cap as usize);
        room.min(cap.saturating_sub(self.counts.answer as usize))
    }
}
