//! Breaking styled text into lines that fit.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar;

use crate::harmless::harmless_line;

/// What stands before the first line and before the others.
#[derive(Clone)]
pub(crate) struct Prefix {
    pub(crate) first: Vec<Span<'static>>,
    pub(crate) rest: Vec<Span<'static>>,
}

impl Prefix {
    pub(crate) fn none() -> Self {
        Self::same(Vec::new())
    }

    pub(crate) fn same(spans: Vec<Span<'static>>) -> Self {
        Self {
            first: spans.clone(),
            rest: spans,
        }
    }
}

/// One line of text as lines of at most `width` columns, broken between words where that is
/// possible. No text moves the cursor.
pub(crate) fn wrap(spans: &[Span<'_>], width: usize, prefix: &Prefix) -> Vec<Line<'static>> {
    let cells = cells(spans);
    let mut lines = Vec::new();
    let mut rest = cells.as_slice();
    loop {
        let prefix = if lines.is_empty() {
            &prefix.first
        } else {
            &prefix.rest
        };
        let taken: usize = prefix.iter().map(Span::width).sum();
        let room = width.saturating_sub(taken).max(1);
        let (head, tail) = rest.split_at(fitting(rest, room));
        let mut spans = prefix.clone();
        let is_short = head
            .iter()
            .filter_map(|(one, _)| one.width())
            .sum::<usize>()
            <= room;
        let end = if tail.is_empty() && is_short {
            head.len()
        } else {
            let kept = head.iter().rposition(|(one, _)| *one != ' ');
            kept.map_or(0, |at| at + 1)
        };
        spans.extend(joined(&head[..end]));
        lines.push(Line::from(spans));
        if tail.is_empty() {
            return lines;
        }
        rest = tail;
    }
}

fn cells(spans: &[Span<'_>]) -> Vec<(char, Style)> {
    let cells = spans.iter().flat_map(|span| {
        let text = harmless_line(&span.content);
        let style = span.style;
        text.chars().map(|one| (one, style)).collect::<Vec<_>>()
    });
    cells.collect()
}

/// How many cells go on a line of `room` columns; at least one, if there is one.
fn fitting(cells: &[(char, Style)], room: usize) -> usize {
    let mut width = 0;
    let mut after_space = None;
    for (at, (one, _)) in cells.iter().enumerate() {
        let wide = one.width().unwrap_or(0);
        if *one == ' ' && width + wide > room {
            // Spaces at the end of a line take no room.
            after_space = Some(at + 1);
            continue;
        }
        if width + wide > room {
            return after_space.unwrap_or(at).max(1);
        }
        if *one == ' ' {
            after_space = Some(at + 1);
        }
        width += wide;
    }
    cells.len()
}

fn joined(cells: &[(char, Style)]) -> Vec<Span<'static>> {
    let runs = cells.chunk_by(|(_, one), (_, other)| one == other);
    runs.map(|run| {
        let text: String = run.iter().map(|(one, _)| one).collect();
        Span::styled(text, run[0].1)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_never_overflow() {
        let table: [(&str, usize, &[&str]); 8] = [
            ("", 10, &[""]),
            ("one two three", 7, &["one two", "three"]),
            ("one two  three", 8, &["one two", "three"]),
            ("one   ", 4, &["one"]),
            ("abcdefghij", 4, &["abcd", "efgh", "ij"]),
            ("你好世界", 4, &["你好", "世界"]),
            ("a\x1b[2Jb\u{7}\tc", 20, &["a␛[2Jb␇    c"]),
            ("x", 0, &["x"]),
        ];
        for (text, width, expected) in table {
            let lines = wrap(&[Span::raw(text)], width, &Prefix::none());
            let lines: Vec<String> = lines.iter().map(Line::to_string).collect();
            assert_eq!(lines, expected, "{text}");
        }
    }
}
