//! stdout: whole lines, flushed, a closed pipe told apart from other errors. Programs get text
//! as it is; on a terminal what models and services say is shown, not obeyed.

use std::io::{self, IsTerminal, Write};

use twopass_tui::for_reader;

use crate::failure::Failure;

/// Prints text and a line end.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    styled_line(&for_reader(text, &io::stdout()))
}

/// Prints our own text with its colours and a line end.
pub(crate) fn styled_line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints a piece of a line at once.
pub(crate) fn piece(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(for_reader(text, &out).as_bytes())?;
    Ok(out.flush()?)
}

/// Whether `NO_COLOR` asks for text without colours.
pub(crate) fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Prints reasoning to stderr, dim on a terminal that has colours.
pub(crate) fn reasoning(text: &str) {
    let mut err = io::stderr().lock();
    let text = for_reader(text, &err);
    let _ = if err.is_terminal() && !is_plain() {
        write!(err, "\x1b[2m{text}\x1b[0m")
    } else {
        write!(err, "{text}")
    };
    let _ = err.flush();
}

/// Rows in columns as wide as their widest cell, the last one ragged.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<_> = (0..n_columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let lines: Vec<_> = rows
        .iter()
        .map(|row| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// The same, its last column broken between words so that lines stay within `width` characters
/// where the words allow it.
pub(crate) fn table_within(width: usize, rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let before: usize = (0..n_columns.saturating_sub(1))
        .map(|column| widest(column) + 2)
        .sum();
    let room = width.saturating_sub(before);
    let mut broken = Vec::new();
    for row in rows {
        let Some((last, first)) = row.split_last() else {
            continue;
        };
        let mut first = first.to_vec();
        for piece in wrap(last, room) {
            let blank = vec![String::new(); first.len()];
            let mut line = std::mem::replace(&mut first, blank);
            line.push(piece);
            broken.push(line);
        }
    }
    table(&broken)
}

fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
