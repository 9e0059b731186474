//! `cargo xtask ci`: all that must hold before a change lands.

use anyhow::bail;

use crate::test::Count;
use crate::workspace::{Workspace, have, run as run_command};
use crate::{Outcome, setup, test, tidy};

/// Format, clippy and docs with warnings as errors, licences, tidy, then every test.
///
/// Each check runs even if an earlier one failed, so that one run shows all that is wrong.
/// Ends with the line `N passed, N failed` of the tests.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    if let Some(argument) = arguments.first() {
        bail!("`ci` takes no argument, got `{argument}`");
    }
    setup::require_build()?;
    let mut failed = Vec::new();
    let mut check = |name: &'static str, result: anyhow::Result<Outcome>| {
        match result {
            Ok(Outcome::Done) => return,
            Ok(Outcome::Failed) => {}
            Err(error) => eprintln!("error: {error:#}"),
        }
        failed.push(name);
    };
    check("format", step(workspace, &["fmt", "--all", "--check"]));
    check("tidy", tidy::run(workspace, &[]));
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    check("clippy", step(workspace, &clippy));
    check("docs", docs(workspace));
    if have("cargo-deny") {
        check(
            "deny",
            step(workspace, &["deny", "check", "bans", "licenses", "sources"]),
        );
    } else {
        eprintln!("cargo-deny is not installed: licences are not checked");
    }
    let mut count = Count::default();
    let tests = test::counted(workspace, &[]).map(|(found, outcome)| {
        count = found;
        outcome
    });
    check("test", tests);
    let outcome = if failed.is_empty() {
        Outcome::Done
    } else {
        eprintln!("failed: {}", failed.join(", "));
        Outcome::Failed
    };
    println!("{count}");
    Ok(outcome)
}

fn docs(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let mut command = workspace.cargo(&["doc", "--workspace", "--no-deps"]);
    run_command(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::Done)
}

fn step(workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<Outcome> {
    run_command(&mut workspace.cargo(arguments))?;
    Ok(Outcome::Done)
}
