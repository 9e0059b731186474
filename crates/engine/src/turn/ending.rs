//! Bringing a bound text to its end before the tokens run out.
//!
//! Sketch: a walk takes at most 128 tokens and 32 masks, whatever the schema. It is taken at the start of what is bound, then each time half of the spare tokens are
//! gone: about ten times within 4,096 tokens. Near the end it is taken behind each token that
//! opens something, too.

use twopass_core::control::Phase;

use super::Turn;
use crate::exits::{Place, Way};
use crate::vocab::Vocab;
use crate::{Error, TokenId};

/// Tokens that are left over: the model's words may take more than those of the walk.
const SPARE_TOKENS: usize = 12;
/// Tokens at least from one walk to the next.
const STEP_TOKENS: usize = 8;
/// With so few tokens left, what opens something is looked behind.
const LOOK_BEHIND_TOKENS: usize = 192;

/// When the way out is taken.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// It is measured again once no more tokens than this are left; `None`: at the next one.
    measure_at: Option<usize>,
    /// It is being taken.
    is_on: bool,
    /// Tokens were drawn for their being short.
    pub(super) is_hurried: bool,
}

impl Turn {
    /// The tokens to draw from where the text has to come to its end; `None`: it has time, or
    /// nobody knows what its end takes.
    pub(super) fn ending_choice(&mut self, vocab: &Vocab) -> Result<Option<Vec<TokenId>>, Error> {
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
            // What comes next is a text of its own; there is no room for it if this one had none.
            ending.measure_at = None;
            let must_end = std::mem::take(&mut ending.is_on) && grammar.is_whole();
            return Ok(must_end.then(|| vec![vocab.eog()]));
        }
        if !ending.is_on {
            let needed = match grammar.way_out(vocab) {
                Way::Tokens(n_tokens) => n_tokens + SPARE_TOKENS,
                Way::Unknown => 0,
            };
            if needed < left {
                let step = ((left - needed) / 2).max(STEP_TOKENS);
                ending.measure_at = Some(left.saturating_sub(step));
                return Ok(None);
            }
        }
        self.end_now(vocab).map(Some)
    }

    /// The same in place of a token that opens more than can be closed again.
    pub(super) fn choice_instead(
        &mut self,
        token: TokenId,
        vocab: &Vocab,
    ) -> Result<Option<Vec<TokenId>>, Error> {
        let left = self.tokens_left();
        let is_bound = self.phase() == Phase::Answering && !self.source.is_script();
        if !is_bound || left > LOOK_BEHIND_TOKENS {
            return Ok(None);
        }
        let Some(grammar) = &mut self.grammar else {
            return Ok(None);
        };
        // Behind a whole call the next one opens with any token.
        let may_end = grammar.is_whole() && grammar.may_end()?;
        let piece = vocab.piece(token);
        let in_text = grammar.place() == Place::InString && !piece.contains(&b'"');
        let opens = !in_text && piece.iter().any(|byte| b"{[,".contains(byte));
        if !may_end && !opens {
            return Ok(None);
        }
        let fits = |way, left| matches!(way, Way::Tokens(n_tokens) if n_tokens <= left);
        let behind = grammar.way_out_behind(token, vocab);
        if behind == Way::Unknown || fits(behind, left - 1) {
            return Ok(None);
        }
        if may_end {
            return Ok(Some(vec![vocab.eog()]));
        }
        if grammar.may_end()? || !fits(grammar.way_out(vocab), left) {
            return Ok(None);
        }
        self.end_now(vocab).map(Some)
    }

    fn end_now(&mut self, vocab: &Vocab) -> Result<Vec<TokenId>, Error> {
        self.ending.is_on = true;
        self.ending.is_hurried = true;
        match &mut self.grammar {
            Some(grammar) => grammar.exits(vocab),
            None => Ok(Vec::new()),
        }
    }

    /// Tokens that the answer may still have.
    fn tokens_left(&self) -> usize {
        let room = self.limit_tokens.saturating_sub(self.tokens.len());
        let cap = self.max_tokens.map_or(usize::MAX, |cap| cap as usize);
        room.min(cap.saturating_sub(self.counts.answer as usize))
    }
}
