//! `cargo xtask ci`: all that must hold before a change lands.

use crate::workspace::{Workspace, run as run_command};
use crate::{Outcome, setup, test, tidy};

/// Format, clippy and docs with warnings as errors, licences, tidy, then every test.
///
/// Each check runs even if an earlier one failed, so that one run shows all that is wrong.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<Outcome> {
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
    if crate::workspace::have("cargo-deny") {
        check(
            "deny",
            step(workspace, &["deny", "check", "bans", "licenses", "sources"]),
        );
    } else {
        eprintln!("cargo-deny is not installed: licences are not checked");
    }
    check("test", test::run(workspace, &[]));
    if failed.is_empty() {
        return Ok(Outcome::Done);
    }
    eprintln!("failed: {}", failed.join(", "));
    Ok(Outcome::Failed)
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
