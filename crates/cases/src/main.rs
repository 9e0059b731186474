//! Runs files of cases through the real code: `twopass-cases FILE...`.
//!
//! A file holds one JSON object per line, of either kind: a case with an `op`
//! (`{id, component, input: {op, ..}, expect}`), or a format example
//! (`{id, format, kind, tools, input, expect}`). Parser cases run whole, byte by byte, in
//! chunks of 2, 3, 5, 7 and 13 bytes and at 32 seeded random cuttings; every cutting must
//! meet the expectation and give the same result as the whole.
//!
//! Prints one line for each failure, then the operations that were skipped and why, then
//! `N passed, N failed, N skipped`. Ends with 0 if nothing failed, 1 if something did, 2 if
//! a file could not be read.

mod case;
mod cuts;
mod expect;
mod formats;
mod matchers;
mod ops;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use serde_json::Value;

/// What became of one case.
enum Verdict {
    Passed,
    Failed(String),
    Skipped { op: String, reason: String },
}

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        let _ = writeln!(io::stderr(), "usage: twopass-cases FILE...");
        return ExitCode::from(2);
    }
    // A panic is a failure of its case and is reported as such.
    std::panic::set_hook(Box::new(|_| {}));
    match run_files(&files) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::from(2)
        }
    }
}

/// True if nothing failed.
fn run_files(files: &[String]) -> Result<bool, String> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut write = |line: String| writeln!(out, "{line}").map_err(|error| error.to_string());
    let (mut n_passed, mut n_failed) = (0_usize, 0_usize);
    let mut skipped: BTreeMap<(String, String), usize> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read `{file}`: {error}"))?;
        for (idx, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let case: Value = serde_json::from_str(line)
                .map_err(|error| format!("{file}:{}: not JSON: {error}", idx + 1))?;
            let id = case["id"].as_str().unwrap_or("?").to_owned();
            match run_case(&case) {
                Verdict::Passed => n_passed += 1,
                Verdict::Failed(why) => {
                    n_failed += 1;
                    write(format!("FAILED {id}: {why}"))?;
                }
                Verdict::Skipped { op, reason } => *skipped.entry((op, reason)).or_default() += 1,
            }
        }
    }
    for ((op, reason), n) in &skipped {
        write(format!("skipped {n} of {op}: {reason}"))?;
    }
    let n_skipped: usize = skipped.values().sum();
    write(format!(
        "{n_passed} passed, {n_failed} failed, {n_skipped} skipped"
    ))?;
    Ok(n_failed == 0)
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
