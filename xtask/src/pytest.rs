//! Tests in Python: a folder of them, run by pytest with pinned packages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::python::{self, installed_all};
use crate::test::{Count, run_counted};
use crate::workspace::Workspace;

/// Modules that all suites share.
const SUPPORT: &str = "tests/support";

/// A folder of tests and what they need.
pub(crate) struct Suite<'a> {
    /// Names the packages' folder in the cache.
    pub(crate) name: &'a str,
    /// Pinned packages, pytest among them.
    pub(crate) packages: &'a [&'a str],
    /// The folder that pytest is started in, from the workspace's root.
    pub(crate) folder: &'a str,
    /// Further folders of modules, beside [`SUPPORT`] and before those of the packages.
    pub(crate) modules: Vec<PathBuf>,
    /// Variables of the tests.
    pub(crate) environment: Vec<(&'a str, PathBuf)>,
}

/// Runs a suite, passes its output on and counts its tests.
///
/// # Errors
/// The packages cannot be installed, or Python does not start.
pub(crate) fn run(workspace: &Workspace, suite: &Suite<'_>) -> anyhow::Result<(Count, bool)> {
    let site = installed_all(workspace, suite.name, suite.packages)?;
    let modules = [&suite.modules[..], &[workspace.root.join(SUPPORT)]].concat();
    let mut command = python::python();
    command
        .args([
            "-P",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--color=no",
        ])
        .current_dir(workspace.root.join(suite.folder))
        .env("PYTHONPATH", search_path(&modules, &site)?)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    for (name, value) in &suite.environment {
        command.env(name, value);
    }
    run_counted(&mut command, summary)
}

/// `PYTHONPATH` of these folders, in this order.
fn search_path(modules: &[PathBuf], site: &Path) -> anyhow::Result<OsString> {
    let folders = modules.iter().map(PathBuf::as_path).chain([site]);
    Ok(std::env::join_paths(folders)?)
}

/// Reads pytest's last line: `2 failed, 12 passed, 1 skipped in 3.21s`. Errors are failures.
fn summary(line: &str) -> Option<Count> {
    let (counts, time) = line.trim().trim_matches('=').trim().rsplit_once(" in ")?;
    time.split(' ')
        .next()?
        .strip_suffix('s')?
        .parse::<f64>()
        .ok()?;
    let mut count = Count::default();
    for part in counts.split(", ") {
        let (number, what) = part.split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        match what {
            "passed" | "xfailed" => count.n_passed += number,
            "failed" | "error" | "errors" | "xpassed" => count.n_failed += number,
            _ => {}
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_pytest_is_counted() {
        let cases = [
            ("12 passed in 3.21s\n", Some((12, 0))),
            (
                "2 failed, 12 passed, 1 skipped in 83.21s (0:01:23)",
                Some((12, 2)),
            ),
            (
                "=== 1 passed, 2 xfailed, 1 error in 0.10s ===",
                Some((3, 1)),
            ),
            ("3 apples in 2 baskets", None),
            ("....", None),
        ];
        for (line, expect) in cases {
            let expect = expect.map(|(n_passed, n_failed)| Count { n_passed, n_failed });
            assert_eq!(summary(line), expect, "{line}");
        }
    }
}
