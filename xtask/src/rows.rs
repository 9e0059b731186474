//! Row ids of the specification that tests name, such as `A1` or `M10`.
//!
//! A test names its rows at the start of its name (`fn e8_e9_code_fence`) or in a comment in
//! test code (`// Rows E8, E9.`); a file of cases has `rows = ["E8"]` or `"rows": ["E8"]`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

use crate::Outcome;
use crate::files::{File, files};
use crate::workspace::Workspace;

/// Last row number of each group of the specification.
const GROUPS: &[(char, u32)] = &[
    ('A', 16),
    ('B', 18),
    ('C', 7),
    ('D', 14),
    ('E', 18),
    ('F', 7),
    ('G', 9),
    ('H', 12),
    ('I', 13),
    ('J', 11),
    ('K', 5),
    ('L', 13),
    ('M', 10),
    ('X', 21),
];

/// A row id, ordered as in the specification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    group: char,
    number: u32,
}

impl Row {
    /// Reads `E8`; in a function's name the letter is small.
    fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let group = chars.next()?.to_ascii_uppercase();
        let number = chars.as_str();
        let is_number =
            !number.is_empty() && number.len() <= 2 && number.bytes().all(|b| b.is_ascii_digit());
        if !is_number || !GROUPS.iter().any(|(known, _)| *known == group) {
            return None;
        }
        Some(Self {
            group,
            number: number.parse().ok()?,
        })
    }

    fn exists(self) -> bool {
        let last = GROUPS
            .iter()
            .find(|(group, _)| *group == self.group)
            .map_or(0, |(_, last)| *last);
        (1..=last).contains(&self.number)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.group, self.number)
    }
}

/// One place that names a row.
#[derive(Debug, PartialEq, Eq)]
struct Mention {
    row: Row,
    /// `path:line`, or `path::test` where a test does it.
    place: String,
    in_test: bool,
}

/// `cargo xtask rows [--missing]`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let only_missing = match arguments {
        [] => false,
        [flag] if flag == "--missing" => true,
        _ => bail!("`rows` takes no argument but `--missing`"),
    };
    let files = files(&workspace.root)?;
    let mut tests: BTreeMap<Row, BTreeSet<String>> = BTreeMap::new();
    for mention in files
        .iter()
        .flat_map(mentions)
        .filter(|m| m.in_test && m.row.exists())
    {
        tests.entry(mention.row).or_default().insert(mention.place);
    }
    let mut n_rows = 0;
    for &(group, last) in GROUPS {
        for number in 1..=last {
            n_rows += 1;
            let row = Row { group, number };
            match tests.get(&row) {
                Some(places) if !only_missing => {
                    let places: Vec<&str> = places.iter().map(String::as_str).collect();
                    println!("{row}\t{}\t{}", places.len(), places.join(" "));
                }
                None if only_missing => println!("{row}"),
                Some(_) | None => {}
            }
        }
    }
    eprintln!("{} of {n_rows} rows are named by tests", tests.len());
    Ok(Outcome::Done)
}

/// A row that is named must exist.
pub(crate) fn check(files: &[File], problems: &mut Vec<String>) {
    for mention in files
        .iter()
        .flat_map(mentions)
        .filter(|mention| !mention.row.exists())
    {
        problems.push(format!(
            "{}: there is no row {}",
            mention.place, mention.row
        ));
    }
}

fn mentions(file: &File) -> Vec<Mention> {
    match file.extension() {
        "rs" => in_rust(file),
        "toml" | "jsonl" | "json" if file.path.contains("testdata/") => in_cases(file),
        _ => Vec::new(),
    }
}

fn in_cases(file: &File) -> Vec<Mention> {
    let mut found = Vec::new();
    for (idx, line) in file.text.lines().enumerate() {
        let list = ["\"rows\":", "rows ="]
            .iter()
            .find_map(|key| Some(line.split_once(key)?.1));
        let Some((list, _)) = list.and_then(|list| list.split_once(']')) else {
            continue;
        };
        for word in list.split(['[', ',', ' ', '"']) {
            let place = format!("{}:{}", file.path, idx + 1);
            found.extend(Row::parse(word).map(|row| Mention {
                row,
                place,
                in_test: true,
            }));
        }
    }
    found
}

fn in_rust(file: &File) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut in_test_code = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    let mut after_test_attribute = false;
    // Rows of comments above a function belong to it, those inside to the one begun last.
    let mut pending: Vec<Row> = Vec::new();
    let mut function = None;
    let mut in_test = false;
    for (idx, line) in file.text.lines().enumerate() {
        let line = line.trim();
        let here = || format!("{}:{}", file.path, idx + 1);
        if line == "#[cfg(test)]" {
            in_test_code = true;
        } else if line.starts_with("#[") {
            after_test_attribute |= line.contains("test");
        } else if let Some(comment) = line.strip_prefix("//") {
            let rows = in_comment(comment);
            if in_test_code || in_test || after_test_attribute {
                pending.extend(rows);
            } else {
                found.extend(rows.into_iter().map(|row| Mention {
                    row,
                    place: here(),
                    in_test: false,
                }));
            }
        } else if let Some(name) = function_name(line) {
            if after_test_attribute {
                pending.extend(in_name(name));
            }
            function = Some(format!("{}::{name}", file.path));
            in_test = after_test_attribute;
            after_test_attribute = false;
        }
        let is_comment = line.starts_with("//") || line.starts_with("#[");
        if !is_comment {
            let place = function.clone().unwrap_or_else(here);
            found.extend(pending.drain(..).map(|row| Mention {
                row,
                place: place.clone(),
                in_test: true,
            }));
        }
    }
    found
}

/// The name in `pub async fn name(..` and the like.
fn function_name(line: &str) -> Option<&str> {
    let words = [
        "pub ",
        "pub(crate) ",
        "pub(super) ",
        "async ",
        "const ",
        "unsafe ",
    ];
    let mut rest = line;
    while let Some(next) = words.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = next;
    }
    rest.strip_prefix("fn ")?.split(['(', '<', ' ']).next()
}

/// The ids that a name begins with: `e8_e9_code_fence` gives E8 and E9.
fn in_name(name: &str) -> Vec<Row> {
    name.split('_')
        .map_while(|part| {
            part.starts_with(|c: char| c.is_ascii_lowercase())
                .then(|| Row::parse(part))?
        })
        .collect()
}

/// The ids that follow `Row` or `Rows` in a comment: `Rows E8, E9 and M1-M3.`
fn in_comment(comment: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for label in ["Row ", "Rows ", "row ", "rows "] {
        for (at, _) in comment.match_indices(label) {
            let words = comment[at + label.len()..]
                .split([' ', ',', '.', ';', ':', ')', '(', '/', '`'])
                .filter(|word| !word.is_empty() && *word != "and");
            for word in words {
                let Some(found) = in_word(word) else { break };
                rows.extend(found);
            }
        }
    }
    rows
}

/// The ids of `E8` or of a range such as `E1-E6`; `None` if the word is none.
fn in_word(word: &str) -> Option<Vec<Row>> {
    if !word.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let Some((first, last)) = word.split_once('-') else {
        return Some(vec![Row::parse(word)?]);
    };
    let (first, last) = (Row::parse(first)?, Row::parse(last)?);
    let numbers = first.number..=last.number;
    Some(
        numbers
            .map(|number| Row {
                group: first.group,
                number,
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Vec<(String, String, bool)> {
        let file = File {
            path: "crates/a/src/b.rs".to_owned(),
            text: text.to_owned(),
        };
        in_rust(&file)
            .into_iter()
            .map(|m| (m.row.to_string(), m.place, m.in_test))
            .collect()
    }

    #[test]
    fn names_and_comments_are_read() {
        let found = rust("#[test]\nfn e8_e9_fence() {\n    // Rows M1 and M6.\n    f();\n}\n");
        let ids: Vec<&str> = found.iter().map(|(id, _, _)| id.as_str()).collect();
        assert_eq!(ids, ["E8", "E9", "M1", "M6"]);
        let found =
            rust("#[cfg(test)]\nmod tests {\n// Rows M1 and M6.\n#[test]\nfn plain() {}\n}\n");
        let place = "crates/a/src/b.rs::plain".to_owned();
        assert_eq!(
            found,
            [
                ("M1".into(), place.clone(), true),
                ("M6".into(), place, true)
            ]
        );
    }

    #[test]
    fn comments_outside_tests_are_no_tests() {
        let found = rust("/// Row M6: stays text.\nfn e8_not_a_test() {}\n");
        assert_eq!(found, [("M6".into(), "crates/a/src/b.rs:1".into(), false)]);
        let found = rust("// Rows E1-E3, M1: a range\n");
        let ids: Vec<&str> = found.iter().map(|(id, _, _)| id.as_str()).collect();
        assert_eq!(ids, ["E1", "E2", "E3", "M1"]);
        assert!(rust("// the rows of a table\n// Rows are short\n").is_empty());
    }

    #[test]
    fn unknown_rows_are_problems() {
        let file = |text: &str| File {
            path: "a.rs".to_owned(),
            text: text.to_owned(),
        };
        let mut problems = Vec::new();
        let (first, last) = ("// Row C", "7.\n");
        check(&[file(&format!("{first}{last}"))], &mut problems);
        assert!(problems.is_empty());
        check(&[file(&format!("{first}1{last}"))], &mut problems);
        assert_eq!(problems, ["a.rs:1: there is no row C17"]);
    }

    #[test]
    fn case_files_name_rows() {
        for text in [
            "rows = [\"E8\", \"E9\"]",
            "{\"name\": \"x\", \"rows\": [\"E8\",\"E9\"]}",
        ] {
            let file = File {
                path: "crates/a/testdata/b.toml".to_owned(),
                text: text.to_owned(),
            };
            let found: Vec<String> = in_cases(&file).iter().map(|m| m.row.to_string()).collect();
            assert_eq!(found, ["E8", "E9"], "{text}");
        }
    }
}
