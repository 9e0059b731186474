//! How a rendered prompt ends, and how a template frames a thought.

use super::open_tag_at_end;
use crate::chat::ThinkTag;

/// Texts of the probe turn: no template contains them.
pub(super) const PROBE_REASONING: &str = "\u{E010}reasoning probe\u{E011}";
pub(super) const PROBE_ANSWER: &str = "\u{E012}answer probe\u{E013}";

/// What the template wrote after the last message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// The generation prompt: the text that `add_generation_prompt` adds.
    pub generation_prompt: String,
    /// The think tag that the template left open at the end (row D12): the model starts
    /// inside the thought, and no second tag may be added.
    pub opened: Option<ThinkTag>,
    /// True if the template wrote a whole empty think block at the end: thinking is
    /// switched off and the model starts in the answer.
    pub closed: bool,
}

impl Boundary {
    /// Compares the prompt rendered without and with the generation prompt.
    pub(super) fn read(without: &str, with: &str) -> Self {
        // Some templates change more than the end; then only the very end can be trusted.
        let added = with.strip_prefix(without).unwrap_or_else(|| {
            let common = without
                .bytes()
                .zip(with.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let at = (0..=common)
                .rev()
                .find(|&at| with.is_char_boundary(at))
                .unwrap_or(0);
            &with[at..]
        });
        let end = added.trim_end();
        let closed = [ThinkTag::Think, ThinkTag::Thinking]
            .into_iter()
            .any(|tag| {
                end.strip_suffix(tag.close())
                    .is_some_and(|head| head.trim_end().ends_with(tag.open()))
            });
        Self {
            generation_prompt: added.to_owned(),
            opened: open_tag_at_end(added),
            closed,
        }
    }
}

/// The text around a thought, in a template's own spacing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkFraming {
    /// What stands before the thought, such as `"<think>\n"`.
    pub open: String,
    /// What stands between thought and answer, such as `"\n</think>\n\n"`.
    pub close: String,
    /// The tag in both.
    pub tag: ThinkTag,
}

impl ThinkFraming {
    /// The framing for a template that shows none: bare tags, and a blank line before the
    /// answer, since many models do not start an answer right after the tag.
    #[must_use]
    pub fn bare(tag: ThinkTag) -> Self {
        Self {
            open: tag.open().to_owned(),
            close: format!("{}\n\n", tag.close()),
            tag,
        }
    }

    /// This framing with another tag in the same spacing.
    #[must_use]
    pub fn with_tag(&self, tag: ThinkTag) -> Self {
        Self {
            open: self.open.replace(self.tag.open(), tag.open()),
            close: self.close.replace(self.tag.close(), tag.close()),
            tag,
        }
    }

    /// Reads the framing from a rendered probe turn.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (before, rest) = text.split_once(PROBE_REASONING)?;
        let (between, _) = rest.split_once(PROBE_ANSWER)?;
        let tag = open_tag_at_end(before)?;
        if between.trim() != tag.close() {
            return None;
        }
        let at = before.rfind(tag.open())?;
        Some(Self {
            open: before[at..].to_owned(),
            close: between.to_owned(),
            tag,
        })
    }
}
