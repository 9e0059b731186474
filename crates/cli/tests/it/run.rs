//! Runs the binary in an empty folder with an empty environment.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A folder of its own for every test: working folder, home, files.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twopass"));
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path());
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.ran(self.command(args).output().unwrap())
    }

    /// The same with these bytes on stdin.
    pub(crate) fn run_with(&self, args: &[&str], stdin: &[u8]) -> Ran {
        self.ran_with(self.command(args), stdin)
    }

    /// Runs a command with these bytes on stdin.
    pub(crate) fn ran_with(&self, mut command: Command, stdin: &[u8]) -> Ran {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that refuses its flags does not read on.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        self.ran(child.wait_with_output().unwrap())
    }

    fn ran(&self, output: Output) -> Ran {
        let folder = self.path().display().to_string();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&folder, "PLACE");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// The lines of a trace with these keys and those of every step, and nothing that differs from
/// run to run.
pub(crate) fn shape_of(lines: &[Value], more: &[&str]) -> Vec<Value> {
    let steps = [
        "event",
        "step",
        "name",
        "arguments",
        "content",
        "is_error",
        "thinking",
    ];
    let shape = |line: &Value| {
        let keys = steps.iter().chain(more);
        let kept = keys.filter_map(|key| Some(((*key).to_owned(), line.get(key)?.clone())));
        Value::Object(kept.collect())
    };
    lines.iter().map(shape).collect()
}
