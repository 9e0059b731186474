//! stdout: whole lines, flushed, a closed pipe told apart from other errors.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Prints text and a line end.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints a piece of a line at once.
pub(crate) fn piece(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints reasoning to stderr, dim on a terminal that has colours.
pub(crate) fn reasoning(text: &str) {
    let mut err = io::stderr().lock();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let _ = if err.is_terminal() && !plain {
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
