//! Every file below a folder, in order, without following links.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::{Dir, File as CapFile};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::files::open_regular;
use super::{Workspace, printable, refused};
use crate::ToolError;

/// Deepest folder that is entered, counted from where the walk began.
const MAX_DEPTH: usize = 64;

/// Most memory for entries that are still to visit, in bytes: about 500,000 of short names.
const MAX_OPEN_BYTES: usize = 64 << 20;

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
    /// About how much memory it takes.
    fn n_open_bytes(&self) -> usize {
        size_of::<Self>() + self.path.as_os_str().len()
    }

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
pub(crate) struct Walk<F> {
    options: WalkOptions,
    /// Which entries that are no folders it gives.
    is_wanted: F,
    /// Folders and files still to visit, last first.
    open: Vec<Found>,
    n_open_bytes: usize,
    /// Ignore files of the folders above the current one, by depth.
    ignores: Vec<Arc<Gitignore>>,
    left_out: LeftOut,
}

impl Workspace {
    /// A walk below the folder `path` to its folders and to what else is wanted.
    pub(crate) fn walk<F: Fn(&Path) -> bool>(
        &self,
        path: &str,
        options: WalkOptions,
        is_wanted: F,
    ) -> Result<Walk<F>, ToolError> {
        let inside = self.relative(path)?;
        let dir = self.dir.open_dir(&inside);
        let dir = dir.map_err(|error| refused("list", &inside, &error))?;
        let mut walk = Walk {
            options,
            is_wanted,
            open: Vec::new(),
            n_open_bytes: 0,
            ignores: Vec::new(),
            left_out: LeftOut::default(),
        };
        let read = walk.enter(Arc::new(dir), Path::new(""));
        read.map_err(|error| refused("list", &inside, &error))?;
        Ok(walk)
    }
}

impl<F: Fn(&Path) -> bool> Walk<F> {
    /// What it passed over so far, if anything.
    pub(crate) fn left_out(&self) -> Option<String> {
        self.left_out.in_words()
    }

    /// Reads a folder's entries, sorted by name, onto the stack.
    fn enter(&mut self, dir: Arc<Dir>, path: &Path) -> io::Result<()> {
        let depth = path.components().count();
        self.ignores.truncate(depth);
        if self.options.obey_ignore_files {
            self.ignores.push(Arc::new(ignore_files(&dir, path)));
        }
        let mut entries = Vec::new();
        for entry in dir.entries()? {
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
            let is_wanted = kind == FoundKind::Dir || (self.is_wanted)(&found.path);
            if !is_wanted || self.is_ignored(&found) {
                continue;
            }
            let n_bytes = found.n_open_bytes();
            if self.n_open_bytes + n_bytes > MAX_OPEN_BYTES {
                self.left_out.crowded.add(path);
                break;
            }
            self.n_open_bytes += n_bytes;
            entries.push(found);
        }
        entries.sort_by(|a, b| b.path.cmp(&a.path));
        self.open.append(&mut entries);
        Ok(())
    }

    /// Reads what is in a folder, or notes why not.
    fn descend(&mut self, folder: &Found) {
        if folder.path.components().count() > MAX_DEPTH {
            self.left_out.deep.add(&folder.path);
            return;
        }
        let name = folder.path.file_name().unwrap_or_default();
        // A link that took its place is followed inside the folder above only.
        let dir = folder.dir.open_dir(name);
        let entered = dir.and_then(|dir| self.enter(Arc::new(dir), &folder.path));
        match entered {
            Ok(()) => {}
            // It has vanished meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => self.left_out.closed.add(&folder.path),
        }
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

impl<F: Fn(&Path) -> bool> Iterator for Walk<F> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let found = self.open.pop()?;
        self.n_open_bytes -= found.n_open_bytes();
        if self.options.recursive && found.kind == FoundKind::Dir {
            self.descend(&found);
        }
        Some(found)
    }
}

/// Folders that a walk did not look into, wholly or in part.
#[derive(Default)]
struct LeftOut {
    /// With more entries than fit.
    crowded: Folders,
    deep: Folders,
    closed: Folders,
}

/// Some folders.
#[derive(Default)]
struct Folders {
    n: usize,
    first: PathBuf,
}

impl Folders {
    fn add(&mut self, folder: &Path) {
        if self.n == 0 {
            self.first = Path::new(".").join(folder);
        }
        self.n += 1;
    }
}

impl LeftOut {
    fn in_words(&self) -> Option<String> {
        let deep = format!("over {MAX_DEPTH} folders down");
        let kinds = [
            (&self.crowded, "some entries, as there are too many"),
            (&self.deep, deep.as_str()),
            (&self.closed, "may not be read"),
        ];
        let parts: Vec<String> = kinds
            .into_iter()
            .filter(|(folders, _)| folders.n > 0)
            .map(|(folders, why)| {
                let first = printable(&folders.first);
                match folders.n {
                    1 => format!("`{first}` ({why})"),
                    n => format!("`{first}` and {} more ({why})", n - 1),
                }
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
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
