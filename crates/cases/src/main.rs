//! Runs files of cases, and folders of recorded exchanges, through the real code:
//! `twopass-cases FILE_OR_FOLDER...`.
//!
//! A file holds one JSON object per line, of either kind: a case with an `op`
//! (`{id, component, input: {op, ..}, expect}`), or a format example
//! (`{id, format, kind, tools, input, expect}`). Parser cases run whole, byte by byte, in
//! chunks of 2, 3, 5, 7 and 13 bytes and at 32 seeded random cuttings; every cutting must
//! meet the expectation and give the same result as the whole.
//!
//! Cases of clients run through the facade against a real local server. A folder holds
//! captures of real servers, which are replayed the same way; see [`captures`].
//!
//! Prints one line for each failure, then the operations that were skipped and why, then
//! `N passed, N failed, N skipped`. Ends with 0 if nothing failed, 1 if something did, 2 if
//! a file could not be read.

mod captures;
mod case;
mod cuts;
mod expect;
mod formats;
mod matchers;
mod ops;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

/// What became of one case.
enum Verdict {
    Passed,
    Failed(String),
    Skipped { op: String, reason: String },
}

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        let _ = writeln!(io::stderr(), "usage: twopass-cases FILE_OR_FOLDER...");
        return ExitCode::from(2);
    }
    // A panic is a failure of its case and is reported as such.
    std::panic::set_hook(Box::new(|_| {}));
    match run_all(&paths) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::from(2)
        }
    }
}

/// True if nothing failed.
fn run_all(paths: &[String]) -> Result<bool, String> {
    let mut tally = Tally {
        out: BufWriter::new(io::stdout().lock()),
        n_passed: 0,
        n_failed: 0,
        skipped: BTreeMap::new(),
        n_skipped: 0,
    };
    for path in paths {
        if Path::new(path).is_dir() {
            let report = captures::run(Path::new(path))?;
            for (id, verdict) in report.verdicts {
                tally.count(&id, verdict)?;
            }
            for note in report.notes {
                tally.write(&note)?;
            }
        } else {
            run_file(path, &mut tally)?;
        }
    }
    tally.finish()
}

fn run_file(file: &str, tally: &mut Tally<'_>) -> Result<(), String> {
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("cannot read `{file}`: {error}"))?;
    let lines = text.lines().enumerate();
    for (idx, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line)
            .map_err(|error| format!("{file}:{}: not JSON: {error}", idx + 1))?;
        tally.count(case["id"].as_str().unwrap_or("?"), run_case(&case))?;
    }
    Ok(())
}

/// What came of the cases so far; failures are printed as they come.
struct Tally<'o> {
    out: BufWriter<io::StdoutLock<'o>>,
    n_passed: usize,
    n_failed: usize,
    /// Operation and reason, and how often.
    skipped: BTreeMap<(String, String), usize>,
    n_skipped: usize,
}

impl Tally<'_> {
    fn count(&mut self, id: &str, verdict: Verdict) -> Result<(), String> {
        match verdict {
            Verdict::Passed => self.n_passed += 1,
            Verdict::Failed(why) => {
                self.n_failed += 1;
                self.write(&format!("FAILED {id}: {why}"))?;
            }
            Verdict::Skipped { op, reason } => *self.skipped.entry((op, reason)).or_default() += 1,
        }
        Ok(())
    }

    fn write(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.out, "{line}").map_err(|error| error.to_string())
    }

    /// Prints the counts; true if nothing failed.
    fn finish(mut self) -> Result<bool, String> {
        for ((op, reason), n) in std::mem::take(&mut self.skipped) {
            self.write(&format!("skipped {n} of {op}: {reason}"))?;
            self.n_skipped += n;
        }
        let (n_passed, n_failed, n_skipped) = (self.n_passed, self.n_failed, self.n_skipped);
        self.write(&format!(
            "{n_passed} passed, {n_failed} failed, {n_skipped} skipped"
        ))?;
        Ok(n_failed == 0)
    }
}

fn run_case(case: &Value) -> Verdict {
    let run = || match (case.get("format"), case.pointer("/input/op")) {
        (Some(Value::String(_)), None) => formats::run(case),
        _ => ops::run(case),
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(verdict) => verdict,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Verdict::Failed(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}
