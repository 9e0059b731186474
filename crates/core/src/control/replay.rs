//! What of past reasoning goes back into a request.

use super::turn_parser::{ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions};
use crate::chat::{Message, Part, Role, StopReason};
use crate::reasoning_parser::ReasoningSyntax;

/// What of past reasoning goes back into a request (row G8). Templates may drop it still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayPolicy {
    /// Nothing.
    #[default]
    None,
    /// The last turn that has any.
    KeepLast,
    /// All of it.
    Full,
}

/// A text split into reasoning and answer, both trimmed; several blocks are joined by a
/// newline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReasoningSplit {
    /// The reasoning; empty if there is none.
    pub reasoning: String,
    /// The answer; empty if the block was not closed (row C2).
    pub answer: String,
}

/// Splits whole text (rows C1-C4).
#[must_use]
pub fn split_reasoning(text: &str, syntax: &ReasoningSyntax) -> ReasoningSplit {
    let mut events = Vec::new();
    let mut parser = TurnParser::new(TurnParserOptions {
        reasoning: syntax.clone(),
        prompt_opened: Some(false),
        ..TurnParserOptions::default()
    });
    parser.push(text, &mut events);
    parser.finish(&TurnEnd::default(), &mut events);
    let mut assembler = ReplyAssembler::new();
    events.iter().for_each(|event| assembler.handle(event));
    let reply = assembler.finish(StopReason::EndTurn);
    ReasoningSplit {
        reasoning: reply.reasoning,
        answer: reply.content,
    }
}

/// The history as it goes back: raw think text leaves the content of past turns (the raw
/// form of row B6), and their reasoning stays by the policy. An empty `syntax` leaves
/// contents as they are.
#[must_use]
pub fn replay(
    mut messages: Vec<Message>,
    policy: ReplayPolicy,
    syntax: &ReasoningSyntax,
) -> Vec<Message> {
    for message in messages.iter_mut().filter(|m| m.role == Role::Assistant) {
        let [Part::Text(text)] = message.content.as_slice() else {
            continue;
        };
        let split = split_reasoning(text, syntax);
        if split.reasoning.is_empty() && split.answer.len() == text.trim().len() {
            continue;
        }
        message.content = match split.answer.is_empty() {
            true => Vec::new(),
            false => vec![Part::Text(split.answer)],
        };
        let reasoning = Some(split.reasoning).filter(|text| !text.is_empty());
        message.reasoning = message.reasoning.take().or(reasoning);
    }
    let last = messages.iter().rposition(|m| m.reasoning.is_some());
    for (idx, message) in messages.iter_mut().enumerate() {
        let stays = match policy {
            ReplayPolicy::None => false,
            ReplayPolicy::KeepLast => Some(idx) == last,
            ReplayPolicy::Full => true,
        };
        if !stays {
            message.reasoning = None;
        }
    }
    messages
}
