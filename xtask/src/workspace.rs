//! Where things are, and how other programs are started.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Builds with the features of `cargo test --workspace`, so that nothing is compiled twice.
pub(crate) const AS_TESTED: [&str; 4] = ["--workspace", "--lib", "--bins", "--tests"];

/// The repository and the folder for what is downloaded or made once.
pub(crate) struct Workspace {
    /// The folder of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// `$XDG_CACHE_HOME/twopass` or `~/.cache/twopass`; independent of the clone and its target folder.
    pub(crate) cache: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> anyhow::Result<Self> {
        // Cargo sets the variable at run time; the compiled-in value serves a binary that is run alone.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().context("xtask lies in no workspace")?;
        let cache = match std::env::var_os("XDG_CACHE_HOME") {
            Some(folder) if Path::new(&folder).is_absolute() => PathBuf::from(folder),
            _ => {
                let home =
                    std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?;
                Path::new(&home).join(".cache")
            }
        };
        Ok(Self {
            root: root.to_owned(),
            cache: cache.join("twopass"),
        })
    }

    /// A folder inside the cache, made if it is missing.
    pub(crate) fn cache_folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.cache.join(name);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(folder)
    }

    /// A fresh, empty folder inside the cache for one download; removed by [`Scratch`]'s drop.
    pub(crate) fn scratch(&self, name: &str) -> anyhow::Result<Scratch> {
        let folder = self
            .cache_folder("tmp")?
            .join(format!("{name}-{}", std::process::id()));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(Scratch(folder))
    }

    /// `cargo ARGUMENTS` in the workspace root with the environment that every build of ours shares.
    ///
    /// ccache keeps the C++ of llama.cpp: its base folder is the clone's parent, so that a second
    /// clone beside this one finds the objects of the first.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Gives a program that builds the workspace the folder and environment of [`Self::cargo`].
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.current_dir(&self.root);
        // `cargo run` describes this package to us; some build scripts watch those variables and
        // would run again each time that cargo is started from here and then from a shell.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        if have("ccache") {
            let base = self.root.parent().unwrap_or(&self.root);
            default_env(command, "CMAKE_C_COMPILER_LAUNCHER", "ccache");
            default_env(command, "CMAKE_CXX_COMPILER_LAUNCHER", "ccache");
            default_env(command, "CCACHE_BASEDIR", base);
            default_env(command, "CCACHE_NOHASHDIR", "1");
        }
    }

    /// Builds with `cargo build ARGUMENTS` and returns the path of the program or shared library
    /// of that name.
    pub(crate) fn build(&self, arguments: &[&str], name: &str) -> anyhow::Result<PathBuf> {
        let mut command = self.cargo(&["build"]);
        command.args(arguments);
        Self::run_build(&mut command, name)
    }

    /// Runs a `cargo build` and returns what it made, as [`Self::build`] does.
    pub(crate) fn run_build(command: &mut Command, name: &str) -> anyhow::Result<PathBuf> {
        let output = command
            .arg("--message-format=json-render-diagnostics")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("{} ended with {}", spelt(command), output.status);
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let artifact = |line: &str| -> Option<PathBuf> {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            // Test binaries bear the name of what they test.
            let found = message["target"]["name"] == name && message["profile"]["test"] == false;
            let program = message["executable"].as_str();
            let library = message["filenames"][0].as_str();
            let library = library.filter(|path| path.ends_with(std::env::consts::DLL_SUFFIX));
            Some(PathBuf::from(program.or(library)?)).filter(|_| found)
        };
        messages
            .lines()
            .find_map(artifact)
            .with_context(|| format!("{} made nothing called `{name}`", spelt(command)))
    }
}

fn default_env(command: &mut Command, name: &str, value: impl AsRef<OsStr>) {
    if std::env::var_os(name).is_none() {
        command.env(name, value);
    }
}

/// A folder that is removed when this goes out of scope.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-over files cost only space; the next run with the same process id clears them.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a program can be started.
pub(crate) fn have(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command to its end, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} ended with {status}", spelt(command));
    }
    Ok(())
}

/// Runs a command silently; its last lines of output become part of the error.
pub(crate) fn run_quiet(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = if stderr.trim().is_empty() {
            &stdout
        } else {
            &stderr
        };
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let tail = lines[lines.len().saturating_sub(6)..].join("\n  ");
        bail!("{} ended with {}\n  {tail}", spelt(command), output.status);
    }
    Ok(stdout)
}

/// The command line as one would type it, shortened.
pub(crate) fn spelt(command: &Command) -> String {
    const LONGEST: usize = 120;
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST).chain("...".chars()).collect();
    }
    format!("`{text}`")
}
