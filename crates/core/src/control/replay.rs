//! What of past reasoning goes back into a request.

use super::turn_parser::{TurnEnd, TurnParserOptions, TurnSyntax};
use super::whole::read_turn;
use crate::chat::{Message, OpaqueKind, Part, Role};
use crate::reasoning_parser::ReasoningSyntax;
use crate::tool_parser::ToolSyntax;

/// What of past reasoning goes back into a request (rows G8, case rule 22). Templates may drop
/// it still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReplayPolicy {
    /// None.
    #[default]
    None,
    /// That of the turns since the last user message; if there is none, that of the last
    /// turn that has any.
    KeepLast,
    /// All.
    Full,
    /// That of every turn that called a tool.
    Required,
}

impl ReplayPolicy {
    /// Every policy, in the order of the documentation.
    pub const ALL: &'static [Self] = &[Self::None, Self::KeepLast, Self::Full, Self::Required];

    /// The name in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::KeepLast => "keep-last",
            Self::Full => "full",
            Self::Required => "required",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|policy| policy.as_str() == name)
    }
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
    let options = TurnParserOptions {
        syntax: TurnSyntax::new(syntax.clone(), ToolSyntax::none()),
        prompt_opened: Some(false),
        ..TurnParserOptions::default()
    };
    let reply = read_turn(text, options, &TurnEnd::default());
    ReasoningSplit {
        reasoning: reply.reasoning,
        answer: reply.content,
    }
}

/// The history as it goes back: raw think text leaves the content of past turns, and their
/// reasoning stays by the policy.
#[must_use]
pub fn replay(
    mut messages: Vec<Message>,
    policy: ReplayPolicy,
    syntax: &ReasoningSyntax,
) -> Vec<Message> {
    for message in &mut messages {
        split_past_turn(message, syntax);
    }
    let dropped = dropped_reasoning(&messages.iter().collect::<Vec<_>>(), policy);
    for (message, is_dropped) in messages.iter_mut().zip(dropped) {
        if is_dropped {
            drop_reasoning(message);
        }
    }
    messages
}

/// Takes think text out of the content of a past turn (the raw form of row B6): it becomes
/// the turn's reasoning if it has none. An unclosed block is reasoning to its end. An empty
/// `syntax` and other roles' messages are left as they are.
pub fn split_past_turn(message: &mut Message, syntax: &ReasoningSyntax) {
    if message.role != Role::Assistant {
        return;
    }
    let [Part::Text(text)] = message.content.as_slice() else {
        return;
    };
    let split = split_reasoning(text, syntax);
    if split.reasoning.is_empty() && split.answer.len() == text.trim().len() {
        return;
    }
    message.content = match split.answer.is_empty() {
        true => Vec::new(),
        false => vec![Part::Text(split.answer)],
    };
    let reasoning = Some(split.reasoning).filter(|text| !text.is_empty());
    message.reasoning = message.reasoning.take().or(reasoning);
}

/// Which messages of a history lose their reasoning under this policy, by place.
#[must_use]
pub fn dropped_reasoning(messages: &[&Message], policy: ReplayPolicy) -> Vec<bool> {
    let last_user = messages.iter().rposition(|m| m.role == Role::User);
    let in_loop = |at: usize| last_user.is_none_or(|user| at > user);
    let last = messages.iter().rposition(|m| carries_reasoning(m));
    let any_in_loop = last.is_some_and(in_loop);
    let stays = |at: usize, message: &Message| match policy {
        ReplayPolicy::None => false,
        ReplayPolicy::Full => true,
        ReplayPolicy::Required => !message.tool_calls.is_empty(),
        ReplayPolicy::KeepLast if any_in_loop => in_loop(at),
        ReplayPolicy::KeepLast => Some(at) == last,
    };
    let messages = messages.iter().enumerate();
    messages
        .map(|(at, message)| carries_reasoning(message) && !stays(at, message))
        .collect()
}

/// Drops a turn's reasoning, with what only its provider can read of it. Blocks and items of
/// the formats that keep whole turns are sorted out by their writers.
pub fn drop_reasoning(message: &mut Message) {
    message.reasoning = None;
    message
        .provider_items
        .retain(|item| !is_reasoning(item.kind));
}

fn carries_reasoning(message: &Message) -> bool {
    message.role == Role::Assistant
        && (message.reasoning.is_some()
            || message
                .provider_items
                .iter()
                .any(|item| is_reasoning(item.kind)))
}

/// Kinds that hold nothing but reasoning.
fn is_reasoning(kind: OpaqueKind) -> bool {
    matches!(
        kind,
        OpaqueKind::ReasoningDetail | OpaqueKind::ReasoningField
    )
}
