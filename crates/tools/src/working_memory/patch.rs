//! Patches:
//!
//! ```text
//! *** Begin Patch
//! *** Update Memory
//! @@ section: Facts and knowledge
//!  a line that stays
//! -a line that goes
//! +a line that comes
//! *** End Patch
//! ```
//!
//! A hunk begins with `@@`; its lines that stay and go must stand in its section, in a row,
//! exactly once. A hunk of new lines only goes to the section's end.

use super::document::{Document, fold};
use super::edits::Edited;
use crate::{ErrorKind, ToolError};

/// One place to change.
struct Hunk<'a> {
    section_title: Option<&'a str>,
    lines: Vec<Line<'a>>,
}

#[derive(Clone, Copy)]
enum Line<'a> {
    Stays(&'a str),
    Goes(&'a str),
    Comes(&'a str),
}

/// What a patch is expected to do; `None` is not checked.
#[derive(Clone, Copy, Default)]
pub(super) struct Expected {
    pub(super) n_hunks: Option<usize>,
    /// Lines that come and go.
    pub(super) n_changes: Option<usize>,
}

/// Applies every hunk or none.
pub(super) fn apply(text: &str, patch: &str, expected: Expected) -> Result<Edited, ToolError> {
    let hunks = parse(patch)?;
    let n_changes: usize = hunks.iter().map(Hunk::n_changes).sum();
    for (what, wanted, have) in [
        ("hunks", expected.n_hunks, hunks.len()),
        ("changed lines", expected.n_changes, n_changes),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != have) {
            return Err(ToolError::failed(format!(
                "the patch has {have} {what}, expected {wanted}; nothing was changed"
            )));
        }
    }
    let mut document = Document::new(text);
    let (mut n_added, mut n_removed, mut n_done) = (0, 0, 0);
    for (idx, hunk) in hunks.iter().enumerate() {
        let applied = hunk.apply(&mut document).map_err(|error| {
            ToolError::new(
                error.kind(),
                format!("hunk {}: {error}; nothing was changed", idx + 1),
            )
        })?;
        if applied {
            n_added += hunk.count(|line| matches!(line, Line::Comes(_)));
            n_removed += hunk.count(|line| matches!(line, Line::Goes(_)));
        } else {
            n_done += 1;
        }
    }
    let mut summary = format!(
        "{} hunks, {n_added} lines added, {n_removed} removed",
        hunks.len()
    );
    if n_done > 0 {
        summary.push_str(&format!(", {n_done} hunks were applied already"));
    }
    Ok(Edited {
        text: if n_done == hunks.len() {
            text.to_owned()
        } else {
            document.into_text()
        },
        summary,
    })
}

impl Hunk<'_> {
    fn count(&self, is: impl Fn(&Line<'_>) -> bool) -> usize {
        self.lines.iter().filter(|line| is(line)).count()
    }

    fn n_changes(&self) -> usize {
        self.count(|line| !matches!(line, Line::Stays(_)))
    }

    /// False if the hunk was applied already.
    fn apply(&self, document: &mut Document) -> Result<bool, ToolError> {
        let scope = document.scope(self.section_title)?;
        let (old, new) = self.sides();
        if old.is_empty() {
            return Ok(self.append(document, &new));
        }
        let places = |block: &[&str]| -> Vec<usize> {
            let folded: Vec<String> = block.iter().map(|line| fold(line)).collect();
            let have: Vec<String> = document.lines[scope.clone()]
                .iter()
                .map(|l| fold(l))
                .collect();
            let windows = have.windows(folded.len()).enumerate();
            windows
                .filter(|(_, window)| *window == folded)
                .map(|(idx, _)| scope.start + idx)
                .collect()
        };
        match places(&old).as_slice() {
            [only] => {
                let new = self.written(document, *only);
                document.lines.splice(*only..only + old.len(), new);
                Ok(true)
            }
            [] if !new.is_empty() && places(&new).len() == 1 => Ok(false),
            // Lines that only go and are gone.
            [] if new.is_empty() => Ok(false),
            [] => Err(ToolError::failed(format!(
                "the lines that stay and go do not stand there in a row: `{}`",
                old.join(" / ")
            ))),
            many => {
                let lines: Vec<_> = many.iter().map(|idx| (idx + 1).to_string()).collect();
                Err(ToolError::failed(format!(
                    "the lines that stay and go stand there {} times, at the lines {}; add lines \
                     around them",
                    many.len(),
                    lines.join(", ")
                )))
            }
        }
    }

    /// The lines before and after.
    fn sides(&self) -> (Vec<&str>, Vec<&str>) {
        let old = self.lines.iter().filter_map(|line| match line {
            Line::Stays(text) | Line::Goes(text) => Some(*text),
            Line::Comes(_) => None,
        });
        let new = self.lines.iter().filter_map(|line| match line {
            Line::Stays(text) | Line::Comes(text) => Some(*text),
            Line::Goes(_) => None,
        });
        (old.collect(), new.collect())
    }

    /// The lines after, those that stay as the memory has them.
    fn written(&self, document: &Document, start: usize) -> Vec<String> {
        let mut at = start;
        let mut written = Vec::new();
        for line in &self.lines {
            match line {
                Line::Stays(_) => {
                    written.push(document.lines[at].clone());
                    at += 1;
                }
                Line::Goes(_) => at += 1,
                Line::Comes(text) => written.push((*text).to_owned()),
            }
        }
        written
    }

    /// Puts new lines at the section's end; false if they are there already.
    fn append(&self, document: &mut Document, new: &[&str]) -> bool {
        let Ok(scope) = document.scope(self.section_title) else {
            return false;
        };
        let have: Vec<String> = document.lines[scope.clone()]
            .iter()
            .map(|line| fold(line))
            .collect();
        if new.iter().all(|line| have.contains(&fold(line))) {
            return false;
        }
        let is_full = |idx: &usize| !document.lines[*idx].trim().is_empty();
        let at = scope
            .clone()
            .rev()
            .find(is_full)
            .map_or(scope.start, |idx| idx + 1);
        document
            .lines
            .splice(at..at, new.iter().map(|line| (*line).to_owned()));
        true
    }
}

fn parse(patch: &str) -> Result<Vec<Hunk<'_>>, ToolError> {
    let bad =
        |what: String| ToolError::new(ErrorKind::InvalidArguments, format!("bad patch: {what}"));
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    let mut has_begun = false;
    let mut has_ended = false;
    for (idx, line) in patch.lines().enumerate() {
        let word = line.trim();
        let is_fence = word.starts_with("```");
        if has_ended || (!has_begun && (word.is_empty() || is_fence)) {
            continue;
        }
        if word == "*** Begin Patch" {
            has_begun = true;
        } else if !has_begun {
            return Err(bad("it must begin with `*** Begin Patch`".to_owned()));
        } else if word == "*** End Patch" {
            has_ended = true;
        } else if word.starts_with("*** Update") {
        } else if let Some(rest) = word.strip_prefix("@@") {
            let title = rest.trim().trim_end_matches("@@").trim();
            let title = title.strip_prefix("section:").unwrap_or(title).trim();
            hunks.push(Hunk {
                section_title: Some(title).filter(|title| !title.is_empty()),
                lines: Vec::new(),
            });
        } else {
            let hunk = hunks.last_mut();
            let hunk =
                hunk.ok_or_else(|| bad("a hunk must begin with `@@ section: TITLE`".to_owned()))?;
            hunk.lines.push(match line.split_at_checked(1) {
                Some(("-", text)) => Line::Goes(text),
                Some(("+", text)) => Line::Comes(text),
                Some((" ", text)) => Line::Stays(text),
                // An editor that trims lines leaves nothing of a blank one.
                None => Line::Stays(""),
                Some(_) => {
                    let n = idx + 1;
                    return Err(bad(format!("line {n} must begin with a space, `-` or `+`")));
                }
            });
        }
    }
    if !has_ended {
        return Err(bad("it must end with `*** End Patch`".to_owned()));
    }
    if hunks.iter().all(|hunk| hunk.n_changes() == 0) {
        return Err(bad("it changes nothing".to_owned()));
    }
    Ok(hunks)
}
