//! Which of the drawn tokens stand in the answer that is shown.
//!
//! Between tokens and answer stand the parsers: they take out thoughts, tags, the markup of
//! calls, white space. What they hand on comes in the order of the tokens and byte for byte,
//! so each piece is looked for in the bytes that are left, and the tokens under a piece of
//! the answer are the answer's. Tokens under anything else are dropped, those of a private
//! thought above all.

use std::collections::VecDeque;

use crate::chat::{Event, TokenLogprob};

/// The most of tags, markup of calls and white space between two pieces.
const MAX_MARKUP_BYTES: usize = 128;

/// Tokens on their way to the answer.
#[derive(Debug, Default)]
pub struct VisibleLogprobs {
    /// Bytes that no event has told of yet.
    bytes: Vec<u8>,
    /// The tokens of these bytes; the first may have begun before them.
    tokens: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// How many of the bytes are its.
    n_bytes: usize,
    /// `None` once it was shown.
    logprob: Option<TokenLogprob>,
}

impl VisibleLogprobs {
    /// Takes tokens whose text comes next.
    pub fn push(&mut self, tokens: Vec<TokenLogprob>) {
        for token in tokens.into_iter().filter(|token| !token.bytes.is_empty()) {
            self.bytes.extend_from_slice(&token.bytes);
            self.tokens.push_back(Waiting {
                n_bytes: token.bytes.len(),
                logprob: Some(token),
            });
        }
    }

    /// The tokens of this event, if it is a piece of the answer that tokens are known of. A
    /// token that two pieces share comes with the first.
    #[must_use]
    pub fn of(&mut self, event: &Event) -> Option<Event> {
        if self.bytes.is_empty() {
            return None;
        }
        let (text, is_answer) = match event {
            Event::TextDelta(text) => (text, true),
            Event::ReasoningDelta(text)
            | Event::CallStarted { name: text, .. }
            | Event::ArgumentsDelta { text, .. } => (text, false),
            _ => return None,
        };
        let text = text.as_bytes();
        // Text that nobody drew is not found and has no tokens. Nor is text behind much that was
        // told otherwise than drawn: what is found far off may be part of that.
        let reach = self.bytes.len().min(text.len().max(1) + MAX_MARKUP_BYTES);
        let start = self.bytes[..reach]
            .windows(text.len().max(1))
            .position(|w| w == text)?;
        // A token that goes on into the piece is not lost.
        self.advance(start, |_| {});
        let mut shown = Vec::new();
        self.advance(text.len(), |token| shown.extend(token.logprob.take()));
        (is_answer && !shown.is_empty()).then_some(Event::Logprobs(shown))
    }

    /// Takes bytes out, and the tokens that end with them.
    fn advance(&mut self, n_bytes: usize, mut pass: impl FnMut(&mut Waiting)) {
        self.bytes.drain(..n_bytes);
        let mut left = n_bytes;
        while left > 0
            && let Some(first) = self.tokens.front_mut()
        {
            pass(first);
            let n = first.n_bytes.min(left);
            first.n_bytes -= n;
            left -= n;
            if first.n_bytes == 0 {
                self.tokens.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIDDEN: &str = "a thought that is told by nobody and is so long that no tag, no markup and \
        no white space explain why none of its bytes was handed on as what they were drawn as, ";

    fn token(text: &str) -> TokenLogprob {
        TokenLogprob {
            bytes: text.as_bytes().to_vec(),
            ..TokenLogprob::default()
        }
    }

    /// Tokens and events, `*` before a piece of the answer; the tokens that are shown.
    fn shown(tokens: &[&str], events: &[&str]) -> Vec<String> {
        let mut logprobs = VisibleLogprobs::default();
        logprobs.push(tokens.iter().map(|text| token(text)).collect());
        let events = events.iter().map(|text| match text.strip_prefix('*') {
            Some(text) => Event::TextDelta(text.to_owned()),
            None => Event::ReasoningDelta((*text).to_owned()),
        });
        let mut shown = Vec::new();
        for event in events {
            if let Some(Event::Logprobs(tokens)) = logprobs.of(&event) {
                let texts = tokens
                    .into_iter()
                    .map(|t| String::from_utf8(t.bytes).unwrap());
                shown.extend(texts);
            }
        }
        shown
    }

    #[test]
    fn the_tokens_of_the_answer_are_shown_and_no_others() {
        type Row = (
            &'static [&'static str],
            &'static [&'static str],
            &'static [&'static str],
        );
        let rows: [Row; 8] = [
            (
                &["Hel", "lo", " you"],
                &["*Hello you"],
                &["Hel", "lo", " you"],
            ),
            (
                &["Hel", "lo", " you"],
                &["*He", "*llo", "*", "* you"],
                &["Hel", "lo", " you"],
            ),
            (&["\n\n", "Hi"], &["*Hi"], &["Hi"]),
            (
                &["<think>", "Hi", "</think>", "\n\nHi", "!"],
                &["Hi", "*Hi", "*!"],
                &["\n\nHi", "!"],
            ),
            (&["Hi", "!"], &["*something else", "*Hi"], &["Hi"]),
            (
                &["Hi"],
                &["a thought without tokens", "*Hi", "*Hi"],
                &["Hi"],
            ),
            // A long thought that no event tells of keeps its tokens, and those behind it.
            (&[HIDDEN, "so", "Hi"], &["*Hi"], &[]),
            (&[], &["*Hi"], &[]),
        ];
        for (tokens, events, expect) in rows {
            assert_eq!(shown(tokens, events), expect, "{tokens:?} {events:?}");
        }
    }
}
