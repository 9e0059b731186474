//! Copies of files before they were changed, none of which takes the place of another file.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cap_std::fs::{Dir, Metadata, MetadataExt, OpenOptions};
use cap_std::time::SystemTime;

/// Most names that are tried for one copy.
const MAX_NAMES: usize = 1000;

/// Most copies that are remembered; an older one is then left as it is.
const MAX_KNOWN: usize = 10_000;

/// The copies that this workspace has made. One of them is written over by a newer copy of
/// the same file as long as nobody else has touched it.
#[derive(Debug, Default)]
pub(super) struct Backups(Mutex<VecDeque<Stamp>>);

/// One file in one state.
#[derive(Debug, PartialEq)]
struct Stamp {
    device: u64,
    inode: u64,
    n_bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            n_bytes: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

impl Backups {
    /// A name for the copy of `name`: `NAME.bak`, or `NAME.bak2` and so on. It is taken, by
    /// an empty file or an older copy of ours.
    pub(super) fn reserve(&self, dir: &Dir, name: &Path) -> io::Result<PathBuf> {
        for n in 1..=MAX_NAMES {
            let mut backup = OsString::from(name);
            backup.push(".bak");
            if n > 1 {
                backup.push(n.to_string());
            }
            match dir.open_with(&backup, OpenOptions::new().write(true).create_new(true)) {
                Ok(_) => return Ok(backup.into()),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Err(_) => {}
            }
            let there = dir.symlink_metadata(&backup);
            if there.is_ok_and(|metadata| self.forget(&Stamp::new(&metadata))) {
                return Ok(backup.into());
            }
        }
        let all = format!("there are {MAX_NAMES} copies already; remove those of no use");
        Err(io::Error::other(all))
    }

    /// Notes that a copy has been written.
    pub(super) fn add(&self, dir: &Dir, backup: &Path) {
        if let Ok(metadata) = dir.symlink_metadata(backup) {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.push_back(Stamp::new(&metadata));
            if known.len() > MAX_KNOWN {
                known.pop_front();
            }
        }
    }

    /// Takes a copy of ours off the list; false if it is none.
    fn forget(&self, stamp: &Stamp) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let idx = known.iter().position(|copy| copy == stamp);
        idx.is_some_and(|idx| known.remove(idx).is_some())
    }
}
