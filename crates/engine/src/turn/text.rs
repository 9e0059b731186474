//! The text side of a turn: bytes to characters, stop strings, what may still be taken back.

use std::collections::VecDeque;
use std::sync::LazyLock;

use twopass_core::chat::TokenLogprob;
use twopass_core::control::Phase;
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::text::{StopMatcher, Utf8Assembler};

use crate::TokenId;
use crate::stream::{Piece, Sender};

/// The text side of a turn.
#[derive(Debug)]
pub(super) struct Text {
    /// Thinking tokens that may still be taken back.
    pub(super) held: VecDeque<TokenId>,
    utf8: Utf8Assembler,
    stops: StopMatcher,
    /// Tokens whose text was not sent yet.
    n_waiting: u32,
    /// Those of them that the reader wants to know more of.
    pub(super) logprobs: Vec<TokenLogprob>,
    whole: String,
}

impl Text {
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self {
            held: VecDeque::new(),
            utf8: Utf8Assembler::new(),
            stops: StopMatcher::new(stops),
            n_waiting: 0,
            logprobs: Vec::new(),
            whole: String::new(),
        }
    }

    /// Sends what is certain of these bytes; returns a stop string that was met.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        n_tokens: u32,
        phase: Phase,
        out: &Sender,
    ) -> Option<String> {
        self.whole.clear();
        self.utf8.push(bytes, &mut self.whole);
        self.n_waiting += n_tokens;
        if phase != Phase::Answering {
            self.send(self.whole.clone(), phase, out);
            return None;
        }
        let mut certain = String::new();
        let met = self.stops.push(&self.whole, &mut certain);
        let met = met.map(str::to_owned);
        self.send(certain, phase, out);
        met
    }

    /// Sends a text that nobody drew.
    pub(super) fn push_forced(&mut self, text: &str, out: &Sender) {
        let mut rest = String::new();
        self.utf8.finish(&mut rest);
        self.send(rest, Phase::Thinking, out);
        out.send_text(Piece {
            text: text.to_owned(),
            n_tokens: 0,
            phase: Phase::Thinking,
            logprobs: Vec::new(),
        });
    }

    pub(super) fn finish(&mut self, phase: Phase, out: &Sender) {
        let mut rest = String::new();
        self.utf8.finish(&mut rest);
        let mut certain = String::new();
        if phase == Phase::Answering {
            self.stops.finish(&mut certain);
        }
        certain.push_str(&rest);
        self.send(certain, phase, out);
    }

    fn send(&mut self, text: String, phase: Phase, out: &Sender) {
        if !text.is_empty() {
            out.send_text(Piece {
                text,
                n_tokens: std::mem::take(&mut self.n_waiting),
                phase,
                logprobs: std::mem::take(&mut self.logprobs),
            });
        }
    }
}

/// The tags that answers are read with by default.
static TAGS: LazyLock<ReasoningSyntax> = LazyLock::new(ReasoningSyntax::auto);

/// True if an answer that begins so shows something: more than white space, stray closing tags
/// and an opening one, whole or unfinished.
pub(super) fn is_visible(head: &[u8]) -> bool {
    let Some(head) = whole_characters(head) else {
        return true;
    };
    let rest = without_closing(head);
    let mut tags = TAGS
        .pairs
        .iter()
        .flat_map(|pair| pair.open.iter().chain(&pair.close));
    !rest.is_empty() && !tags.any(|tag| tag.starts_with(rest))
}

/// So much of an opening tag tells it from other markup: `<thi`.
const TELLING_BYTES: usize = 4;

/// True if an answer that begins so is a second thought, which nobody would see. A tag is seen
/// before it is whole: kept from its last token only, a model writes one that is none.
pub(super) fn opens_thought(head: &[u8]) -> bool {
    let rest = whole_characters(head).map_or("", without_closing);
    let mut tags = TAGS.pairs.iter().flat_map(|pair| &pair.open);
    tags.any(|tag| rest.starts_with(tag) || (rest.len() >= TELLING_BYTES && tag.starts_with(rest)))
}

/// True if these bytes are white space.
pub(super) fn is_blank(piece: &[u8]) -> bool {
    std::str::from_utf8(piece).is_ok_and(|piece| piece.trim().is_empty())
}

/// The text up to a character that has not ended; `None` if it is none: what stands for
/// broken bytes is seen.
fn whole_characters(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_some() => None,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
    }
}

fn without_closing(head: &str) -> &str {
    let mut rest = head.trim_start();
    let closing = || TAGS.pairs.iter().flat_map(|pair| &pair.close);
    while let Some(behind) = closing().find_map(|tag| rest.strip_prefix(tag.as_str())) {
        rest = behind.trim_start();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::{is_visible, opens_thought};

    #[test]
    fn only_real_text_is_visible() {
        let rows = [
            ("", false),
            (" \n", false),
            ("</think>", false),
            ("\n</think>\n </thinking>\n", false),
            ("</thi", false),
            ("<", false),
            ("<t", false),
            ("\n<think>", false),
            ("<thinks", true),
            ("\u{a0}\u{3000}\n", false),
            ("[THINK]", false),
            ("</reasoning>\n", false),
            ("<b", true),
            ("</think>a", true),
            (" a", true),
        ];
        for (head, expect) in rows {
            assert_eq!(is_visible(head.as_bytes()), expect, "{head:?}");
        }
        // The first bytes of a wide space, and bytes that are no text.
        assert!(!is_visible(b"\xe3\x80"));
        assert!(is_visible(b"\xff"));
    }

    #[test]
    fn a_second_thought_is_seen_at_the_begin_of_its_tag() {
        for (head, expect) in [
            ("<t", false),
            ("<this", false),
            ("<think", true),
            ("\n<think>", true),
            ("\u{a0}<reasoning>", true),
            ("</think>\n<thinking>a", true),
            ("a <think>", false),
        ] {
            assert_eq!(opens_thought(head.as_bytes()), expect, "{head:?}");
        }
    }
}
