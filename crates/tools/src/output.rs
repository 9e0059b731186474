use std::borrow::Cow;
use std::time::Duration;

use crate::{ErrorKind, ToolError};

/// What the text of our own failures begins with.
const ERROR: &str = "error: ";

/// What one call gave: always something, never an `Err`, so that every call has its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text for the model. Untrusted: it may hold anything, calls and control tokens
    /// included, and stays data.
    pub text: String,
    /// Why the call failed; `None` for a call that did what it was asked.
    pub error: Option<ErrorKind>,
    /// True if text was left out to keep a limit; the text says so, too.
    pub truncated: bool,
    /// How long the call took, waiting for consent left out.
    pub duration: Duration,
}

impl ToolOutput {
    /// A call that did what it was asked.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            error: None,
            truncated: false,
            duration: Duration::ZERO,
        }
    }

    /// The text as people are shown it: a failed call's begins with `error: `, once.
    #[must_use]
    pub fn for_people(&self) -> Cow<'_, str> {
        match self.is_error() && !self.text.starts_with(ERROR) {
            true => Cow::Owned(format!("{ERROR}{}", self.text)),
            false => Cow::Borrowed(&self.text),
        }
    }

    /// True if the call failed (`is_error` on the wires).
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<ToolError> for ToolOutput {
    fn from(error: ToolError) -> Self {
        Self {
            error: Some(error.kind()),
            ..Self::text(format!("{ERROR}{error}"))
        }
    }
}

/// The text, with its middle left out if it is longer than `max_chars` characters, and
/// whether it was.
///
/// Head and tail are kept, cut at line ends where one is near; a line between them says how
/// much is missing. The result may be longer than `max_chars` by that line.
#[must_use]
pub fn cut_middle(text: &str, max_chars: usize) -> (String, bool) {
    let n_chars = text.chars().count();
    if n_chars <= max_chars {
        return (text.to_owned(), false);
    }
    let n_head = max_chars.div_ceil(2);
    let n_tail = max_chars - n_head;
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let mut head = &text[..at(n_head)];
    let mut tail = &text[at(n_chars - n_tail)..];
    // A line end in the last eighth is near.
    if let Some(end) = head
        .rfind('\n')
        .filter(|end| head.len() - end < head.len() / 8)
    {
        head = &head[..=end];
    }
    if let Some(end) = tail.find('\n').filter(|end| *end < tail.len() / 8) {
        tail = &tail[end + 1..];
    }
    let n_left = n_chars - head.chars().count() - tail.chars().count();
    let gap = if head.ends_with('\n') || head.is_empty() {
        ""
    } else {
        "\n"
    };
    (
        format!("{head}{gap}[truncated: {n_left} characters left out]\n{tail}"),
        true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_cut_and_counted() {
        let cases: [(&str, usize, &str); 6] = [
            ("short", 5, "short"),
            ("", 0, ""),
            ("abcdefgh", 4, "ab\n[truncated: 4 characters left out]\ngh"),
            ("äöüßäöüß", 4, "äö\n[truncated: 4 characters left out]\nüß"),
            ("abc", 0, "[truncated: 3 characters left out]\n"),
            ("abc", 1, "a\n[truncated: 2 characters left out]\n"),
        ];
        for (text, max, expect) in cases {
            let (cut, truncated) = cut_middle(text, max);
            assert_eq!(cut, expect);
            assert_eq!(truncated, text.chars().count() > max);
        }
        let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let (cut, _) = cut_middle(&lines, 1000);
        assert!(cut.starts_with("line 0\n") && cut.ends_with("line 999\n"));
        assert!(
            cut.lines()
                .all(|line| line.starts_with("line ") || line.starts_with('['))
        );
    }
}
