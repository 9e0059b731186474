//! Rules about one file's text.

use crate::files::{File, code_only};

/// Lines of one Rust file, tests included.
const FILE_LINES: usize = 900;

/// Spelt in pieces, so that this file passes its own check.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];
/// A test that is not run protects nothing; slow ones look at an environment variable.
const IGNORE: &str = concat!("#[", "ignore");
const ALLOW: &[&str] = &[concat!("#[", "allow("), concat!("#![", "allow(")];

pub(super) fn check(file: &File, problems: &mut Vec<String>) {
    match file.extension() {
        "rs" => rust(file, problems),
        "toml" if file.path.ends_with("Cargo.toml") => manifest(file, problems),
        _ => {}
    }
}

fn rust(file: &File, problems: &mut Vec<String>) {
    let n_lines = file.text.lines().count();
    if n_lines > FILE_LINES {
        problems.push(format!(
            "{}: {n_lines} lines, at most {FILE_LINES}",
            file.path
        ));
    }
    for (idx, line) in file.text.lines().enumerate() {
        if let Some(word) = UNFINISHED.iter().find(|word| has_word(line, word)) {
            problems.push(format!("{}:{}: `{word}` is left", file.path, idx + 1));
        }
    }
    for (idx, line) in code_only(&file.text).lines().enumerate() {
        let place = format!("{}:{}", file.path, idx + 1);
        if line.contains(IGNORE) {
            problems.push(format!("{place}: a test is ignored"));
        }
        if ALLOW.iter().any(|attribute| line.contains(attribute)) {
            problems.push(format!(
                "{place}: lints are silenced with `expect` and a reason"
            ));
        }
    }
}

/// Whether `word` stands in `line` without a letter or digit right before it.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && (word.ends_with('(') || !after.is_some_and(is_word))
    })
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Every crate takes the workspace's lints.
fn manifest(file: &File, problems: &mut Vec<String>) {
    let section = |name: &str| file.text.lines().any(|line| line.trim() == name);
    if !section("[package]") {
        return;
    }
    let mut lines = file
        .text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "[lints]")
        .skip(1);
    let taken = lines
        .by_ref()
        .take_while(|line| !line.starts_with('['))
        .any(|line| line.replace(' ', "") == "workspace=true");
    if !taken {
        problems.push(format!(
            "{}: `[lints]` with `workspace = true` is missing",
            file.path
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check(
            &File {
                path: path.to_owned(),
                text: text.to_owned(),
            },
            &mut problems,
        );
        problems
    }

    #[test]
    fn unfinished_code_is_found() {
        for word in UNFINISHED {
            let text = format!("fn f() {{}}\n// {word} later)\n");
            let found = problems("a.rs", &text);
            assert_eq!(found, [format!("a.rs:2: `{word}` is left")]);
        }
        assert!(problems("a.rs", "let mytodo_list = autodoc;\n").is_empty());
    }

    #[test]
    fn allow_is_found_in_code_only() {
        let allow = ALLOW[0];
        assert_eq!(
            problems("a.rs", &format!("{allow}dead_code)]\nfn f() {{}}\n")).len(),
            1
        );
        assert!(problems("a.rs", &format!("// {allow}dead_code)]\n")).is_empty());
        assert!(problems("a.rs", &format!("const A: &str = \"{allow}\";\n")).is_empty());
    }

    #[test]
    fn ignored_tests_are_found() {
        let text = format!("{IGNORE} = \"slow\"]\nfn f() {{}}\n");
        assert_eq!(problems("a.rs", &text), ["a.rs:1: a test is ignored"]);
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(problems("a.rs", &"\n".repeat(FILE_LINES + 1)).len(), 1);
        assert!(problems("a.rs", &"\n".repeat(FILE_LINES)).is_empty());
    }

    #[test]
    fn crates_take_the_lints_of_the_workspace() {
        let package = "[package]\nname = \"a\"\n";
        assert_eq!(problems("Cargo.toml", package).len(), 1);
        assert_eq!(
            problems("Cargo.toml", &format!("{package}[lints]\n[features]\n")).len(),
            1
        );
        let good = format!("{package}\n[lints]\nworkspace = true\n");
        assert!(problems("Cargo.toml", &good).is_empty());
        assert!(problems("Cargo.toml", "[workspace]\n").is_empty());
    }
}
