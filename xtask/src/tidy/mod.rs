//! `cargo xtask tidy`: the rules of the source tree that no compiler checks.
//!
//! Each rule appends what it finds to one list, so that a run shows everything at once.

mod layers;
mod source;

use anyhow::bail;

use crate::files::{File, files};
use crate::workspace::Workspace;
use crate::{Outcome, rows};

/// Documents that the repository must have.
const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "COMPATIBILITY.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
];
/// A map that is longer is not read.
const ARCHITECTURE_LINES: usize = 300;

/// `cargo xtask tidy`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    if let Some(argument) = arguments.first() {
        bail!("`tidy` takes no argument, got `{argument}`");
    }
    let files = files(&workspace.root)?;
    let mut problems = Vec::new();
    documents(&files, &mut problems);
    for file in &files {
        source::check(file, &mut problems);
    }
    layers::check_crates(workspace, &mut problems)?;
    layers::check_core_modules(&files, &mut problems);
    layers::check_core_dependencies(workspace, &mut problems)?;
    rows::check(&files, &mut problems);
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    if problems.is_empty() {
        eprintln!("tidy: {} files, nothing to say", files.len());
        return Ok(Outcome::Done);
    }
    Ok(Outcome::Failed)
}

fn documents(files: &[File], problems: &mut Vec<String>) {
    for name in DOCUMENTS {
        match files.iter().find(|file| file.path == *name) {
            None => problems.push(format!("{name} is missing")),
            Some(file) if file.text.trim().is_empty() => problems.push(format!("{name} is empty")),
            Some(file)
                if *name == "ARCHITECTURE.md" && file.text.lines().count() > ARCHITECTURE_LINES =>
            {
                problems.push(format!("{name} has over {ARCHITECTURE_LINES} lines"));
            }
            Some(_) => {}
        }
    }
}
