//! The way out of a grammar, for a text whose tokens run short.
//!
//! A call that is cut off at its cap is no call. So the rest of a bound text is measured by a
//! walk along the words that end things: a quotation mark in a string, else brackets,
//! separators and plain values, and where none of them may stand, the shortest piece that may.
//! That is one way out, not the shortest, and some grammars it never leaves: that of an e-mail
//! address is one. Nothing is known of those, and they are left alone.

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

/// What is known of the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It takes so many tokens.
    Tokens(usize),
    /// It is long, or the walk does not find it.
    Unknown,
}

/// The most tokens of a walk.
const WALK_TOKENS: usize = 128;
/// The most masks over the vocabulary that a walk computes.
const WALK_MASKS: usize = 32;

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
    fn at(&self, place: Place) -> [&[TokenId]; 5] {
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
            // What a string lacks before it may end is the model's to say.
            Place::InString => [quotes, &[], &[], &[], &[]],
            Place::InObject { after_space } => {
                let spaces = if after_space { &[] } else { spaces.as_slice() };
                [brackets, separators, values, quotes, spaces]
            }
            Place::Outside {
                at_line_start: true,
            } => [closing_tags, quotes, brackets, separators, values],
            Place::Outside { .. } => [quotes, brackets, separators, values, line_ends],
        }
    }

    /// The allowed ones of the first kind of which any is; else whatever is allowed.
    pub(crate) fn allowed(
        &self,
        rule: &mut GrammarRule,
        vocab: &Vocab,
    ) -> Result<Vec<TokenId>, Error> {
        match self.known(rule, vocab)? {
            known if known.is_empty() => others(rule, vocab),
            known => Ok(known),
        }
    }

    fn known(&self, rule: &mut GrammarRule, vocab: &Vocab) -> Result<Vec<TokenId>, Error> {
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
        Ok(Vec::new())
    }

    /// Walks out from here.
    pub(crate) fn walk(&self, rule: GrammarRule, vocab: &Vocab) -> Way {
        let walked = self.try_walk(rule, vocab).ok().flatten();
        walked.map_or(Way::Unknown, Way::Tokens)
    }

    fn try_walk(&self, mut rule: GrammarRule, vocab: &Vocab) -> Result<Option<usize>, Error> {
        let (mut n_tokens, mut n_masks) = (0, 0);
        while !rule.may_end()? {
            let mut step = match rule.forced() {
                Forced::Token(token) => vec![token],
                Forced::Text(text) => vocab.tokenize_written(&text)?,
                Forced::Nothing => Vec::new(),
            };
            let n_valid = rule.n_allowed(&step, vocab)?;
            step.truncate(n_valid);
            if step.is_empty() {
                let mut allowed = self.known(&mut rule, vocab)?;
                if allowed.is_empty() {
                    n_masks += 1;
                    if n_masks > WALK_MASKS {
                        return Ok(None);
                    }
                    allowed = others(&mut rule, vocab)?;
                }
                let shortest = allowed
                    .into_iter()
                    .min_by_key(|&token| vocab.piece(token).len());
                let Some(shortest) = shortest else {
                    return Ok(None);
                };
                step.push(shortest);
            }
            for token in step {
                rule.take(token, vocab.piece(token))?;
                n_tokens += 1;
            }
            if n_tokens > WALK_TOKENS {
                return Ok(None);
            }
        }
        Ok(Some(n_tokens))
    }
}

/// What the grammar allows; no white space if anything else is, since it leads nowhere.
fn others(rule: &mut GrammarRule, vocab: &Vocab) -> Result<Vec<TokenId>, Error> {
    let mut allowed = rule.allowed()?;
    let is_word = |token: &TokenId| !vocab.piece(*token).trim_ascii().is_empty();
    if allowed.iter().any(is_word) {
        allowed.retain(is_word);
    }
    Ok(allowed)
}

fn begins_word(piece: &[u8]) -> bool {
    let words: [&[u8]; 3] = [b"null", b"true", b"false"];
    !piece.is_empty() && words.iter().any(|word| word.starts_with(piece))
}
