//! What each tool does to the text, as plain functions.

use super::document::{Document, fold};
use crate::{ErrorKind, ToolError};

/// Shortest text that names a line by a part of it, in characters.
const MIN_PART_CHARS: usize = 8;

/// Most places that an error lists.
const MAX_LISTED: usize = 10;

/// The text after an edit, and what the edit did.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) text: String,
    pub(super) summary: String,
}

/// Puts lines at the end of a section; those that it has already are left out.
pub(super) fn append(text: &str, title: &str, lines: &[String]) -> Result<Edited, ToolError> {
    let mut document = Document::new(text);
    let section = document.section(title)?;
    let mut known: Vec<String> = document.lines[section.clone()]
        .iter()
        .map(|l| fold(l))
        .collect();
    let mut new = Vec::new();
    let mut n_known = 0;
    for line in lines.iter().flat_map(|line| line.lines()) {
        if fold(line).is_empty() {
            continue;
        }
        if line.starts_with('#') {
            let message = format!("`{line}` is a heading; only lines below a heading are appended");
            return Err(ToolError::new(ErrorKind::InvalidArguments, message));
        }
        if known.contains(&fold(line)) {
            n_known += 1;
            continue;
        }
        known.push(fold(line));
        new.push(line.trim_end().to_owned());
    }
    // Behind the last line that is not blank, so that the space before a heading stays.
    let is_full = |idx: &usize| !document.lines[*idx].trim().is_empty();
    let at = section
        .clone()
        .rev()
        .find(is_full)
        .map_or(section.start, |idx| idx + 1);
    let n_new = new.len();
    document.lines.splice(at..at, new);
    let mut summary = format!("{n_new} lines appended");
    if n_known > 0 {
        summary.push_str(&format!(", {n_known} were there already"));
    }
    Ok(Edited {
        text: if n_new == 0 {
            text.to_owned()
        } else {
            document.into_text()
        },
        summary,
    })
}

/// Removes lines of a section. What is not there is told, not an error.
pub(super) fn delete(text: &str, title: &str, lines: &[String]) -> Result<Edited, ToolError> {
    let mut document = Document::new(text);
    let section = document.section(title)?;
    let mut doomed: Vec<usize> = Vec::new();
    let mut missing = Vec::new();
    for line in lines.iter().flat_map(|line| line.lines()) {
        let wanted = fold(line);
        if wanted.is_empty() {
            continue;
        }
        let matching = |is: &dyn Fn(&str) -> bool| -> Vec<usize> {
            section
                .clone()
                .filter(|idx| is(&fold(&document.lines[*idx])))
                .collect()
        };
        let mut found = matching(&|have| have == wanted);
        if found.is_empty() && wanted.chars().count() >= MIN_PART_CHARS {
            found = matching(&|have| have.contains(&wanted));
        }
        match found.as_slice() {
            [] => missing.push(format!("`{}`", line.trim())),
            [only] => doomed.push(*only),
            many => {
                let places: Vec<_> = many
                    .iter()
                    .take(MAX_LISTED)
                    .map(|idx| format!("`{}`", document.lines[*idx].trim()))
                    .collect();
                return Err(ToolError::failed(format!(
                    "`{}` could be {} lines: {}; nothing was deleted, give the whole line",
                    line.trim(),
                    many.len(),
                    places.join(", ")
                )));
            }
        }
    }
    doomed.sort_unstable();
    doomed.dedup();
    for idx in doomed.iter().rev() {
        document.lines.remove(*idx);
    }
    let mut summary = format!("{} lines deleted", doomed.len());
    if !missing.is_empty() {
        summary.push_str(&format!("; not in this section: {}", missing.join(", ")));
    }
    Ok(Edited {
        text: if doomed.is_empty() {
            text.to_owned()
        } else {
            document.into_text()
        },
        summary,
    })
}

/// A replacement of one passage by another.
pub(super) struct Replacement<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    pub(super) section_title: Option<&'a str>,
    pub(super) expected: usize,
    /// What must stand right before and right behind, white space aside.
    pub(super) before: &'a str,
    pub(super) after: &'a str,
}

pub(super) fn replace(text: &str, wanted: &Replacement<'_>) -> Result<Edited, ToolError> {
    if wanted.old.is_empty() {
        let message = "old is empty";
        return Err(ToolError::new(ErrorKind::InvalidArguments, message));
    }
    let document = Document::new(text);
    let scope = document.scope(wanted.section_title)?;
    let offset = |idx: usize| {
        document.lines[..idx]
            .iter()
            .map(|line| line.len() + 1)
            .sum::<usize>()
    };
    // A text without a line end at its end is one byte shorter than its lines say.
    let (from, to) = (
        offset(scope.start).min(text.len()),
        offset(scope.end).min(text.len()),
    );
    let part = &text[from..to];
    let places = |what: &str| -> Vec<usize> {
        part.match_indices(what)
            .filter(|(at, _)| {
                part[..*at].trim_end().ends_with(wanted.before.trim_end())
                    && part[at + what.len()..]
                        .trim_start()
                        .starts_with(wanted.after.trim_start())
            })
            .map(|(at, _)| from + at)
            .collect()
    };
    let found = places(wanted.old);
    if found.is_empty() && !wanted.new.is_empty() && !places(wanted.new).is_empty() {
        return Ok(Edited {
            text: text.to_owned(),
            summary: "nothing changed: the new text is there already".to_owned(),
        });
    }
    if found.len() != wanted.expected {
        let lines: Vec<_> = found
            .iter()
            .take(MAX_LISTED)
            .map(|at| (text[..*at].matches('\n').count() + 1).to_string())
            .collect();
        let places = if lines.is_empty() {
            String::new()
        } else {
            format!(
                ", at the lines {}; give text before or after to tell them apart",
                lines.join(", ")
            )
        };
        return Err(ToolError::failed(format!(
            "`{}` was found {} times, expected {}{places}",
            wanted.old,
            found.len(),
            wanted.expected
        )));
    }
    let mut changed = text.to_owned();
    for at in found.iter().rev() {
        changed.replace_range(*at..at + wanted.old.len(), wanted.new);
    }
    Ok(Edited {
        text: changed,
        summary: format!("{} replacements", found.len()),
    })
}

/// Removes lines by number, counted from 1, then puts new ones at the end.
pub(super) fn update(
    text: &str,
    deletions: &[usize],
    insertions: &[String],
) -> Result<Edited, ToolError> {
    let mut document = Document::new(text);
    let n_lines = document.lines.len();
    if let Some(wrong) = deletions
        .iter()
        .find(|number| !(1..=n_lines).contains(*number))
    {
        return Err(ToolError::new(
            ErrorKind::InvalidArguments,
            format!(
                "there is no line {wrong}, the memory has {n_lines} lines; nothing was changed"
            ),
        ));
    }
    let mut doomed = deletions.to_vec();
    doomed.sort_unstable();
    doomed.dedup();
    for number in doomed.iter().rev() {
        document.lines.remove(number - 1);
    }
    let known: Vec<String> = document.lines.iter().map(|line| fold(line)).collect();
    let new = insertions.iter().flat_map(|line| line.lines());
    let new: Vec<String> = new
        .filter(|line| !known.contains(&fold(line)))
        .map(str::to_owned)
        .collect();
    let summary = format!("{} lines deleted, {} inserted", doomed.len(), new.len());
    let is_same = doomed.is_empty() && new.is_empty();
    document.lines.extend(new);
    Ok(Edited {
        text: if is_same {
            text.to_owned()
        } else {
            document.into_text()
        },
        summary,
    })
}
