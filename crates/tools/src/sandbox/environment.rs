//! The environment of a command, and the folders that its programs live in.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
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
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys",
    "/Applications",
    "/Library",
    "/System",
];

/// Settings of the system, of which root is given only what every user may read.
pub(super) const SETTINGS: &str = "/etc";

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
    ".local/share/uv/python",
    ".local/share/uv/tools",
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

/// Deepest folder of [`SETTINGS`] that is looked at; deeper ones are closed to root.
const MAX_SETTINGS_DEPTH: usize = 16;

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
    if rustix::process::geteuid().is_root() {
        paths.extend(public_parts(Path::new(SETTINGS), MAX_SETTINGS_DEPTH).parts);
    } else {
        paths.push(SETTINGS.into());
    }
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    if let Some(path) = std::env::var_os("PATH") {
        // A folder that holds the home folder would open it.
        let holds_home = |path: &Path| home.as_ref().is_some_and(|home| home.starts_with(path));
        paths.extend(
            std::env::split_paths(&path).filter(|path| path.is_absolute() && !holds_home(path)),
        );
    }
    if let Some(home) = &home {
        paths.extend(TOOLCHAINS.iter().map(|part| home.join(part)));
    }
    paths
}

/// What everybody may read of a folder.
struct Public {
    /// The folder itself if that is all of it, else what is below.
    parts: Vec<PathBuf>,
    is_whole: bool,
}

/// Links are left out: where they lead has rights of its own.
fn public_parts(dir: &Path, max_depth: usize) -> Public {
    let mut public = Public {
        parts: Vec::new(),
        is_whole: max_depth > 0,
    };
    let entries = match max_depth {
        0 => None,
        _ => fs::read_dir(dir).ok(),
    };
    // What cannot be looked at is not known to be public.
    public.is_whole &= entries.is_some();
    for entry in entries.into_iter().flatten() {
        let seen = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
        let Ok((path, metadata)) = seen else {
            public.is_whole = false;
            continue;
        };
        let mode = metadata.mode();
        if metadata.is_dir() && mode & 0o005 == 0o005 {
            let below = public_parts(&path, max_depth - 1);
            public.is_whole &= below.is_whole;
            public.parts.extend(below.parts);
        } else if metadata.is_file() && mode & 0o004 != 0 {
            public.parts.push(path);
        } else if !metadata.is_symlink() {
            public.is_whole = false;
        }
    }
    if public.is_whole {
        public.parts = vec![dir.to_owned()];
    }
    public
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn i1_places_of_keys_are_closed() {
        let home = std::env::home_dir().unwrap();
        let keys = [
            ".local/share/uv/credentials",
            ".ssh",
            ".aws/credentials",
            ".netrc",
            ".config",
            ".cargo/credentials.toml",
        ];
        for keys in keys.map(|keys| home.join(keys)) {
            let open = readable().into_iter().find(|path| keys.starts_with(path));
            assert_eq!(open, None, "{}", keys.display());
        }
    }

    #[test]
    fn i1_what_others_may_not_read_is_no_public_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = |part: &str| dir.path().join(part);
        for part in ["open/below", "mixed", "closed"] {
            fs::create_dir_all(path(part)).unwrap();
        }
        let files = [
            ("open/below/a", 0o644),
            ("mixed/a", 0o644),
            ("mixed/secret", 0o640),
            ("closed/a", 0o644),
        ];
        for (part, mode) in files {
            fs::write(path(part), "").unwrap();
            fs::set_permissions(path(part), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (part, mode) in [
            ("open", 0o755),
            ("open/below", 0o755),
            ("mixed", 0o755),
            ("closed", 0o700),
        ] {
            fs::set_permissions(path(part), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("closed/a", path("link")).unwrap();
        let mut parts = public_parts(dir.path(), 4).parts;
        parts.sort();
        assert_eq!(parts, [path("mixed/a"), path("open")]);
        assert!(public_parts(&path("open"), 1).parts.is_empty(), "too deep");
    }
}
