//! Several tokens in one step: what the grammar leaves no choice about, and guesses.
//!
//! Forced tokens are taken without a draw and computed together. Guessed ones are computed
//! behind the waiting token; then every position is drawn as always, and a guess is worth a
//! step if the draw is equal to it. So guesses change no draw.

use crate::Error;
use crate::TokenId;
use crate::grammar::Forced;
use crate::stream::Sender;
use crate::vocab::Vocab;
use twopass_core::control::Phase;

use super::{FORCED_LIMIT, Turn};

impl Turn {
    /// Takes the tokens that the grammar leaves no choice about; false if there are none.
    pub(super) fn take_forced(&mut self, vocab: &Vocab, out: &Sender) -> Result<bool, Error> {
        // Of a token that is not drawn no probability is known.
        let is_drawn = self.source.is_script() || self.logprobs.is_some();
        if self.phase() != Phase::Answering || is_drawn {
            return Ok(false);
        }
        let Some(grammar) = &mut self.grammar else {
            return Ok(false);
        };
        let tokens = match grammar.forced() {
            Forced::Nothing => return Ok(false),
            Forced::Token(token) => vec![token],
            Forced::Text(text) => {
                let mut tokens = vocab.tokenize_written(&text)?;
                // The last one may go on beyond what is certain.
                let _ = tokens.pop_if(|token| !vocab.is_whole_marker(*token));
                spelled(&text, tokens, vocab)
            }
        };
        let n_valid = grammar.n_allowed(&tokens, vocab)?;
        for &token in tokens.iter().take(n_valid.min(FORCED_LIMIT)) {
            // A grammar that was given up forces nothing any more.
            if self.has_ended() || self.grammar.is_none() {
                break;
            }
            self.take(token, vocab, out)?;
            self.counts.without_draw += 1;
        }
        Ok(n_valid > 0)
    }

    /// Forgets the guesses of the last step. Returns how many tokens may be guessed now.
    pub(crate) fn clear_draft(&mut self) -> usize {
        self.draft.clear();
        if self.pending().len() != 1 || self.source.is_script() {
            return 0;
        }
        let room = self.limit_tokens.saturating_sub(self.tokens.len() + 1);
        let cap = match self.phase() {
            Phase::Answering => self.max_tokens,
            Phase::Thinking | Phase::CallInThought => None,
        };
        // The last token of a turn is never computed, so nothing is guessed behind it.
        let left = cap.map_or(usize::MAX, |cap| {
            (cap as usize).saturating_sub(self.counts.answer as usize + 1)
        });
        room.min(left)
    }

    /// Guesses what followed the last words before, at most so many tokens; false if that says
    /// nothing.
    pub(crate) fn look_up_draft(&mut self, most: usize) -> bool {
        if let Some(lookup) = &mut self.lookup {
            lookup.guess(&self.tokens, most, &mut self.draft);
        }
        !self.draft.is_empty()
    }

    /// Takes guesses over.
    pub(crate) fn set_draft(&mut self, guess: Vec<TokenId>) {
        self.draft = guess;
    }

    /// Keeps the guesses to so many.
    pub(crate) fn limit_draft(&mut self, most: usize) {
        self.draft.truncate(most);
    }

    /// The guesses of the current step.
    pub(crate) fn draft(&self) -> &[TokenId] {
        &self.draft
    }

    /// True if the token just drawn is the next guess, which is then in the cache.
    pub(crate) fn accept_draft(&mut self, idx: usize) -> bool {
        let is_equal = !self.has_ended()
            && !self.is_rewound
            && self.pending().len() == 1
            && self.draft.get(idx) == self.pending().first();
        if is_equal {
            self.in_cache += 1;
        }
        is_equal
    }

    /// Tokens that were taken without a draw.
    pub(crate) fn n_without_draw(&self) -> u64 {
        self.counts.without_draw
    }
}

/// The tokens that really spell the beginning of this text.
fn spelled(text: &str, mut tokens: Vec<TokenId>, vocab: &Vocab) -> Vec<TokenId> {
    let mut rest = text.as_bytes();
    let fits = tokens.iter().take_while(|&&token| {
        let piece = vocab.piece(token);
        let tail = rest.strip_prefix(piece).filter(|_| !piece.is_empty());
        rest = tail.unwrap_or_default();
        tail.is_some()
    });
    let n_fits = fits.count();
    tokens.truncate(n_fits);
    tokens
}
