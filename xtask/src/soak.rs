//! `cargo xtask soak`: mixed traffic through every face of `twopass serve` for minutes.
//!
//! The traffic, the broken upstream and what is checked are a test of the command line
//! (`crates/cli/tests/it/soak`), which runs for seconds among the others; here it runs alone,
//! for as long as one likes, and shows its table.

use anyhow::{Context as _, bail};

use crate::workspace::Workspace;
use crate::{Outcome, fixtures, setup};

const USAGE: &str = "usage: soak [--minutes 10]";
/// Where the test reads how long it is to run.
const SECONDS: &str = "TWOPASS_SOAK_SECONDS";

/// `cargo xtask soak [--minutes 10]`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let minutes: u64 = match words.as_slice() {
        [] => 10,
        ["--minutes", minutes] => minutes.parse().context(USAGE)?,
        _ => bail!(USAGE),
    };
    if minutes == 0 {
        bail!("minutes must be at least 1");
    }
    setup::require_build()?;
    let models = fixtures::models(workspace)?;
    let test = [
        "test",
        "--package=twopass-cli",
        "--test=it",
        "--",
        "soak::",
        "--nocapture",
    ];
    let status = workspace
        .cargo(&test)
        .env(fixtures::TEST_MODEL, &models.smollm2)
        .env(SECONDS, (minutes * 60).to_string())
        .status()?;
    Ok(if status.success() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}
