//! Grammars over tokens, by llguidance.
//!
//! Sketch: building the token trie and the slices costs about a second for a vocabulary of
//! 150,000, so it is done once per model, in the background. A grammar compiles in about a
//! millisecond and is kept. Per token the drawn one is validated (microseconds); only if it
//! is refused the mask over the vocabulary is computed, or where a text is brought to its end. With calls of a nested schema at
//! temperature 1 this takes 0.4 % of the decodes' time at one stream and 0.2 % at eight
//! (`engine_bench MODEL 1 masks`, SmolLM2-135M), so it is done between the decodes: a thread
//! beside them would win nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};

use crate::exits::{Exits, Place, Way};
use crate::ffi::TokenKind;
use crate::member_names::MemberNames;
use crate::request::Grammar;
use crate::vocab::Vocab;
use crate::{Error, ErrorKind, TokenId};

/// Longest grammar text.
const GRAMMAR_LIMIT_BYTES: usize = 1 << 20;
/// Compiled grammars kept, the least recently used goes first.
const CACHE_LEN: usize = 32;

/// Compiles grammars for one vocabulary.
pub(crate) struct GrammarCompiler {
    vocab: Arc<Vocab>,
    tables: OnceLock<Result<Tables, String>>,
    /// Most recently used last.
    cache: Mutex<VecDeque<(String, Matcher)>>,
}

/// What is built once per vocabulary.
pub(crate) struct Tables {
    factory: ParserFactory,
    exits: Arc<Exits>,
}

impl GrammarCompiler {
    pub(crate) fn new(vocab: Arc<Vocab>) -> Self {
        Self {
            vocab,
            tables: OnceLock::new(),
            cache: Mutex::default(),
        }
    }

    /// Builds the tables; returns at once if they are built, waits if another thread builds.
    pub(crate) fn warm_up(&self) -> Result<&Tables, Error> {
        self.tables
            .get_or_init(|| build_tables(&self.vocab))
            .as_ref()
            .map_err(|e| Error::new(ErrorKind::Internal, format!("no grammar engine: {e}")))
    }

    /// A matcher at the start of the grammar.
    pub(crate) fn compile(&self, grammar: &Grammar) -> Result<GrammarRule, Error> {
        let text = &grammar.lark;
        if text.len() > GRAMMAR_LIMIT_BYTES {
            return Err(Error::new(
                ErrorKind::GrammarTooLarge,
                format!(
                    "the grammar has {} bytes, allowed: {GRAMMAR_LIMIT_BYTES}",
                    text.len()
                ),
            ));
        }
        let tables = self.warm_up()?;
        let rule_of = |matcher| rule_of(matcher, grammar, &tables.exits);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(idx) = cache.iter().position(|(t, _)| t == text)
            && let Some(entry) = cache.remove(idx)
        {
            let matcher = entry.1.deep_clone();
            cache.push_back(entry);
            return Ok(rule_of(matcher));
        }
        drop(cache);
        let bad = |e: String| {
            let first = e.lines().next().unwrap_or("no reason given").to_owned();
            Error::new(
                ErrorKind::BadGrammar,
                format!("the grammar does not compile: {first}"),
            )
        };
        let parser = tables
            .factory
            .create_parser(TopLevelGrammar::from_lark(text.clone()))
            .map_err(|e| bad(e.to_string()))?;
        let matcher = Matcher::new(Ok(parser));
        if let Some(e) = matcher.get_error() {
            return Err(bad(e));
        }
        let rule = rule_of(matcher.deep_clone());
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHE_LEN {
            cache.pop_front();
        }
        cache.push_back((text.clone(), matcher));
        Ok(rule)
    }
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler").finish_non_exhaustive()
    }
}

/// Control tokens match only as special tokens, so no text can spell them; tokens that are
/// never split are ordinary text.
fn build_tables(vocab: &Vocab) -> Result<Tables, String> {
    let words: Vec<Vec<u8>> = (0..vocab.len())
        .map(|token| {
            let piece = vocab.piece(token);
            let is_special = vocab.ends_turn(token)
                || matches!(vocab.kind(token), TokenKind::Control | TokenKind::Unknown);
            if is_special && !piece.is_empty() {
                let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
                word.extend_from_slice(piece);
                word
            } else if piece.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                // A byte that no UTF-8 text holds would read as a special token.
                Vec::new()
            } else {
                piece.to_vec()
            }
        })
        .collect();
    let mut ends: Vec<TokenId> = vec![vocab.eog()];
    ends.extend((0..vocab.len()).filter(|&t| vocab.ends_turn(t) && t != vocab.eog()));
    let info = TokRxInfo::new(vocab.len(), vocab.eog());
    let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new(
        &env,
        InferenceCapabilities::default(),
        &SlicedBiasComputer::general_slices(),
    )
    .map_err(|e| e.to_string())?;
    factory.quiet();
    Ok(Tables {
        factory,
        exits: Arc::new(Exits::new(vocab)),
    })
}

/// What a grammar leaves no choice about.
#[derive(Debug)]
pub(crate) enum Forced {
    /// There is a choice.
    Nothing,
    /// A control token.
    Token(TokenId),
    /// Text, which may be the beginning of more.
    Text(String),
}

/// One turn's place in its grammar.
#[derive(Clone)]
pub(crate) struct GrammarRule {
    matcher: Matcher,
    names: MemberNames,
    exits: Arc<Exits>,
    /// The last byte of the text.
    last_byte: u8,
    is_lazy: bool,
    is_optional: bool,
    /// Time that was spent here since it was last asked for.
    spent: Duration,
}

fn rule_of(matcher: Matcher, grammar: &Grammar, exits: &Arc<Exits>) -> GrammarRule {
    GrammarRule {
        matcher,
        names: MemberNames::new(grammar.opens_at.as_deref()),
        exits: Arc::clone(exits),
        last_byte: b'\n',
        is_lazy: grammar.opens_at.is_some(),
        is_optional: grammar.is_optional,
        spent: Duration::ZERO,
    }
}

impl GrammarRule {
    /// True if all of the answer is bound.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_lazy
    }

    /// True if the turn can do without.
    pub(crate) fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// The time that was spent here since the last call.
    pub(crate) fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    /// True if the text may end here.
    pub(crate) fn may_end(&mut self) -> Result<bool, Error> {
        if self.is_complete() {
            return Ok(true);
        }
        self.timed(|rule| rule.matcher.is_accepting().map_err(|e| broken(&e)))
    }

    /// True if this token, with these bytes, may come next; it must not end the turn.
    pub(crate) fn allows(&mut self, token: TokenId, piece: &[u8]) -> Result<bool, Error> {
        self.timed(|rule| {
            let n_valid = rule.matcher.validate_tokens(&[token]);
            let is_valid = n_valid.map(|n| n == 1).map_err(|e| broken(&e))?;
            Ok(is_valid && rule.names.admits(piece) && rule.leads_on(token, piece))
        })
    }

    /// False if the grammar leaves no name behind this token, or only one that the object has
    /// already: llguidance takes the comma before it sees that none is left.
    fn leads_on(&self, token: TokenId, piece: &[u8]) -> bool {
        let Some(names) = self.names.open_key(piece) else {
            return true;
        };
        let mut ahead = self.matcher.clone();
        if ahead.consume_token(token).is_err() {
            return true;
        }
        let forced = ahead.compute_ff_bytes();
        if !names.admits(&forced) {
            return false;
        }
        // Masks are dear: one for each comma.
        if !piece.contains(&b',') {
            return true;
        }
        let tokens = ahead
            .tok_env()
            .map(|env| env.tok_trie().greedy_tokenize(&forced));
        tokens.is_ok_and(|tokens| ahead.consume_tokens(&tokens).is_ok())
            && (ahead.is_stopped() || ahead.compute_mask().is_ok())
    }

    /// How many of these tokens may come next, one after the other.
    pub(crate) fn n_allowed(&mut self, tokens: &[TokenId], vocab: &Vocab) -> Result<usize, Error> {
        self.timed(|rule| {
            let n_valid = rule.matcher.validate_tokens(tokens);
            let n_valid = n_valid.map_err(|e| broken(&e))?;
            let pieces = tokens[..n_valid].iter().map(|&token| vocab.piece(token));
            Ok(rule.names.n_admitted(pieces))
        })
    }

    /// What has to come next.
    pub(crate) fn forced(&mut self) -> Forced {
        let bytes = self.timed(|rule| rule.matcher.compute_ff_bytes());
        let marker = bytes
            .iter()
            .position(|b| *b == TokTrie::SPECIAL_TOKEN_MARKER);
        if marker == Some(0) {
            return control_token(&bytes[1..]).map_or(Forced::Nothing, Forced::Token);
        }
        let text = &bytes[..marker.unwrap_or(bytes.len())];
        match std::str::from_utf8(text) {
            Ok(text) if !text.is_empty() => Forced::Text(text.to_owned()),
            // Half a character: the draw decides on the tokens.
            _ => Forced::Nothing,
        }
    }

    /// Every token that may come next, ends of the turn included where the text may end.
    pub(crate) fn allowed(&mut self) -> Result<Vec<TokenId>, Error> {
        self.timed(|rule| {
            let mask = rule.matcher.compute_mask_or_eos().map_err(|e| broken(&e))?;
            Ok(mask.iter().collect())
        })
    }

    /// The tokens that lead out of the grammar, the best that are allowed.
    pub(crate) fn exits(&mut self, vocab: &Vocab) -> Result<Vec<TokenId>, Error> {
        Arc::clone(&self.exits).allowed(self, vocab)
    }

    /// The way that [`Self::exits`] leads.
    pub(crate) fn way_out(&mut self, vocab: &Vocab) -> Way {
        self.timed(|rule| rule.exits.walk(rule.clone(), vocab))
    }

    /// The same behind this token, which is allowed.
    pub(crate) fn way_out_behind(&mut self, token: TokenId, vocab: &Vocab) -> Way {
        self.timed(|rule| {
            let mut behind = rule.clone();
            match behind.take(token, vocab.piece(token)) {
                Ok(()) => rule.exits.walk(behind, vocab),
                Err(_) => Way::Unknown,
            }
        })
    }

    /// Where the text stands.
    pub(crate) fn place(&self) -> Place {
        match self.names.json() {
            Some(json) if json.in_string() => Place::InString,
            Some(_) => Place::InObject {
                after_space: self.last_byte == b' ',
            },
            None => Place::Outside {
                at_line_start: self.last_byte == b'\n',
            },
        }
    }

    /// Goes on by a token that is allowed.
    pub(crate) fn take(&mut self, token: TokenId, piece: &[u8]) -> Result<(), Error> {
        self.timed(|rule| {
            rule.names.push(piece);
            rule.last_byte = piece.last().copied().unwrap_or(rule.last_byte);
            rule.matcher.consume_token(token).map_err(|e| broken(&e))
        })
    }

    fn timed<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let start = Instant::now();
        let done = work(self);
        self.spent += start.elapsed();
        done
    }

    /// True if nothing can follow any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}

impl std::fmt::Debug for GrammarRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarRule")
            .field("is_complete", &self.is_complete())
            .finish_non_exhaustive()
    }
}

/// The number in `[7]...`, as llguidance names a control token behind its marker.
fn control_token(bytes: &[u8]) -> Option<TokenId> {
    let rest = bytes.strip_prefix(b"[")?;
    let end = rest.iter().position(|b| *b == b']')?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

fn broken(e: &impl std::fmt::Display) -> Error {
    let text = e.to_string();
    let first = text.lines().next().unwrap_or_default().to_owned();
    // A schema that nothing can fit compiles and fails here.
    Error::new(
        ErrorKind::BadGrammar,
        format!("the grammar cannot go on: {first}"),
    )
}
