//! The environment of a command, and the folders that its programs live in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names that a command may see. None of them holds a key by convention.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
];

/// Names and values that every command gets: plain text, nobody to ask.
const SET: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// Folders that programs, libraries and their settings live in.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys",
    "/Applications",
    "/Library",
    "/System",
];

/// Parts of well-known toolchains below the home folder that hold no keys.
const TOOLCHAINS: &[&str] = &[
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    ".cargo/config.toml",
    ".cargo/env",
    ".rustup",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".volta",
    ".bun/bin",
    ".deno/bin",
    ".sdkman/candidates",
    "go",
    "miniconda3",
    "anaconda3",
];

/// Devices that programs take for granted.
pub(super) const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// The variables of this process that another program may see: a few harmless ones and those
/// that are named.
pub(crate) fn passed(named: &[String]) -> Vec<(OsString, OsString)> {
    let is_passed = |name: &str| {
        PASSED.contains(&name) || name.starts_with("LC_") || named.iter().any(|n| n == name)
    };
    std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(is_passed))
        .collect()
}

/// The variables of a command whose temporary folder is `temporary`.
pub(super) fn variables(pass: &[String], temporary: &Path) -> Vec<(OsString, OsString)> {
    let mut all = passed(pass);
    all.extend(
        SET.iter()
            .map(|(name, value)| ((*name).into(), (*value).into())),
    );
    all.push(("TMPDIR".into(), temporary.into()));
    all
}

/// What a command reads besides its workspace. Not all of them exist.
pub(super) fn readable() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    if let Some(path) = std::env::var_os("PATH") {
        paths.extend(std::env::split_paths(&path).filter(|path| path.is_absolute()));
    }
    if let Some(home) = std::env::home_dir().filter(|home| home.is_absolute()) {
        paths.extend(TOOLCHAINS.iter().map(|part| home.join(part)));
    }
    paths
}
