//! Memories as JSON lines: what is left where SQLite cannot be used.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::NewMemory;
use crate::{ErrorKind, ToolError};

/// Largest journal that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The file. It need not exist.
pub(super) struct Journal {
    path: PathBuf,
}

/// One line.
#[derive(Serialize, Deserialize)]
struct Line {
    content: String,
    importance: f64,
    #[serde(default)]
    tags: Vec<String>,
    created_ms: i64,
}

impl Journal {
    /// `memory.db` has its journal in `memory.db.jsonl`.
    pub(super) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push(".jsonl");
        Self { path: path.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Every memory with its time. A line that was cut by a crash is left out.
    pub(super) fn read(&self) -> Result<Vec<(NewMemory, i64)>, ToolError> {
        let text = match fs::metadata(&self.path) {
            Ok(metadata) if metadata.len() > MAX_BYTES => {
                return Err(self.refused(&io::Error::other("it is too large")));
            }
            Ok(_) => fs::read_to_string(&self.path).map_err(|error| self.refused(&error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.refused(&error)),
        };
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok(lines
            .map(|line: Line| {
                let Line {
                    content,
                    importance,
                    tags,
                    created_ms,
                } = line;
                (
                    NewMemory {
                        content,
                        importance,
                        tags,
                    },
                    created_ms,
                )
            })
            .collect())
    }

    /// Adds a memory; on disk when this returns.
    pub(super) fn append(&self, memory: &NewMemory, created_ms: i64) -> Result<(), ToolError> {
        let append = || {
            let mut file = private().append(true).open(&self.path)?;
            file.write_all(line(memory, created_ms).as_bytes())?;
            file.sync_data()
        };
        append().map_err(|error| self.refused(&error))
    }

    /// Replaces everything.
    pub(super) fn rewrite(
        &self,
        memories: impl Iterator<Item = (NewMemory, i64)>,
    ) -> Result<(), ToolError> {
        let text: String = memories
            .map(|(memory, created_ms)| line(&memory, created_ms))
            .collect();
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let rewrite = || {
            let mut file = private().write(true).truncate(true).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            fs::rename(&new, &self.path)
        };
        rewrite().map_err(|error| self.refused(&error))
    }

    pub(super) fn remove(&self) -> Result<(), ToolError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.refused(&error)),
            _ => Ok(()),
        }
    }

    fn refused(&self, error: &io::Error) -> ToolError {
        ToolError::new(
            ErrorKind::Unavailable,
            format!("the memory's file {}: {error}", self.path.display()),
        )
    }
}

/// Makes a file, if it is not there, for its owner alone.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn line(memory: &NewMemory, created_ms: i64) -> String {
    let value = serde_json::json!({
        "content": memory.content,
        "importance": memory.importance,
        "tags": memory.tags,
        "created_ms": created_ms,
    });
    format!("{value}\n")
}
