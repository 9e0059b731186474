//! The way out of a grammar, for a text whose tokens run short.
//!
//! A call that is cut off at its cap is no call. So the rest of a bound text is measured by
//! the words that end things (a quotation mark in a string, else brackets, separators and
//! plain values), and once no more tokens are left than it takes, only those words are drawn.
//! The measure is that of the longest such way, one bracket at a time; a grammar may still
//! demand more than is left, and then the text is cut.

use crate::grammar::{Forced, GrammarRule};
use crate::vocab::Vocab;
use crate::{Error, TokenId};

/// Where a text stands, as far as its end is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a JSON string.
    InString,
    /// In a JSON object, in no string.
    InObject {
        /// Behind a space.
        after_space: bool,
    },
    /// In markup, or in JSON that is no object.
    Outside {
        /// Behind a line's end.
        at_line_start: bool,
    },
}

/// The tokens of a vocabulary that end things, with a space before them or without.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    /// `"`
    quotes: Vec<TokenId>,
    /// `}` and `]`
    brackets: Vec<TokenId>,
    /// `,` and `:`
    separators: Vec<TokenId>,
    /// Digits, and the beginnings of `null`, `true` and `false`.
    values: Vec<TokenId>,
    /// `</`
    closing_tags: Vec<TokenId>,
    /// A line's end.
    line_ends: Vec<TokenId>,
    /// One space.
    spaces: Vec<TokenId>,
}

impl Exits {
    pub(crate) fn new(vocab: &Vocab) -> Self {
        let mut exits = Self::default();
        for token in 0..vocab.len() {
            let piece = vocab.piece(token);
            let kind = match piece.strip_prefix(b" ").unwrap_or(piece) {
                b"" if !piece.is_empty() => &mut exits.spaces,
                b"\"" => &mut exits.quotes,
                b"}" | b"]" => &mut exits.brackets,
                b"," | b":" => &mut exits.separators,
                b"</" => &mut exits.closing_tags,
                b"\n" => &mut exits.line_ends,
                [digit] if digit.is_ascii_digit() => &mut exits.values,
                piece if begins_word(piece) => &mut exits.values,
                _ => continue,
            };
            kind.push(token);
        }
        exits
    }

    /// The kinds that end things at this place, the first that is allowed before all others.
    fn at(&self, place: Place) -> [&[TokenId]; 6] {
        let Self {
            quotes,
            brackets,
            separators,
            values,
            closing_tags,
            line_ends,
            spaces,
        } = self;
        match place {
            Place::InString => [quotes, values, &[], &[], &[], &[]],
            Place::InObject { after_space } => {
                let spaces = if after_space { &[] } else { spaces.as_slice() };
                [brackets, separators, values, quotes, spaces, &[]]
            }
            Place::Outside {
                at_line_start: true,
            } => [closing_tags, quotes, brackets, separators, values, &[]],
            Place::Outside { .. } => [quotes, brackets, separators, values, line_ends, &[]],
        }
    }

    /// The allowed ones of the first kind of which any is; else whatever is allowed.
    pub(crate) fn allowed(
        &self,
        rule: &mut GrammarRule,
        vocab: &Vocab,
    ) -> Result<Vec<TokenId>, Error> {
        for kind in self.at(rule.place()) {
            let mut allowed = Vec::new();
            for &token in kind {
                if rule.allows(token, vocab.piece(token))? {
                    allowed.push(token);
                }
            }
            if !allowed.is_empty() {
                return Ok(allowed);
            }
        }
        let mut allowed = rule.allowed()?;
        // White space leads nowhere.
        let is_word = |token: &TokenId| !vocab.piece(*token).trim_ascii().is_empty();
        if allowed.iter().any(is_word) {
            allowed.retain(is_word);
        }
        Ok(allowed)
    }

    /// How many tokens the way out takes from here; `None`: more than `most`, or the grammar
    /// cannot go on.
    pub(crate) fn tokens_to_end(
        &self,
        mut rule: GrammarRule,
        most: usize,
        vocab: &Vocab,
    ) -> Option<usize> {
        let mut n_tokens = 0;
        while !rule.may_end().ok()? {
            if n_tokens >= most {
                return None;
            }
            let mut step = match rule.forced() {
                Forced::Token(token) => vec![token],
                Forced::Text(text) => vocab.tokenize_literal(&text).ok()?,
                Forced::Nothing => Vec::new(),
            };
            let n_valid = rule.n_allowed(&step, vocab).ok()?;
            step.truncate(n_valid);
            if step.is_empty() {
                let allowed = self.allowed(&mut rule, vocab).ok()?;
                let shortest = allowed.into_iter().min_by_key(|&token| {
                    // A control token ends a part of its own.
                    vocab.piece(token).len()
                });
                step.push(shortest?);
            }
            for token in step {
                rule.take(token, vocab.piece(token)).ok()?;
                n_tokens += 1;
            }
        }
        Some(n_tokens)
    }
}

fn begins_word(piece: &[u8]) -> bool {
    let words: [&[u8]; 3] = [b"null", b"true", b"false"];
    !piece.is_empty() && words.iter().any(|word| word.starts_with(piece))
}
