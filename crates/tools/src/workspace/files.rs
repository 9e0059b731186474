//! Whole files, read and written.

use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt, Permissions};
use rustix::fs::{Access, AtFlags, OFlags, accessat};

use super::backups::Backups;
use super::{Workspace, outside, refused};
use crate::{ErrorKind, ToolError};

/// Largest file that tools read or write, in bytes.
pub const MAX_FILE_BYTES: usize = 1_000_000;

/// A file that was read, and what is needed to put it back.
pub(crate) struct Original {
    pub(crate) text: String,
    place: Place,
    permissions: Permissions,
    backups: Arc<Backups>,
}

/// An open folder and a name in it. Between two steps nothing can be swapped that would lead
/// elsewhere.
struct Place {
    dir: Dir,
    name: PathBuf,
}

impl Workspace {
    /// Reads a regular file of at most [`MAX_FILE_BYTES`].
    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, ToolError> {
        let inside = self.relative(path)?;
        let file = open_regular(&self.dir, &inside)?;
        read_limited(file, &inside)
    }

    /// Reads a text file to change it, following links inside the workspace. Refuses one that
    /// this user may not write: to put another in its place would be a way around that.
    pub(crate) fn read_original(&self, path: &str) -> Result<Original, ToolError> {
        let inside = self.relative(path)?;
        let real = self.dir.canonicalize(&inside);
        let real = real.map_err(|error| refused("read", &inside, &error))?;
        let place = self.place(&real, &inside)?;
        let file = open_regular(&place.dir, &place.name)?;
        let metadata = file.metadata();
        let metadata = metadata.map_err(|error| refused("read", &inside, &error))?;
        let is_writable = accessat(&place.dir, &place.name, Access::WRITE_OK, AtFlags::EACCESS);
        if metadata.permissions().readonly() || is_writable.is_err() {
            return Err(ToolError::failed(format!(
                "`{}` is write-protected",
                inside.display()
            )));
        }
        let bytes = read_limited(file, &inside)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| ToolError::failed(format!("`{}` is no UTF-8 text", inside.display())))?;
        Ok(Original {
            text,
            place,
            permissions: metadata.permissions(),
            backups: Arc::clone(&self.backups),
        })
    }

    /// Writes a file that does not exist yet, with the folders above it.
    pub(crate) fn create(&self, path: &str, content: &str) -> Result<(), ToolError> {
        let inside = self.relative(path)?;
        check_size(content.len(), &inside)?;
        if path.ends_with('/') || path.ends_with("/.") {
            return Err(ToolError::failed(format!("`{path}` names a folder")));
        }
        let place = match self.place(&inside, &inside) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check_new_folders(&inside)?;
                let made = inside
                    .parent()
                    .map_or(Ok(()), |parent| self.dir.create_dir_all(parent));
                made.map_err(|error| refused("create", &inside, &error))?;
                self.place(&inside, &inside)?
            }
            place => place?,
        };
        // The empty file takes the name; the content comes in one step.
        let reserved = place
            .dir
            .open_with(&place.name, OpenOptions::new().write(true).create_new(true));
        let reserved = reserved.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ToolError::failed(format!(
                "`{}` exists already; use edit_file to change it",
                inside.display()
            )),
            _ => refused("create", &inside, &error),
        })?;
        let permissions = reserved.metadata().map(|metadata| metadata.permissions());
        let written = permissions.and_then(|permissions| place.replace(content, permissions));
        written.map_err(|error| {
            // What cannot be removed is empty; the error below is the one to tell.
            let _ = place.dir.remove_file(&place.name);
            refused("write", &inside, &error)
        })
    }

    /// The folder and the name that a path inside the workspace ends in.
    fn place(&self, path: &Path, shown: &Path) -> Result<Place, ToolError> {
        let name = path
            .file_name()
            .ok_or_else(|| ToolError::failed(format!("`{}` names no file", shown.display())))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let dir = self.dir.open_dir(parent);
        let dir = dir.map_err(|error| refused("open", shown, &error))?;
        Ok(Place {
            dir,
            name: name.into(),
        })
    }
}

impl Original {
    /// Replaces the file, keeping the old text in `NAME.bak` beside it, or `NAME.bak2` and so
    /// on where such a file is not ours. Returns the name of the copy. If the new text cannot
    /// be written, the old one is there again.
    pub(crate) fn replace(&self, text: &str) -> Result<String, ToolError> {
        let Place { dir, name } = &self.place;
        check_size(text.len(), name)?;
        let backup = self.backups.reserve(dir, name);
        let backup = backup.map_err(|error| refused("keep a copy of", name, &error))?;
        let backup = Place {
            dir: dir
                .try_clone()
                .map_err(|error| refused("open", name, &error))?,
            name: backup,
        };
        let keep = backup.replace(&self.text, self.permissions.clone());
        keep.map_err(|error| {
            // An empty one holds nothing but the name.
            if dir
                .symlink_metadata(&backup.name)
                .is_ok_and(|copy| copy.len() == 0)
            {
                let _ = dir.remove_file(&backup.name);
            }
            refused("write", &backup.name, &error)
        })?;
        self.backups.add(dir, &backup.name);
        let written = self.place.replace(text, self.permissions.clone());
        written.map_err(|error| {
            // The write is one rename, so the old text is still there unless someone else
            // took it away meanwhile.
            if dir.symlink_metadata(name).is_err() {
                let _ = dir.copy(&backup.name, dir, name);
            }
            refused("write", name, &error)
        })?;
        Ok(backup.name.display().to_string())
    }
}

impl Place {
    /// Puts a whole file in place of whatever has the name: readers see the old or the new
    /// text, a crash leaves one of them.
    fn replace(&self, content: &str, permissions: Permissions) -> io::Result<()> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".twopass-{:x}-{n:x}.tmp", std::process::id());
        let mut options = OpenOptions::new();
        let file = self
            .dir
            .open_with(&temporary, options.write(true).create_new(true))?;
        let filled = fill(file, content, permissions);
        let replaced = filled.and_then(|()| self.dir.rename(&temporary, &self.dir, &self.name));
        replaced.inspect_err(|_| {
            // The error that is told is the one that matters.
            let _ = self.dir.remove_file(&temporary);
        })
    }
}

/// Refuses `..` in a path with folders that do not exist yet, before one is made: it leads out
/// of the workspace or back out of a folder that nobody asked for.
fn check_new_folders(path: &Path) -> Result<(), ToolError> {
    let mut depth = 0_usize;
    let mut goes_up = false;
    for part in path.components() {
        match part {
            Component::ParentDir => {
                depth = depth.checked_sub(1).ok_or_else(|| outside(path))?;
                goes_up = true;
            }
            Component::Normal(_) => depth += 1,
            _ => {}
        }
    }
    if goes_up {
        let message = format!(
            "folders of `{}` do not exist; write the path without `..`",
            path.display()
        );
        return Err(ToolError::new(ErrorKind::NotFound, message));
    }
    Ok(())
}

/// Writes a new file's content down to the disk.
fn fill(mut file: File, content: &str, permissions: Permissions) -> io::Result<()> {
    file.write_all(content.as_bytes())?;
    file.set_permissions(permissions)?;
    file.sync_all()
}

/// Opens a file that is no folder, device, pipe or part of `/proc`. Never blocks: a pipe is
/// opened, seen and refused.
pub(super) fn open_regular(dir: &Dir, path: &Path) -> Result<File, ToolError> {
    let mut options = OpenOptions::new();
    options.read(true);
    options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    let file = dir.open_with(path, &options);
    let file = file.map_err(|error| refused("read", path, &error))?;
    let metadata = file.metadata();
    let metadata = metadata.map_err(|error| refused("read", path, &error))?;
    if metadata.is_dir() {
        return Err(ToolError::failed(format!(
            "`{}` is a folder; use list_directory",
            path.display()
        )));
    }
    if !metadata.is_file() {
        return Err(ToolError::failed(format!(
            "`{}` is no regular file",
            path.display()
        )));
    }
    if is_proc(&file) {
        return Err(outside(path));
    }
    Ok(file)
}

#[cfg(target_os = "linux")]
fn is_proc(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn is_proc(_: &File) -> bool {
    false
}

fn read_limited(file: File, shown: &Path) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| refused("read", shown, &error))?;
    check_size(bytes.len(), shown)?;
    Ok(bytes)
}

fn check_size(n_bytes: usize, shown: &Path) -> Result<(), ToolError> {
    if n_bytes <= MAX_FILE_BYTES {
        return Ok(());
    }
    Err(ToolError::new(
        ErrorKind::TooLarge,
        format!(
            "`{}` has over {MAX_FILE_BYTES} bytes, the most that is read or written",
            shown.display()
        ),
    ))
}
