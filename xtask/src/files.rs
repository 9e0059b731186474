//! The text files of the repository, and Rust code without its comments and strings.

use std::path::Path;

use anyhow::Context as _;

/// One text file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Relative to the workspace root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// What follows the last dot of the name.
    pub(crate) fn extension(&self) -> &str {
        Path::new(&self.path)
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default()
    }
}

/// Folders that hold nothing written by us.
const SKIPPED: &[&str] = &["target", "node_modules", "__pycache__", "wheels"];
/// Kinds of files that rules look at.
const KINDS: &[&str] = &["rs", "toml", "md", "py", "jsonl", "json", "yaml"];

/// All text files below `root`, sorted by path. Hidden folders and build output are left out.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read the folder {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !name.starts_with('.') && !SKIPPED.contains(&&*name) {
                    open.push(entry.path());
                }
                continue;
            }
            let is_text = KINDS
                .iter()
                .any(|kind| name.rsplit('.').next() == Some(kind));
            if !kind.is_file() || !(is_text || name.starts_with("LICENSE")) {
                continue;
            }
            let text = std::fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            let path = entry.path();
            let path = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .replace('\\', "/");
            files.push(File { path, text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Rust code with comments, strings and character literals blanked; lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let n_bytes = skipped(rest, out.chars().next_back());
        if n_bytes == 0 {
            out.push(char);
            rest = &rest[char.len_utf8()..];
        } else {
            out.extend(
                rest[..n_bytes]
                    .chars()
                    .map(|c| if c == '\n' { '\n' } else { ' ' }),
            );
            rest = &rest[n_bytes..];
        }
    }
    out
}

/// Bytes of the comment or literal at the start of `rest`; 0 if there is none.
fn skipped(rest: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    let raw = rest.trim_start_matches(['b', 'c']);
    if let Some(raw) = raw.strip_prefix('r').filter(|_| !in_word) {
        let n_hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(body) = raw[n_hashes..].strip_prefix('"') {
            let close = format!("\"{}", "#".repeat(n_hashes));
            let start = rest.len() - body.len();
            return body
                .find(&close)
                .map_or(rest.len(), |end| start + end + close.len());
        }
    }
    if rest.starts_with('"') {
        return literal_end(rest, '"');
    }
    // `'a'` and `'\n'` are literals, `'a` is a lifetime.
    let mut chars = rest.chars();
    if chars.next() == Some('\'') {
        let first = chars.next();
        if first == Some('\\') || chars.next() == Some('\'') {
            return literal_end(rest, '\'');
        }
    }
    0
}

/// Bytes up to and with the closing quote of the literal that `rest` begins with.
fn literal_end(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + char.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let cases = [
            ("a // b\nc", "a     \nc"),
            ("a /* b\n */ c", "a     \n    c"),
            (
                r#"f("x\"y", 'z', '\'', 'é') + g::<'a>()"#,
                "f(      ,    ,     ,    ) + g::<'a>()",
            ),
            ("r#\"a\"b\"# c", "         c"),
            ("for_r\"x\"", "for_r   "),
            ("\"never closed", "             "),
        ];
        for (text, expect) in cases {
            assert_eq!(code_only(text), expect, "{text}");
        }
    }
}
