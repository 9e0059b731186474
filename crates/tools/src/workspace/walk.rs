//! Every file below a folder, in order, without following links.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::{Dir, File as CapFile};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::files::open_regular;
use super::{Workspace, refused};
use crate::ToolError;

/// Deepest folder that is entered, counted from where the walk began.
const MAX_DEPTH: usize = 32;

/// Most entries that are read of one folder.
const MAX_DIR_ENTRIES: usize = 20_000;

/// Largest ignore file that is obeyed, in bytes.
const MAX_IGNORE_BYTES: usize = 100_000;

/// What a walk enters and leaves out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WalkOptions {
    /// Enter folders below the first.
    pub(crate) recursive: bool,
    /// Leave out what `.gitignore` and `.ignore` files name, and hidden files.
    pub(crate) obey_ignore_files: bool,
}

/// One entry.
pub(crate) struct Found {
    /// Relative to where the walk began.
    pub(crate) path: PathBuf,
    pub(crate) kind: FoundKind,
    /// The folder that it is in, open.
    pub(crate) dir: Arc<Dir>,
}

impl Found {
    /// The file's size, if it is still there.
    pub(crate) fn n_bytes(&self) -> Option<u64> {
        let name = self.path.file_name()?;
        self.dir
            .symlink_metadata(name)
            .ok()
            .map(|metadata| metadata.len())
    }

    /// The file, open to read.
    pub(crate) fn open(&self) -> Result<File, ToolError> {
        let name = self.path.file_name().unwrap_or_default();
        open_regular(&self.dir, Path::new(name)).map(CapFile::into_std)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundKind {
    File,
    Dir,
    /// A symbolic link, a pipe, a device: shown, never entered.
    Other,
}

/// A walk, folder by folder. Folders are opened below the workspace, so that nothing that is
/// swapped in meanwhile leads outside.
pub(crate) struct Walk {
    options: WalkOptions,
    /// Folders and files still to visit, last first.
    open: Vec<Found>,
    /// Ignore files of the folders above the current one, by depth.
    ignores: Vec<Arc<Gitignore>>,
    /// True if something was left out because of a limit.
    pub(crate) cut: bool,
}

impl Workspace {
    /// A walk below the folder `path`.
    pub(crate) fn walk(&self, path: &str, options: WalkOptions) -> Result<Walk, ToolError> {
        let inside = self.relative(path)?;
        let dir = self.dir.open_dir(&inside);
        let dir = dir.map_err(|error| refused("list", &inside, &error))?;
        let mut walk = Walk {
            options,
            open: Vec::new(),
            ignores: Vec::new(),
            cut: false,
        };
        let read = walk.enter(Arc::new(dir), Path::new(""));
        read.map_err(|error| refused("list", &inside, &error))?;
        Ok(walk)
    }
}

impl Walk {
    /// Reads a folder's entries, sorted by name, onto the stack.
    fn enter(&mut self, dir: Arc<Dir>, path: &Path) -> std::io::Result<()> {
        let depth = path.components().count();
        self.ignores.truncate(depth);
        if self.options.obey_ignore_files {
            self.ignores.push(Arc::new(ignore_files(&dir, path)));
        }
        let mut entries = Vec::new();
        for entry in dir.entries()? {
            if entries.len() == MAX_DIR_ENTRIES {
                self.cut = true;
                break;
            }
            // An entry that vanished meanwhile is no entry.
            let Ok(entry) = entry else { continue };
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let kind = if kind.is_dir() {
                FoundKind::Dir
            } else if kind.is_file() {
                FoundKind::File
            } else {
                FoundKind::Other
            };
            let found = Found {
                path: path.join(entry.file_name()),
                kind,
                dir: Arc::clone(&dir),
            };
            if !self.is_ignored(&found) {
                entries.push(found);
            }
        }
        entries.sort_by(|a, b| b.path.cmp(&a.path));
        self.open.append(&mut entries);
        Ok(())
    }

    /// The innermost ignore file that says anything of an entry decides.
    fn is_ignored(&self, found: &Found) -> bool {
        if !self.options.obey_ignore_files {
            return false;
        }
        let name = found.path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            return true;
        }
        let is_dir = found.kind == FoundKind::Dir;
        let decided = self
            .ignores
            .iter()
            .rev()
            .map(|file| file.matched(&found.path, is_dir));
        decided
            .into_iter()
            .find(|said| !said.is_none())
            .is_some_and(|said| said.is_ignore())
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let found = self.open.pop()?;
        if self.options.recursive && found.kind == FoundKind::Dir {
            if found.path.components().count() > MAX_DEPTH {
                self.cut = true;
            } else if let Some(name) = found.path.file_name()
                // A folder that may not be read has no entries for us. A link that took its
                // place is followed inside the folder above only.
                && let Ok(dir) = found.dir.open_dir(name)
            {
                let _ = self.enter(Arc::new(dir), &found.path);
            }
        }
        Some(found)
    }
}

/// What the ignore files of a folder say, for paths relative to the walk's start.
fn ignore_files(dir: &Dir, path: &Path) -> Gitignore {
    let mut rules = GitignoreBuilder::new(path);
    for name in [".gitignore", ".ignore"] {
        let Ok(text) = dir.read(name) else { continue };
        if text.len() > MAX_IGNORE_BYTES {
            continue;
        }
        for line in String::from_utf8_lossy(&text).lines() {
            // A line that is no pattern ignores nothing, as with git.
            let _ = rules.add_line(None, line);
        }
    }
    rules.build().unwrap_or_else(|_| Gitignore::empty())
}
