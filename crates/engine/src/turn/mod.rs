//! One turn: its tokens, and the rules that every drawn token passes.
//!
//! Rules in order: what must end soon (`ending`, which narrows the draw), the thinking budget
//! (which may close the thought), the grammar and the duty to answer (which may ask for
//! another token), the end of the turn; then, with the token taken, stop strings, the cap, the context's end. This file knows no llama.cpp: it is
//! given a row of logits and says what the next tokens are.
//!
//! ```text
//! prompt --prefill--> Thinking --closing tag drawn-------------> Answering --> ended
//!                        |  ^                                       |
//!                        |  '-- tag drawn with budget left ---------'
//!                        '-- budget spent, turn ended, context full: closing tokens forced
//! ```

mod ahead;
mod ending;
mod logprobs;
mod outcome;
mod text;

use std::time::{Duration, Instant};

use twopass_core::chat::StopReason;
use twopass_core::control::{Admission, After, Phase, ThinkingBudget, ThinkingRule};

use crate::adapters::AdapterId;
use crate::draft::PromptLookup;
use crate::draw::{Choice, Source};
use crate::ffi::Candidates;
use crate::grammar::GrammarRule;
use crate::stream::Sender;
use crate::vocab::Vocab;
use crate::{Error, ErrorKind, TokenId};
use ending::Ending;
use text::{Text, is_blank, is_visible, opens_thought};

/// Tokens refused in a row at one point before the turn is given up.
const REDRAW_LIMIT: usize = 256;
/// Blank tokens that an answer may begin with before one that shows is demanded.
const BLANK_LIMIT: u32 = 4;
/// More waiting tokens than this are computed in chunks, as a prompt is.
const FORCED_LIMIT: usize = 64;

/// What a turn is made of.
#[derive(Debug)]
pub(crate) struct TurnParts {
    pub(crate) prompt: Vec<TokenId>,
    pub(crate) adapter: AdapterId,
    pub(crate) thinking: Option<ThinkingRule>,
    /// Tokens of the rule's closing text.
    pub(crate) close: Vec<TokenId>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) stop: Vec<String>,
    pub(crate) grammar: Option<GrammarRule>,
    pub(crate) source: Source,
    /// Alternatives per token of the answer, if their probabilities are told.
    pub(crate) logprobs: Option<u32>,
    /// Most tokens of the sequence.
    pub(crate) limit_tokens: usize,
    /// Most tokens guessed per step by what stood before; 0 = none.
    pub(crate) lookup_tokens: usize,
}

/// A turn being generated.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Prompt, drawn and forced tokens. Those past `in_cache` wait to be computed.
    tokens: Vec<TokenId>,
    in_cache: usize,
    /// Guesses of what follows `tokens`, in the batch of the current step.
    draft: Vec<TokenId>,
    lookup: Option<PromptLookup>,
    is_rewound: bool,
    adapter: AdapterId,
    prompt_len: usize,
    limit_tokens: usize,
    max_tokens: Option<u32>,
    budget_tokens: Option<u32>,
    budget: Option<ThinkingBudget>,
    close_tag: &'static str,
    close: Vec<TokenId>,
    grammar: Option<GrammarRule>,
    /// Why the grammar was dropped.
    grammar_failure: Option<String>,
    ending: Ending,
    source: Source,
    logprobs: Option<u32>,
    text: Text,
    choice: Choice,
    /// Begin of the answer until something visible was written.
    head: Vec<u8>,
    is_answered: bool,
    counts: Counts,
    started: Option<Instant>,
    closed: Option<Instant>,
    ended_in_thought: bool,
    context_cut: bool,
    end: Option<Result<StopReason, Error>>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Prompt tokens that were in the cache already.
    cached: usize,
    /// Drawn inside the thought, closing tag included.
    thinking: u32,
    /// Drawn after it.
    answer: u32,
    forced: usize,
    /// Taken because the grammar left no choice.
    without_draw: u64,
    /// Sequence length when the thought closed.
    at_close: usize,
}

/// The thinking budget that fits into the room behind the prompt: an answer's reserve, its
/// own cap but at most half of the room, comes out first (row M10).
fn share_room(room: usize, thinking: u32, answer: Option<u32>) -> u32 {
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    let reserve = answer.unwrap_or(u32::MAX).min(room / 2);
    // A budget of 0 means that the prompt closed the thought, so a small one stays above it.
    thinking.min((room - reserve).max(1))
}

/// What the rules say to a drawn token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Take,
    Redraw,
    /// Draw again, among what the grammar allows.
    RedrawMasked,
    Close,
    End,
}

impl Turn {
    pub(crate) fn new(mut parts: TurnParts) -> Self {
        let room = (parts.limit_tokens - parts.close.len()).saturating_sub(parts.prompt.len());
        if let Some(rule) = &mut parts.thinking {
            rule.budget_tokens = share_room(room, rule.budget_tokens, parts.max_tokens);
        }
        let budget_tokens = parts.thinking.as_ref().map(|rule| rule.budget_tokens);
        let close_tag = parts.thinking.as_ref().map_or("", |rule| rule.tag.close());
        Self {
            adapter: parts.adapter,
            prompt_len: parts.prompt.len(),
            tokens: parts.prompt,
            in_cache: 0,
            draft: Vec::new(),
            lookup: (parts.lookup_tokens > 0).then(|| PromptLookup::new(parts.lookup_tokens)),
            is_rewound: false,
            limit_tokens: parts.limit_tokens,
            max_tokens: parts.max_tokens,
            budget_tokens,
            is_answered: parts.thinking.is_none(),
            budget: parts.thinking.map(ThinkingBudget::new),
            close_tag,
            close: parts.close,
            grammar: parts.grammar,
            grammar_failure: None,
            ending: Ending::default(),
            source: parts.source,
            logprobs: parts.logprobs,
            text: Text::new(parts.stop),
            choice: Choice::default(),
            head: Vec::new(),
            counts: Counts::default(),
            started: None,
            closed: None,
            ended_in_thought: false,
            context_cut: false,
            end: None,
        }
    }

    /// All tokens, computed or not.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The adapter that it is computed with.
    pub(crate) fn adapter(&self) -> AdapterId {
        self.adapter
    }

    /// Tokens that are in the cache.
    pub(crate) fn in_cache(&self) -> usize {
        self.in_cache
    }

    /// True once if tokens were taken back that the cache holds past `in_cache`.
    pub(crate) fn take_rewound(&mut self) -> bool {
        std::mem::take(&mut self.is_rewound)
    }

    /// Notes that the first `n_tokens` of the pending ones are in the cache now; returns how
    /// many of them belong to the prompt.
    pub(crate) fn take_computed(&mut self, n_tokens: usize) -> usize {
        let before = self.in_cache.min(self.prompt_len);
        self.in_cache += n_tokens;
        self.in_cache.min(self.prompt_len) - before
    }

    /// Tokens that were forced so far.
    pub(crate) fn n_forced(&self) -> usize {
        self.counts.forced
    }

    /// The time that the grammar took since the last call.
    pub(crate) fn take_grammar_time(&mut self) -> Duration {
        let grammar = self.grammar.as_mut();
        grammar.map_or(Duration::ZERO, GrammarRule::take_spent)
    }

    /// Notes what the cache holds.
    pub(crate) fn set_in_cache(&mut self, n_tokens: usize) {
        self.in_cache = n_tokens;
    }

    /// The turn got its slot, with this many prompt tokens in the cache already.
    pub(crate) fn start(&mut self, cached: usize) {
        self.in_cache = cached;
        if self.started.is_none() {
            self.started = Some(Instant::now());
            self.counts.cached = cached;
            if self.budget_tokens == Some(0) {
                self.counts.at_close = self.prompt_len;
            }
        }
    }

    /// Tokens to compute next.
    pub(crate) fn pending(&self) -> &[TokenId] {
        &self.tokens[self.in_cache..]
    }

    /// True while what waits is long enough to be computed in chunks.
    pub(crate) fn is_prefilling(&self) -> bool {
        let n_pending = self.pending().len();
        n_pending > FORCED_LIMIT || self.in_cache + 1 < self.prompt_len
    }

    /// KV cells that the turn needs now and will soon.
    pub(crate) fn need_tokens(&self, headroom: usize) -> usize {
        let answer = self.max_tokens.map_or(headroom, |cap| cap as usize);
        let thinking = self.budget_tokens.map_or(0, |b| b as usize);
        let all = self.prompt_len + thinking + self.close.len() + answer;
        let soon = all.saturating_sub(self.tokens.len()).min(headroom);
        (self.tokens.len() + soon).min(self.limit_tokens)
    }

    /// True when the turn is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// True when the turn is over because of an error.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.end, Some(Err(_)))
    }

    /// Ends the turn with an error.
    pub(crate) fn fail(&mut self, error: Error) {
        self.end = Some(Err(error));
    }

    fn phase(&self) -> Phase {
        let budget = self.budget.as_ref();
        budget.map_or(Phase::Answering, ThinkingBudget::phase)
    }

    /// Draws the next token from this row of logits, and does what follows from it.
    pub(crate) fn advance(
        &mut self,
        logits: &[f32],
        candidates: &mut Candidates,
        vocab: &Vocab,
        out: &Sender,
    ) {
        let mut done = self.try_advance(logits, candidates, vocab, out);
        if let Err(e) = done {
            let unbound = self.unbind(e);
            done = unbound.and_then(|()| self.try_advance(logits, candidates, vocab, out));
        }
        if let Err(e) = done {
            self.end = Some(Err(e));
        }
    }

    /// Goes on without a grammar that cannot go on, if the turn can do without.
    fn unbind(&mut self, error: Error) -> Result<(), Error> {
        let is_optional = self.grammar.as_ref().is_some_and(GrammarRule::is_optional);
        if !is_optional || error.kind() != ErrorKind::BadGrammar {
            return Err(error);
        }
        self.grammar = None;
        self.grammar_failure = Some(error.to_string());
        Ok(())
    }

    fn try_advance(
        &mut self,
        logits: &[f32],
        candidates: &mut Candidates,
        vocab: &Vocab,
        out: &Sender,
    ) -> Result<(), Error> {
        if self.take_forced(vocab, out)? {
            return Ok(());
        }
        self.choice.refused.clear();
        self.choice.allowed = self.ending_choice(vocab)?;
        let mut is_narrow = self.choice.allowed.is_some();
        loop {
            let drawn = self.source.draw(logits, &self.choice, candidates, vocab)?;
            let Some(token) = drawn else {
                match &mut self.grammar {
                    Some(grammar) if is_narrow => {
                        is_narrow = false;
                        self.choice.allowed = Some(grammar.allowed()?);
                        continue;
                    }
                    _ => return self.nothing_left(),
                }
            };
            let verdict = self.judge(token, vocab)?;
            match verdict {
                Verdict::Take => {
                    if !is_narrow && let Some(instead) = self.choice_instead(token, vocab)? {
                        is_narrow = true;
                        self.choice.refused.push(token);
                        self.choice.allowed = Some(instead);
                        continue;
                    }
                    self.note_logprob(token, logits, vocab);
                    return self.take(token, vocab, out);
                }
                Verdict::End => {
                    self.end = Some(Ok(StopReason::EndTurn));
                    return Ok(());
                }
                Verdict::Close => {
                    self.ended_in_thought |= vocab.ends_turn(token);
                    self.close_thought(vocab, out);
                    return Ok(());
                }
                Verdict::Redraw | Verdict::RedrawMasked => {
                    self.refuse(token, verdict == Verdict::RedrawMasked)?;
                }
            }
        }
    }

    fn refuse(&mut self, token: TokenId, masked: bool) -> Result<(), Error> {
        if self.source.is_script_over() {
            return Err(Error::bad_request(
                "recite",
                "the rules of the turn do not let this text end here",
            ));
        }
        self.source.skip();
        if self.choice.refused.len() >= REDRAW_LIMIT {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("{REDRAW_LIMIT} tokens in a row were refused"),
            ));
        }
        self.choice.refused.push(token);
        if masked
            && self.choice.allowed.is_none()
            && !self.source.is_script()
            && let Some(grammar) = &mut self.grammar
        {
            self.choice.allowed = Some(grammar.allowed()?);
        }
        Ok(())
    }

    /// Every token that the grammar allows was refused by another rule.
    fn nothing_left(&mut self) -> Result<(), Error> {
        let may_end = match &mut self.grammar {
            Some(grammar) => grammar.may_end()?,
            None => false,
        };
        if !may_end {
            let kind = match self.grammar {
                Some(_) => ErrorKind::BadGrammar,
                None => ErrorKind::Internal,
            };
            return Err(Error::new(
                kind,
                "the grammar cannot go on: no token is allowed here",
            ));
        }
        self.end = Some(Ok(StopReason::EndTurn));
        Ok(())
    }

    fn judge(&mut self, token: TokenId, vocab: &Vocab) -> Result<Verdict, Error> {
        let ends_turn = vocab.ends_turn(token);
        let piece = vocab.piece(token);
        let phase = self.phase();
        if let Some(budget) = &self.budget {
            match budget.admit(piece, ends_turn) {
                Admission::Accept => {}
                Admission::Refuse => return Ok(Verdict::Redraw),
                Admission::CloseInstead => return Ok(Verdict::Close),
            }
            // A call inside the thought was not held to the grammar: the answer must be.
            let is_bound = self.grammar.as_ref().is_some_and(GrammarRule::is_whole);
            if ends_turn && phase != Phase::Answering && is_bound {
                return Ok(Verdict::Close);
            }
        }
        if phase != Phase::Answering {
            return Ok(if ends_turn {
                Verdict::End
            } else {
                Verdict::Take
            });
        }
        if let Some(grammar) = &mut self.grammar {
            let is_allowed = if ends_turn {
                grammar.may_end()?
            } else {
                grammar.allows(token, piece)?
            };
            if !is_allowed {
                return Ok(Verdict::RedrawMasked);
            }
        }
        if ends_turn {
            return Ok(if self.owes_answer() {
                Verdict::Redraw
            } else {
                Verdict::End
            });
        }
        if self.must_show() && is_blank(piece) {
            return Ok(Verdict::Redraw);
        }
        if self.owes_answer() && opens_thought(&[&self.head, piece].concat()) {
            return Ok(Verdict::Redraw);
        }
        Ok(Verdict::Take)
    }

    /// True if a blank token may not come next: enough came already, or it would be the last.
    fn must_show(&self) -> bool {
        let is_last = self
            .max_tokens
            .is_some_and(|cap| self.counts.answer + 1 >= cap);
        self.owes_answer() && (is_last || self.counts.answer >= BLANK_LIMIT)
    }

    /// True until the answer behind a thought has shown something; a script shows what it says.
    fn owes_answer(&self) -> bool {
        !self.is_answered && !self.source.is_script()
    }

    fn take(&mut self, token: TokenId, vocab: &Vocab, out: &Sender) -> Result<(), Error> {
        let piece = vocab.piece(token);
        let before = self.phase();
        self.tokens.push(token);
        self.source.took(token);
        let after = match &mut self.budget {
            Some(budget) => budget.handle_token(piece),
            None => After::Continue,
        };
        if before == Phase::Thinking {
            self.counts.thinking += 1;
            self.text.held.push_back(token);
            match after {
                After::Close { undo_tokens } => {
                    self.undo(undo_tokens);
                    self.close_thought(vocab, out);
                }
                After::Continue => self.settle(vocab, out),
            }
        } else {
            self.counts.answer += 1;
            self.take_answer(token, before, vocab, out)?;
        }
        self.check_room(vocab, out);
        Ok(())
    }

    fn take_answer(
        &mut self,
        token: TokenId,
        phase: Phase,
        vocab: &Vocab,
        out: &Sender,
    ) -> Result<(), Error> {
        let piece = vocab.piece(token);
        let mut is_complete = false;
        if phase == Phase::Answering {
            if let Some(grammar) = &mut self.grammar {
                let taken = grammar.take(token, piece);
                is_complete = taken.is_ok() && grammar.is_complete();
                if let Err(e) = taken {
                    self.unbind(e)?;
                }
            }
            if !self.is_answered {
                self.head.extend_from_slice(piece);
                self.is_answered = is_visible(&self.head);
            }
        }
        if let Some(stop) = self.text.push(piece, 1, phase, out) {
            self.end = Some(Ok(StopReason::StopSequence(stop)));
        } else if is_complete {
            self.end = Some(Ok(StopReason::EndTurn));
        } else if self.max_tokens.is_some_and(|cap| self.counts.answer >= cap) {
            self.end = Some(Ok(StopReason::Length));
        }
        Ok(())
    }

    /// Shows the text of the thought's tokens that cannot be taken back any more.
    fn settle(&mut self, vocab: &Vocab, out: &Sender) {
        let is_thinking = self.phase() == Phase::Thinking;
        let unsettled = match &self.budget {
            Some(budget) if is_thinking => budget.unsettled_tokens() as usize,
            _ => 0,
        };
        while self.text.held.len() > unsettled {
            let Some(token) = self.text.held.pop_front() else {
                break;
            };
            let _ = self.text.push(vocab.piece(token), 1, Phase::Thinking, out);
        }
        if self.phase() == Phase::Answering {
            self.note_close(0);
        }
    }

    fn undo(&mut self, n_tokens: u32) {
        let n = (n_tokens as usize).min(self.text.held.len());
        self.tokens.truncate(self.tokens.len() - n);
        self.text.held.truncate(self.text.held.len() - n);
        self.counts.thinking = self.counts.thinking.saturating_sub(n_tokens);
        self.source.untake(n);
        if self.in_cache > self.tokens.len() {
            self.in_cache = self.tokens.len();
            self.is_rewound = true;
        }
    }

    /// Appends the closing tokens, all at once: the answer begins behind them.
    fn close_thought(&mut self, vocab: &Vocab, out: &Sender) {
        let Some(budget) = &mut self.budget else {
            return;
        };
        budget.handle_closed();
        let close_text = budget.close_text().to_owned();
        while let Some(token) = self.text.held.pop_front() {
            let _ = self.text.push(vocab.piece(token), 1, Phase::Thinking, out);
        }
        self.text.push_forced(&close_text, out);
        self.note_close(self.close.len());
        self.tokens.extend_from_slice(&self.close);
    }

    fn note_close(&mut self, n_forced: usize) {
        self.counts.forced += n_forced;
        if self.closed.is_none() {
            self.closed = Some(Instant::now());
            self.counts.at_close = self.tokens.len();
        }
    }

    fn check_room(&mut self, vocab: &Vocab, out: &Sender) {
        if self.end.is_some() {
            return;
        }
        let room = self.limit_tokens.saturating_sub(self.tokens.len());
        if self.phase() == Phase::Thinking && room <= self.close.len() + 1 {
            self.context_cut = true;
            self.close_thought(vocab, out);
        } else if room == 0 {
            self.end = Some(Ok(StopReason::Length));
        }
    }

    /// Ends the turn: what was held back is sent, then the outcome. `stop` is for a turn
    /// that has not ended by itself.
    pub(crate) fn finish(mut self, stop: Result<StopReason, Error>, vocab: &Vocab, out: &Sender) {
        let stop = self.end.take().unwrap_or(stop);
        while let Some(token) = self.text.held.pop_front() {
            let _ = self.text.push(vocab.piece(token), 1, Phase::Thinking, out);
        }
        // What follows a stop string is no text.
        if !matches!(stop, Ok(StopReason::StopSequence(_))) {
            self.text.finish(self.phase(), out);
        }
        out.send_done(self.outcome(stop));
    }
}
