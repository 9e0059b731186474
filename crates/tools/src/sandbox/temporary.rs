//! The temporary folder of a command, which is gone with it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use tempfile::TempDir;

/// What names of such folders begin with.
const PREFIX: &str = "twopass-command-";

/// After so long no command runs in such a folder any more.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A new folder. The first call of a process also removes those that were left by a process
/// that was killed.
pub(super) fn folder() -> io::Result<TempDir> {
    static SWEPT: Once = Once::new();
    let all = std::env::temp_dir();
    SWEPT.call_once(|| sweep(&all));
    tempfile::Builder::new().prefix(PREFIX).tempdir_in(all)
}

fn sweep(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let is_named = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes());
        if is_named && entry.metadata().is_ok_and(|metadata| is_left(&metadata)) {
            // What cannot be removed stays; it is in nobody's way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// True for an old folder of this user, which is no link to one.
fn is_left(metadata: &Metadata) -> bool {
    let age = metadata
        .modified()
        .ok()
        .and_then(|time| time.elapsed().ok());
    metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && age.is_some_and(|age| age > MAX_AGE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn i1_only_old_folders_of_ours_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let path = |name: &str| all.path().join(name);
        let names = [
            "twopass-command-old",
            "twopass-command-new",
            "twopass-other",
            "linked",
        ];
        for name in names {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("a"), "").unwrap();
        }
        symlink("linked", path("twopass-command-link")).unwrap();
        let long_ago = SystemTime::now() - 2 * MAX_AGE;
        for name in ["twopass-command-old", "twopass-other", "linked"] {
            let dir = fs::File::open(path(name)).unwrap();
            dir.set_modified(long_ago).unwrap();
        }
        sweep(all.path());
        assert!(!path("twopass-command-old").exists());
        for name in &names[1..] {
            assert!(path(name).join("a").exists(), "{name}");
        }
        assert!(path("twopass-command-link").is_symlink());
    }
}
