//! The text as lines under headings.

use std::ops::Range;

use crate::{ErrorKind, ToolError};

/// The text's lines and its sections.
pub(super) struct Document {
    pub(super) lines: Vec<String>,
}

/// One heading and the lines below it, up to the next.
struct Section {
    title: String,
    /// Lines below the heading, by index.
    lines: Range<usize>,
}

impl Document {
    pub(super) fn new(text: &str) -> Self {
        Self {
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    /// The lines again, each ended.
    pub(super) fn into_text(self) -> String {
        let mut text = self.lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The lines below a heading, by index. Case, spaces, numbers and marks before the title
    /// do not count.
    pub(super) fn section(&self, title: &str) -> Result<Range<usize>, ToolError> {
        let sections = self.sections();
        let wanted = fold_title(title);
        let exact = sections
            .iter()
            .filter(|section| fold_title(&section.title) == wanted);
        let found: Vec<&Section> = exact.collect();
        match found.as_slice() {
            [only] => Ok(only.lines.clone()),
            [] => {
                let known: Vec<_> = sections.iter().map(|s| format!("`{}`", s.title)).collect();
                let known = if known.is_empty() {
                    "the memory has no sections".to_owned()
                } else {
                    format!("the sections are {}", known.join(", "))
                };
                Err(ToolError::new(
                    ErrorKind::NotFound,
                    format!("no section `{title}`, {known}"),
                ))
            }
            _ => Err(ToolError::failed(format!(
                "{} sections have the title `{title}`",
                found.len()
            ))),
        }
    }

    /// The lines of a section, or all of them.
    pub(super) fn scope(&self, title: Option<&str>) -> Result<Range<usize>, ToolError> {
        match title.filter(|title| !title.trim().is_empty()) {
            Some(title) => self.section(title),
            None => Ok(0..self.lines.len()),
        }
    }

    fn sections(&self) -> Vec<Section> {
        // Numbered lines are headings only where nothing else is, as they may be items.
        let has_marks = self.lines.iter().any(|line| line.starts_with('#'));
        let is_heading = |idx: &usize| {
            let line = &self.lines[*idx];
            line.starts_with('#') || (!has_marks && without_number(line).is_some())
        };
        let starts: Vec<usize> = (0..self.lines.len()).filter(is_heading).collect();
        let ends = starts.iter().skip(1).copied().chain([self.lines.len()]);
        let sections = starts.iter().zip(ends).map(|(start, end)| Section {
            title: self.lines[*start].trim_start_matches('#').trim().to_owned(),
            lines: start + 1..end,
        });
        sections.collect()
    }
}

/// A line as it is compared: without bullet, spaces folded, in lower case.
pub(super) fn fold(line: &str) -> String {
    let line = line.trim();
    let line = line
        .strip_prefix(['-', '*', '+', '•'])
        .filter(|rest| rest.starts_with(char::is_whitespace))
        .unwrap_or(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// A title as it is compared: also without `#`, its number and a colon at its end.
fn fold_title(title: &str) -> String {
    let title = title.trim_start_matches('#').trim();
    let title = without_number(title).unwrap_or(title);
    fold(title.trim_end_matches(':'))
}

/// What follows the number of a line such as `2. Facts`.
fn without_number(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest
        .strip_prefix(['.', ')'])
        .filter(|_| rest.len() < line.len())?;
    rest.starts_with(' ').then_some(rest)
}
