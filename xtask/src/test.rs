//! `cargo xtask test`: set-up, then every test of the workspace, doc tests included.
//!
//! Always plain `cargo test`, also where nextest is installed: the tests of one binary share one
//! loaded model, where nextest would load it once per test; and one runner gives one behaviour.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::postgres::{self, Postgres};
use crate::workspace::{Workspace, spelt};
use crate::{Outcome, clients, fixtures, mcp, package, setup};

/// Tests counted over several runs.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) n_passed: u64,
    pub(crate) n_failed: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.n_passed += other.n_passed;
        self.n_failed += other.n_failed;
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.n_passed, self.n_failed)
    }
}

/// `cargo xtask test [ARGUMENTS of cargo test]`
///
/// Ends with the line `N passed, N failed`, summed over all test binaries.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let (count, outcome) = counted(workspace, arguments)?;
    println!("{count}");
    Ok(outcome)
}

/// Sets up, runs the tests and counts them.
pub(crate) fn counted(
    workspace: &Workspace,
    arguments: &[String],
) -> anyhow::Result<(Count, Outcome)> {
    setup::require_build()?;
    let models = fixtures::models(workspace)?;
    let mut words = vec!["test", "--no-fail-fast"];
    words.extend(arguments.iter().map(String::as_str));
    if !selects_package(arguments) {
        words.insert(1, "--workspace");
    }
    let mut command = workspace.cargo(&words);
    command
        .env(fixtures::TEST_MODEL, &models.smollm2)
        .env(fixtures::TEST_QWEN3, models.qwen3);
    if tests_any(arguments, &["twopass-tools", "twopass-cli"]) {
        mcp::provide(workspace, &mut command);
    }
    // Held until the tests are done.
    let postgres = tests_any(arguments, &["twopass-store"])
        .then(Postgres::start)
        .flatten();
    if let Some(postgres) = &postgres {
        command.env(postgres::TEST_POSTGRES, &postgres.url);
    }
    let (mut count, mut success) = run_counted(&mut command, summary)?;
    if tests_python(arguments) {
        let (found, passed) = package::test(workspace, &models.smollm2)?;
        count += found;
        success &= passed;
    }
    if tests_any(arguments, &["twopass-server"]) {
        let (found, passed) = clients::test(workspace, &models.smollm2)?;
        count += found;
        success &= passed;
    }
    // Success without a single test would be a run that looked at nothing.
    let good = success && count.n_failed == 0 && count.n_passed > 0;
    Ok((count, if good { Outcome::Done } else { Outcome::Failed }))
}

/// Whether one of these packages is among what is tested.
fn tests_any(arguments: &[String], packages: &[&str]) -> bool {
    let is_named = |package: &&str| arguments.iter().any(|word| word.contains(*package));
    !selects_package(arguments) || packages.iter().any(is_named)
}

/// Whether the Python package is among what is tested.
fn tests_python(arguments: &[String]) -> bool {
    arguments.is_empty() || arguments.iter().any(|word| word.contains("twopass-python"))
}

fn selects_package(arguments: &[String]) -> bool {
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument.starts_with("-p") || argument.starts_with("--package"))
}

/// Runs tests, passes their output on line by line and adds up the summaries that `summary` finds.
pub(crate) fn run_counted(
    command: &mut Command,
    summary: fn(&str) -> Option<Count>,
) -> anyhow::Result<(Count, bool)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the tests")?;
    let mut count = Count::default();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        let mut out = std::io::stdout().lock();
        // Bytes, not lines of text: a test may print anything.
        while reader.read_until(b'\n', &mut line)? > 0 {
            out.write_all(&line)?;
            out.flush()?;
            if let Some(found) = summary(&String::from_utf8_lossy(&line)) {
                count += found;
            }
            line.clear();
        }
    }
    let status = child.wait()?;
    if !status.success() {
        eprintln!("{} ended with {status}", spelt(command));
    }
    Ok((count, status.success()))
}

/// Reads `test result: ok. 12 passed; 0 failed; 0 ignored; ...`.
fn summary(line: &str) -> Option<Count> {
    let counts = line.trim().strip_prefix("test result: ")?;
    let counts = counts.split_once(". ")?.1;
    let number = |label: &str| -> Option<u64> {
        let part = counts
            .split("; ")
            .find_map(|part| part.strip_suffix(label))?;
        part.trim().parse().ok()
    };
    Some(Count {
        n_passed: number(" passed")?,
        n_failed: number(" failed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[test]
    fn summary_lines_are_counted() {
        let cases = [
            (
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.02s\n",
                Some((12, 0)),
            ),
            (
                "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
                Some((1, 2)),
            ),
            ("test summary_lines ... ok", None),
            ("test result: unknown", None),
            ("running 3 tests", None),
        ];
        for (line, expect) in cases {
            let expect = expect.map(|(n_passed, n_failed)| Count { n_passed, n_failed });
            assert_eq!(summary(line), expect, "{line}");
        }
    }

    #[test]
    fn package_arguments_are_seen() {
        assert!(selects_package(&words("-p twopass-core")));
        assert!(selects_package(&words("--package=twopass-core")));
        assert!(!selects_package(&words("--test it -- -p")));
        assert!(!selects_package(&[]));
    }
}
