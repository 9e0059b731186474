//! Guessing by prompt lookup: what followed the last words when they stood before.
//!
//! The longest of the last few tokens that stood earlier is looked for, and what followed
//! there is the guess. Code, quotes and tables repeat themselves; free prose does not, and a
//! wrong guess costs the step some time. So a turn whose guesses fail makes shorter ones.

use std::collections::HashMap;

use crate::TokenId;

/// Tokens that have to agree.
const NGRAM_TOKENS: usize = 3;

/// One turn's guesses.
#[derive(Debug)]
pub(crate) struct PromptLookup {
    most: usize,
    /// Where an n-gram ended last; the tokens of the first `n_indexed`.
    ends: HashMap<[TokenId; NGRAM_TOKENS], usize>,
    n_indexed: usize,
}

impl PromptLookup {
    /// Guesses of at most so many tokens.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            ends: HashMap::new(),
            n_indexed: 0,
        }
    }

    /// Appends a guess of what follows these tokens, at most `limit`. The tokens are those of
    /// the last time and more; some of the last may be others.
    pub(crate) fn guess(&mut self, tokens: &[TokenId], limit: usize, guess: &mut Vec<TokenId>) {
        let limit = limit.min(self.most);
        let n = tokens.len();
        if limit == 0 || n <= NGRAM_TOKENS {
            return;
        }
        // All but the n-gram at the end, which would find itself.
        let from = self.n_indexed.min(n - 1).max(NGRAM_TOKENS);
        for end in from..n {
            if let Some(key) = ngram(tokens, end) {
                self.ends.insert(key, end);
            }
        }
        self.n_indexed = n;
        let Some(&end) = ngram(tokens, n).and_then(|key| self.ends.get(&key)) else {
            return;
        };
        // Tokens that were taken back leave ends behind that fit no more.
        if end < n && ngram(tokens, end) == ngram(tokens, n) {
            guess.extend_from_slice(&tokens[end..n.min(end + limit)]);
        }
    }
}

fn ngram(tokens: &[TokenId], end: usize) -> Option<[TokenId; NGRAM_TOKENS]> {
    tokens
        .get(end.checked_sub(NGRAM_TOKENS)?..end)?
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_last_words_before_is_guessed() {
        let rows: [(&[TokenId], usize, &[TokenId]); 6] = [
            (&[1, 2, 3, 4, 5, 1, 2, 3], 8, &[4, 5, 1, 2, 3]),
            (&[1, 2, 3, 4, 5, 1, 2, 3], 2, &[4, 5]),
            (&[1, 2, 3, 4, 1, 2, 3, 9, 1, 2, 3], 1, &[9]),
            (&[1, 2, 3, 4, 5, 6], 8, &[]),
            (&[7, 7, 7, 7], 8, &[7]),
            (&[1, 2], 8, &[]),
        ];
        for (tokens, limit, expect) in rows {
            let mut guess = Vec::new();
            PromptLookup::new(16).guess(tokens, limit, &mut guess);
            assert_eq!(guess, expect, "{tokens:?}");
            // The same from token to token.
            let mut grown = PromptLookup::new(16);
            for n in 1..=tokens.len() {
                guess.clear();
                grown.guess(&tokens[..n], limit, &mut guess);
            }
            assert_eq!(guess, expect, "{tokens:?}");
        }
    }

    #[test]
    fn tokens_that_were_taken_back_are_not_guessed_from() {
        let mut lookup = PromptLookup::new(4);
        let mut guess = Vec::new();
        lookup.guess(&[1, 2, 3, 8, 9, 1, 2, 3, 5], 4, &mut guess);
        lookup.guess(&[1, 2, 3, 8, 9, 6, 1, 2, 3], 4, &mut guess);
        assert!(guess.is_empty());
        let longer = [1, 2, 3, 8, 9, 6, 1, 2, 3, 8, 9, 7, 1, 2, 3];
        lookup.guess(&longer, 4, &mut guess);
        assert_eq!(guess, [8, 9, 7, 1]);
    }
}
