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
    /// Inside the thought.
    Thinking,
    /// After it.
    Answering,
}

/// What to do with a token that was drawn and is not yet part of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Take it.
    Accept,
    /// Draw another: this one may not come here.
    Refuse,
    /// Do not take it; append the closing text instead and go on in the answer.
    CloseInstead,
}

/// The state of one turn's thinking budget.
#[derive(Debug, Clone)]
pub struct ThinkingBudget {
    rule: ThinkingRule,
}

impl ThinkingBudget {
    /// A budget at the start of the thought (or of the answer, for a budget of 0).
    #[must_use]
    pub fn new(rule: ThinkingRule) -> Self {
        Self { rule }
    }

    /// Where the turn stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        todo!()
    }

    /// Thinking tokens counted so far.
    #[must_use]
    pub fn thinking_tokens(&self) -> u32 {
        todo!()
    }

    /// True if the budget, and not the model, closed the thought.
    #[must_use]
    pub fn truncated(&self) -> bool {
        todo!()
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
        let _ = (piece, ends_turn);
        todo!()
    }

    /// Counts a token that was taken. Returns true if the closing text must be appended now.
    pub fn handle_token(&mut self, piece: &[u8]) -> bool {
        let _ = piece;
        todo!()
    }

    /// Notes that the closing text was appended.
    pub fn handle_closed(&mut self) {
        todo!()
    }
}
