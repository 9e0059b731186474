//! The thinking budget as a rule over tokens: the engine asks it about every token.

use crate::chat::ThinkTag;

/// What a thinking budget needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkingRule {
    /// The tag that frames the thought. The prompt has opened it already.
    pub tag: ThinkTag,
    /// Thinking tokens allowed, the closing text excluded. 0: the prompt holds an empty
    /// closed block already and the turn begins in the answer.
    pub budget_tokens: u32,
    /// The text that closes the thought when it has to be forced, in the template's own
    /// spacing, such as `"\n</think>\n\n"`.
    pub close_text: String,
    /// The text that opens a tool call in this model's dialect, if tools are offered: a call
    /// that begins inside the thought is never cut.
    pub call_open: Option<String>,
    /// The text that ends such a call.
    pub call_close: Option<String>,
}

/// Where a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Inside the thought. Tokens count against the thinking budget.
    Thinking,
    /// Inside a tool call that began within the thought. The budget waits: a call is never
    /// cut by a forced close. Tokens count against the answer's cap.
    CallInThought,
    /// After the thought. Tokens count against the answer's cap.
    Answering,
}

/// What to do with a token that was drawn and is not yet part of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Take it.
    Accept,
    /// Draw another: this one would open a think block without budget left.
    Refuse,
    /// Do not take it; append the closing text instead and go on in the answer.
    CloseInstead,
}

/// What follows a token that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Draw the next one.
    Continue,
    /// The budget is spent: take back the last `undo_tokens` tokens, append the closing
    /// text, go on in the answer. Taken back are only tokens that were unsettled: pieces of
    /// a character that is not whole, or of what could have become a closing tag.
    Close {
        /// Tokens to take back; they do not count.
        undo_tokens: u32,
    },
}

/// The state of one turn's thinking budget.
///
/// The engine asks [`Self::admit`] about every drawn token, reports the ones that it takes
/// to [`Self::handle_token`], and obeys [`After::Close`] and [`Admission::CloseInstead`] by
/// appending [`Self::close_text`] and calling [`Self::handle_closed`]. Text of the last
/// [`Self::unsettled_tokens`] tokens must not be shown yet: they may be taken back.
///
/// Closing and opening tags are found in the decoded bytes, never by token id: most
/// vocabularies spell the tags in several tokens that merge with their neighbours. The
/// tokens of a closing tag do not count against the budget.
#[derive(Debug, Clone)]
pub struct ThinkingBudget {
    rule: ThinkingRule,
    state: State,
    thinking_tokens: u32,
    truncated: bool,
    /// One entry per unsettled token: does a whole character end with it?
    unsettled: Vec<bool>,
    partial: Utf8Gap,
    /// Text since the start of the current line, bounded by [`LINE_LIMIT`].
    line: Vec<u8>,
    /// True if the line had more bytes than fit into `line`.
    line_cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Thinking,
    /// A closing tag after a backtick: the next byte decides whether it was a mention.
    MaybeClosed,
    Call {
        tokens: u32,
    },
    /// A call in the thought is complete. If the turn ends here the call counts; if text
    /// follows, call and text were thinking.
    AfterCall {
        tokens: u32,
    },
    Answering,
}

/// Longest stretch of a line that is looked at: every tag and call marker is shorter.
const LINE_LIMIT: usize = 256;
/// White space allowed between a tag's name and its `>` before it is no tag any more.
const TAG_SPACE_LIMIT: usize = 8;

impl ThinkingBudget {
    /// A budget at the start of the thought (or of the answer, for a budget of 0).
    #[must_use]
    pub fn new(rule: ThinkingRule) -> Self {
        let state = if rule.budget_tokens == 0 {
            State::Answering
        } else {
            State::Thinking
        };
        Self {
            rule,
            state,
            thinking_tokens: 0,
            truncated: false,
            unsettled: Vec::new(),
            partial: Utf8Gap::default(),
            line: Vec::new(),
            line_cut: false,
        }
    }

    /// Where the turn stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Thinking | State::MaybeClosed => Phase::Thinking,
            State::Call { .. } | State::AfterCall { .. } => Phase::CallInThought,
            State::Answering => Phase::Answering,
        }
    }

    /// Thinking tokens counted so far; never above the budget, save by a call in the thought
    /// that turned out to be thinking.
    #[must_use]
    pub fn thinking_tokens(&self) -> u32 {
        self.thinking_tokens
    }

    /// How many of the last tokens may still be taken back.
    #[must_use]
    pub fn unsettled_tokens(&self) -> u32 {
        u32::try_from(self.unsettled.len()).unwrap_or(u32::MAX)
    }

    /// True if the budget, and not the model, closed the thought. False for a budget of 0,
    /// which switches thinking off and cuts nothing.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The closing text to append when told to.
    #[must_use]
    pub fn close_text(&self) -> &str {
        &self.rule.close_text
    }

    /// Judges a drawn token before it becomes part of the turn. `piece` is the token's
    /// bytes (perhaps part of a character); `ends_turn` is true for end-of-generation.
    #[must_use]
    pub fn admit(&self, piece: &[u8], ends_turn: bool) -> Admission {
        match self.state {
            State::Thinking | State::MaybeClosed if ends_turn => Admission::CloseInstead,
            State::AfterCall { tokens }
                if !ends_turn
                    && self.thinking_tokens + tokens >= self.rule.budget_tokens
                    && !self.may_continue_call(piece) =>
            {
                Admission::CloseInstead
            }
            State::Answering if !ends_turn && self.spent() && self.would_open(piece) => {
                Admission::Refuse
            }
            _ => Admission::Accept,
        }
    }

    /// Counts a token that was taken.
    #[must_use]
    pub fn handle_token(&mut self, piece: &[u8]) -> After {
        let was_thinking = self.phase() == Phase::Thinking;
        if let State::Call { tokens } | State::AfterCall { tokens } = &mut self.state {
            *tokens += 1;
        }
        let had_tag_prefix = self.in_tag_prefix();
        let mut thought_bytes = 0;
        for &byte in piece {
            if self.phase() == Phase::Thinking && !self.in_tag_prefix() && byte != b'<' {
                thought_bytes += 1;
            }
            self.handle_byte(byte);
        }
        if !was_thinking {
            return After::Continue;
        }
        // A token that only holds bytes of a closing tag is no thinking token; one that also
        // holds bytes of the thought is.
        if self.phase() != Phase::Thinking {
            self.unsettled.clear();
            self.thinking_tokens += u32::from(thought_bytes > 0 && !had_tag_prefix);
            return After::Continue;
        }
        let in_tag = self.in_tag_prefix();
        self.unsettled.push(self.partial.is_whole());
        if in_tag {
            if thought_bytes > 0 && !had_tag_prefix {
                self.settle();
            }
            return After::Continue;
        }
        if self.partial.is_whole() {
            let run = self.settle();
            return self.close_if_spent(&run);
        }
        if self.thinking_tokens + self.unsettled_tokens() >= self.rule.budget_tokens {
            let run = std::mem::take(&mut self.unsettled);
            self.thinking_tokens += u32::try_from(run.len()).unwrap_or(u32::MAX);
            return self.close_if_spent(&run);
        }
        After::Continue
    }

    /// Notes that the closing text was appended: the answer begins.
    pub fn handle_closed(&mut self) {
        if let State::AfterCall { tokens } = self.state {
            self.thinking_tokens += tokens;
            self.truncated = true;
        }
        // A half-written closing tag stays in the text as part of the thought.
        self.settle();
        self.state = State::Answering;
        self.partial = Utf8Gap::default();
        self.line.clear();
        self.line_cut = false;
    }

    fn spent(&self) -> bool {
        self.thinking_tokens >= self.rule.budget_tokens
    }

    /// Counts the unsettled tokens as thinking and returns them.
    fn settle(&mut self) -> Vec<bool> {
        self.thinking_tokens += self.unsettled_tokens();
        std::mem::take(&mut self.unsettled)
    }

    /// `run` are the tokens that were counted last, which may still be taken back.
    fn close_if_spent(&mut self, run: &[bool]) -> After {
        if !self.spent() {
            return After::Continue;
        }
        let mut undo_tokens = 0;
        for idx in (0..run.len()).rev() {
            if self.thinking_tokens <= self.rule.budget_tokens && run[idx] {
                break;
            }
            undo_tokens += 1;
            self.thinking_tokens -= 1;
        }
        self.truncated = true;
        After::Close { undo_tokens }
    }

    fn handle_byte(&mut self, byte: u8) {
        self.partial.push(byte);
        if self.state == State::MaybeClosed {
            self.state = if byte == b'`' {
                State::Thinking
            } else {
                self.line.clear();
                State::Answering
            };
        }
        if byte == b'\n' {
            self.line.clear();
            self.line_cut = false;
        } else {
            if self.line.len() == LINE_LIMIT {
                self.line.drain(..LINE_LIMIT / 2);
                self.line_cut = true;
            }
            self.line.push(byte);
        }
        self.state = self.next_state(byte);
    }

    fn next_state(&mut self, byte: u8) -> State {
        match self.state {
            State::Thinking => {
                if byte == b'>' && self.ends_with_tag(true) {
                    let tag_at = self.line.iter().rposition(|&b| b == b'<').unwrap_or(0);
                    if tag_at > 0 && self.line[tag_at - 1] == b'`' {
                        return State::MaybeClosed;
                    }
                    self.line.clear();
                    return State::Answering;
                }
                match &self.rule.call_open {
                    Some(open) if self.line_is(open) => State::Call { tokens: 0 },
                    _ => State::Thinking,
                }
            }
            State::Call { tokens } => match &self.rule.call_close {
                Some(close) if self.line.ends_with(close.as_bytes()) => {
                    self.line.clear();
                    State::AfterCall { tokens }
                }
                _ => State::Call { tokens },
            },
            State::AfterCall { tokens } => {
                let open = self.rule.call_open.as_deref().unwrap_or_default();
                let seen = self.line.trim_ascii();
                if !seen.is_empty() && seen == open.as_bytes() {
                    State::Call { tokens }
                } else if open.as_bytes().starts_with(seen) {
                    State::AfterCall { tokens }
                } else {
                    self.thinking_tokens += tokens;
                    State::Thinking
                }
            }
            State::Answering => {
                if byte == b'>' && !self.spent() && self.ends_with_tag(false) && self.tag_is_alone()
                {
                    State::Thinking
                } else {
                    State::Answering
                }
            }
            State::MaybeClosed => State::MaybeClosed,
        }
    }

    /// True if the thought ends in what may become a closing tag.
    fn in_tag_prefix(&self) -> bool {
        match self.state {
            State::MaybeClosed => true,
            State::Thinking => self
                .line
                .iter()
                .rposition(|&b| b == b'<')
                .is_some_and(|at| may_become_close(&self.line[at..])),
            State::Call { .. } | State::AfterCall { .. } | State::Answering => false,
        }
    }

    /// True if the line, without white space, is exactly this marker.
    fn line_is(&self, marker: &str) -> bool {
        !self.line_cut && self.line.trim_ascii() == marker.as_bytes()
    }

    /// True if the line ends in a think tag: any case, white space allowed before `>`.
    fn ends_with_tag(&self, closing: bool) -> bool {
        let Some(at) = self.line.iter().rposition(|&b| b == b'<') else {
            return false;
        };
        tag_name(&self.line[at..]).is_some_and(|(is_closing, _)| is_closing == closing)
    }

    fn tag_is_alone(&self) -> bool {
        let at = self.line.iter().rposition(|&b| b == b'<').unwrap_or(0);
        self.counts_after(&self.line[..at])
    }

    /// True if a block may open behind this beginning of a line: only white space, or the
    /// end of a call.
    fn counts_after(&self, before: &[u8]) -> bool {
        let before = before.trim_ascii();
        let call_close = self.rule.call_close.as_deref().unwrap_or_default();
        let after_call = !call_close.is_empty() && before.ends_with(call_close.as_bytes());
        after_call || (before.is_empty() && !self.line_cut)
    }

    /// True if taking this piece would begin to spell an opening tag where one counts.
    ///
    /// Judged before the tag is whole: refusing its last piece alone would leave half a tag
    /// in the answer.
    fn would_open(&self, piece: &[u8]) -> bool {
        let mut after = self.clone();
        let last = piece.len().saturating_sub(1);
        piece.iter().enumerate().any(|(idx, &byte)| {
            after.handle_byte(byte);
            if byte != b'>' && idx != last {
                return false;
            }
            let at = after.line.iter().rposition(|&b| b == b'<');
            at.is_some_and(|at| {
                spells_opening(&after.line[at..]) && after.counts_after(&after.line[..at])
            })
        })
    }

    /// True if the text since the last call, with this piece, may be white space or the
    /// start of another call.
    fn may_continue_call(&self, piece: &[u8]) -> bool {
        let mut seen = self.line.clone();
        seen.extend_from_slice(piece);
        let seen = seen.trim_ascii();
        let open = self
            .rule
            .call_open
            .as_deref()
            .unwrap_or_default()
            .as_bytes();
        open.starts_with(seen) || seen.starts_with(open)
    }
}

/// True for a proper beginning of a closing think tag, such as `</thi`.
fn may_become_close(text: &[u8]) -> bool {
    let text = text.to_ascii_lowercase();
    [ThinkTag::Think, ThinkTag::Thinking].iter().any(|tag| {
        let name = &tag.close().as_bytes()[..tag.close().len() - 1];
        match text.strip_prefix(name) {
            Some(rest) => rest.len() <= TAG_SPACE_LIMIT && rest.iter().all(u8::is_ascii_whitespace),
            None => name.starts_with(&text),
        }
    })
}

/// True for so much of an opening think tag that hardly anything else begins with it: from
/// `<thi` on.
fn spells_opening(text: &[u8]) -> bool {
    const TELLING_BYTES: usize = 4;
    let text = text.to_ascii_lowercase();
    text.len() >= TELLING_BYTES
        && [ThinkTag::Think, ThinkTag::Thinking].iter().any(|tag| {
            let name = &tag.open().as_bytes()[..tag.open().len() - 1];
            match text.strip_prefix(name) {
                Some(rest) => rest.trim_ascii().is_empty() || rest.trim_ascii() == b">",
                None => name.starts_with(&text),
            }
        })
}

/// Reads `<think>`, `</thinking >` and the like: (closing, tag).
fn tag_name(text: &[u8]) -> Option<(bool, ThinkTag)> {
    let inner = text.strip_prefix(b"<")?.strip_suffix(b">")?;
    let (closing, name) = match inner.strip_prefix(b"/") {
        Some(rest) => (true, rest),
        None => (false, inner),
    };
    let name = name.trim_ascii_end().to_ascii_lowercase();
    let tag = ThinkTag::from_name(std::str::from_utf8(&name).ok()?)?;
    Some((closing, tag))
}

/// Counts how many continuation bytes the current character still lacks.
#[derive(Debug, Clone, Copy, Default)]
struct Utf8Gap {
    missing: u8,
}

impl Utf8Gap {
    fn push(&mut self, byte: u8) {
        self.missing = match byte {
            0x80..=0xBF => self.missing.saturating_sub(1),
            0xC2..=0xDF => 1,
            0xE0..=0xEF => 2,
            0xF0..=0xF4 => 3,
            _ => 0,
        };
    }

    fn is_whole(self) -> bool {
        self.missing == 0
    }
}

#[cfg(test)]
mod tests;
