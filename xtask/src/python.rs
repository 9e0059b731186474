//! Packages from the Python registry, each in a folder of its own in the cache.
//!
//! `pip install --target` is used instead of a virtual environment: it needs no `venv` module
//! (Debian splits it off) and is allowed where the system's Python is managed by the system.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::workspace::{Workspace, have, run_quiet};

/// Whether what a package depends on is installed with it.
#[derive(Clone, Copy)]
pub(crate) enum Dependencies {
    With,
    Without,
}

/// The Python that we use: `python3` of the search path.
pub(crate) fn python() -> Command {
    Command::new("python3")
}

/// Whether Python can install packages.
pub(crate) fn have_pip() -> bool {
    have("python3") && run_quiet(python().args(["-m", "pip", "--version"])).is_ok()
}

/// Installs `name==version` once and returns the folder for `PYTHONPATH`.
pub(crate) fn installed(
    workspace: &Workspace,
    name: &str,
    version: &str,
    dependencies: Dependencies,
) -> anyhow::Result<PathBuf> {
    let folder = workspace
        .cache_folder("python")?
        .join(format!("{name}-{version}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let scratch = workspace.scratch(name)?;
    let part = scratch.path().join("site");
    install_into(&part, name, version, dependencies)?;
    move_into_place(&part, &folder)?;
    Ok(folder)
}

/// Installs pinned packages together once and returns the folder for `PYTHONPATH`. `name` says
/// what they are for.
pub(crate) fn installed_all(
    workspace: &Workspace,
    name: &str,
    packages: &[&str],
) -> anyhow::Result<PathBuf> {
    let pins = Sha256::digest(packages.join("\n"));
    let id: String = pins[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = workspace
        .cache_folder("python")?
        .join(format!("{name}-{id}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    eprintln!("installing the Python packages of {name}");
    let scratch = workspace.scratch(name)?;
    let part = scratch.path().join("site");
    let mut pip = pip("install");
    pip.arg("--target").arg(&part).args(packages);
    run_quiet(&mut pip).with_context(|| format!("cannot install the packages of {name}"))?;
    move_into_place(&part, &folder)?;
    Ok(folder)
}

/// Makes an empty virtual environment and returns its Python. It has no pip of its own, which
/// Debian splits off.
pub(crate) fn virtual_environment(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut command = python();
    command.args(["-m", "venv", "--without-pip"]).arg(folder);
    run_quiet(&mut command).context("cannot make a virtual environment")?;
    Ok(folder.join("bin/python"))
}

/// Installs a requirement, such as a wheel's path with extras, for that Python.
pub(crate) fn install_there(interpreter: &Path, requirement: &str) -> anyhow::Result<()> {
    let mut command = python();
    command.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
    command.arg("--python").arg(interpreter);
    command.env("PIP_ROOT_USER_ACTION", "ignore");
    run_quiet(command.args(["install", requirement]))
        .with_context(|| format!("cannot install {requirement}"))?;
    Ok(())
}

/// Installs `name==version` into `folder`, for one use.
pub(crate) fn install_into(
    folder: &Path,
    name: &str,
    version: &str,
    dependencies: Dependencies,
) -> anyhow::Result<()> {
    eprintln!("installing the Python package {name} {version}");
    let mut pip = pip("install");
    pip.arg("--target").arg(folder);
    if matches!(dependencies, Dependencies::Without) {
        pip.arg("--no-deps");
    }
    run_quiet(pip.arg(format!("{name}=={version}")))
        .with_context(|| format!("cannot install the Python package {name} {version}"))?;
    Ok(())
}

/// Downloads the wheel of `name==version` into a folder and returns its path.
pub(crate) fn download_wheel(folder: &Path, name: &str, version: &str) -> anyhow::Result<PathBuf> {
    let mut pip = pip("download");
    pip.args(["--no-deps", "--only-binary=:all:", "--dest"])
        .arg(folder);
    run_quiet(pip.arg(format!("{name}=={version}")))
        .with_context(|| format!("cannot download the Python package {name} {version}"))?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    bail!(
        "pip left no wheel of {name} {version} in {}",
        folder.display()
    )
}

/// Another process may have made the same thing meanwhile: then its result stays.
pub(crate) fn move_into_place(part: &Path, to: &Path) -> anyhow::Result<()> {
    match std::fs::rename(part, to) {
        Err(error) if !to.exists() => {
            Err(error).with_context(|| format!("cannot move {} into place", to.display()))
        }
        _ => Ok(()),
    }
}

fn pip(subcommand: &str) -> Command {
    let mut command = python();
    command.args([
        "-m",
        "pip",
        subcommand,
        "--quiet",
        "--disable-pip-version-check",
    ]);
    command.env("PIP_ROOT_USER_ACTION", "ignore");
    command
}
