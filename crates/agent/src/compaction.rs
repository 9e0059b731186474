//! Making a history fit the model's context (row L2).
//!
//! The first two messages always stay, and so do the last user message and the latest step.
//! A call and its result stay together or go together: histories are cut between *units*,
//! and a unit is one message, or an assistant's turn with all results of its calls.

use std::ops::Range;

use twopass_core::chat::{Message, Part, Role};

/// Characters of a tool result that the first tier leaves.
const KEPT_RESULT_CHARS: usize = 200;
/// What stands for a tool result that the second tier took away.
const RESULT_LEFT_OUT: &str = "[result left out to save space]";
/// Messages at the head that are never touched.
const N_SAFE_MESSAGES: usize = 2;
/// Tokens per character where no backend has counted any.
const DEFAULT_TOKENS_PER_CHAR: f64 = 0.25;
/// Characters that a message costs beside its text.
const MESSAGE_CHARS: usize = 16;

/// How a history is made shorter when it fills the context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Compaction {
    /// Not at all.
    None,
    /// The oldest units go.
    Sliding {
        /// The part of the context, 0 to 1, from which on; 0.75 is usual.
        threshold: f64,
    },
    /// By and by: nudges go and old results are cut, then old results go, then old reasoning
    /// and text, then the oldest units.
    Tiered {
        /// The part of the context, 0 to 1, from which on.
        threshold: f64,
        /// How many of the latest units are left alone by the first three tiers.
        keep_recent: usize,
    },
}

impl Default for Compaction {
    /// Tiered, from 0.75 on, the latest two units left alone.
    fn default() -> Self {
        Self::Tiered {
            threshold: 0.75,
            keep_recent: 2,
        }
    }
}

impl Compaction {
    fn threshold(self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Sliding { threshold } | Self::Tiered { threshold, .. } => Some(threshold),
        }
    }

    fn keep_recent(self) -> Option<usize> {
        match self {
            Self::None | Self::Sliding { .. } => None,
            Self::Tiered { keep_recent, .. } => Some(keep_recent),
        }
    }
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// The strongest tier that was needed: 1 cut results, 2 results, 3 reasoning and text,
    /// 4 whole units.
    pub tier: u8,
    /// Tokens before, estimated.
    pub tokens_before: u64,
    /// Tokens after, estimated.
    pub tokens_after: u64,
    /// Messages that are gone.
    pub n_dropped: usize,
}

/// One message of the working history.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) message: Message,
    /// A nudge of ours, the first to go.
    pub(crate) is_nudge: bool,
}

/// Counts tokens by what backends counted, else by characters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenGauge {
    per_char: f64,
}

impl Default for TokenGauge {
    fn default() -> Self {
        Self {
            per_char: DEFAULT_TOKENS_PER_CHAR,
        }
    }
}

impl TokenGauge {
    /// Learns what these messages were counted as.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn learn(&mut self, entries: &[Entry], prompt_tokens: u64) {
        let n_chars = chars(entries);
        if prompt_tokens > 0 && n_chars > 0 {
            self.per_char = prompt_tokens as f64 / n_chars as f64;
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an estimate, never negative"
    )]
    pub(crate) fn tokens(self, entries: &[Entry]) -> u64 {
        (chars(entries) as f64 * self.per_char).ceil() as u64
    }
}

/// Makes the history fit; `None` if it fits already or nothing can be done.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an estimate, never negative"
)]
pub(crate) fn compact(
    entries: &mut Vec<Entry>,
    how: Compaction,
    context_tokens: u64,
    gauge: TokenGauge,
) -> Option<Compacted> {
    let limit = (context_tokens as f64 * how.threshold()?) as u64;
    let tokens_before = gauge.tokens(entries);
    if tokens_before <= limit {
        return None;
    }
    let n_before = entries.len();
    let before = entries.clone();
    let mut tier = 0;
    let fits = |entries: &[Entry]| gauge.tokens(entries) <= limit;
    if let Some(keep_recent) = how.keep_recent() {
        for (n, cut) in [
            (1, cut_results as fn(&mut Entry)),
            (2, drop_result),
            (3, drop_text),
        ] {
            if fits(entries) {
                break;
            }
            tier = n;
            if n == 1 {
                drop_nudges(entries, keep_recent);
            }
            let old = old(entries, keep_recent);
            entries[old].iter_mut().for_each(cut);
        }
    }
    while !fits(entries) {
        tier = 4;
        let Some(unit) = oldest_unit(entries) else {
            break;
        };
        entries.drain(unit);
    }
    (*entries != before).then(|| Compacted {
        tier,
        tokens_before,
        tokens_after: gauge.tokens(entries),
        n_dropped: n_before - entries.len(),
    })
}

/// The units in order, as ranges of entries.
fn units(entries: &[Entry]) -> Vec<Range<usize>> {
    let mut units: Vec<Range<usize>> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match units.last_mut() {
            Some(unit) if entry.message.role == Role::Tool => unit.end = at + 1,
            _ => units.push(at..at + 1),
        }
    }
    units
}

/// The entries that the first three tiers may change.
fn old(entries: &[Entry], keep_recent: usize) -> Range<usize> {
    let units = units(entries);
    let n_old = units.len().saturating_sub(keep_recent.max(1));
    let end = units.get(n_old).map_or(0, |unit| unit.start);
    N_SAFE_MESSAGES.min(end)..end
}

/// The oldest unit that may go.
fn oldest_unit(entries: &[Entry]) -> Option<Range<usize>> {
    let is_question = |entry: &Entry| entry.message.role == Role::User && !entry.is_nudge;
    let question = entries.iter().rposition(is_question);
    let mut units = units(entries);
    units.pop();
    let may_go = |unit: &Range<usize>| {
        unit.start >= N_SAFE_MESSAGES && question.is_none_or(|at| !unit.contains(&at))
    };
    units.into_iter().find(may_go)
}

fn drop_nudges(entries: &mut Vec<Entry>, keep_recent: usize) {
    let old = old(entries, keep_recent);
    let mut at = 0;
    entries.retain(|entry| {
        let stays = !(entry.is_nudge && old.contains(&at));
        at += 1;
        stays
    });
}

fn cut_results(entry: &mut Entry) {
    if entry.message.role != Role::Tool {
        return;
    }
    let text = entry.message.content_text();
    if let Some((end, _)) = text.char_indices().nth(KEPT_RESULT_CHARS) {
        let text = format!(
            "{}\n[rest of the result left out to save space]",
            &text[..end]
        );
        entry.message.content = vec![Part::Text(text)];
    }
}

fn drop_result(entry: &mut Entry) {
    if entry.message.role == Role::Tool {
        entry.message.content = vec![Part::Text(RESULT_LEFT_OUT.to_owned())];
    }
}

/// A turn of calls keeps the calls; an answer keeps its text, or nothing would be left of it.
fn drop_text(entry: &mut Entry) {
    if entry.message.role != Role::Assistant {
        return;
    }
    entry.message.reasoning = None;
    // They hold the same reasoning and text again. What is left is a plain turn of calls.
    entry.message.provider_items.clear();
    if !entry.message.tool_calls.is_empty() {
        entry.message.content.clear();
    }
}

fn chars(entries: &[Entry]) -> usize {
    let of_call = |call: &twopass_core::chat::ToolCall| {
        call.name.len() + call.arguments.as_text().len() + MESSAGE_CHARS
    };
    let of_message = |message: &Message| {
        let text: usize = message.content.iter().map(part_chars).sum();
        let reasoning = message.reasoning.as_ref().map_or(0, String::len);
        let calls: usize = message.tool_calls.iter().map(of_call).sum();
        text + reasoning + calls + MESSAGE_CHARS
    };
    entries.iter().map(|entry| of_message(&entry.message)).sum()
}

fn part_chars(part: &Part) -> usize {
    /// What a picture costs, as the larger services count: about 1,000 tokens.
    const MEDIA_CHARS: usize = 4000;
    match part {
        Part::Text(text) => text.len(),
        _ => MEDIA_CHARS,
    }
}
