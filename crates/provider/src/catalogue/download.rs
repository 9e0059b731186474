//! A file on its way: continued where it broke off, checked, and put in place at once.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::table::Pin;
use crate::{ErrorKind, ProviderError};

/// What happens during a pull, for progress bars and messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullEvent {
    /// This source is tried.
    Source(String),
    /// This source failed; the next one is tried.
    SourceFailed(String),
    /// A transfer begins.
    Started {
        /// Bytes in all, if known.
        n_bytes: Option<u64>,
        /// Bytes that an earlier, broken transfer left.
        resumed: u64,
    },
    /// So many further bytes are here.
    Received(u64),
    /// Something that takes a while, in words.
    Step(String),
}

/// The most bytes of a model file that is not in the catalogue: 1 TiB.
const MAX_FILE_BYTES: u64 = 1 << 40;

/// A file being received. Dropped unfinished, it stays as `*.part` and can be continued.
#[derive(Debug)]
pub(super) struct Partial {
    file: File,
    path: PathBuf,
    target: PathBuf,
    hash: Sha256,
    n_bytes: u64,
    pin: Option<Pin>,
}

impl Partial {
    /// Opens what is there of this target. `version` tells files apart that may be mixed up:
    /// the checksum, or the server's own tag of the content.
    ///
    /// # Errors
    /// The folder cannot be written, or another process fetches the same file.
    pub(super) fn open(
        target: &Path,
        version: &str,
        pin: Option<Pin>,
    ) -> Result<Self, ProviderError> {
        let folder = target.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|error| io(folder, "cannot be made", error))?;
        let version: String = version
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(16)
            .collect();
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{version}.part"));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options
            .open(&path)
            .map_err(|error| io(&path, "cannot be written", error))?;
        if file.try_lock().is_err() {
            let message = format!("{} is being fetched by another process", target.display());
            return Err(ProviderError::new(ErrorKind::Io, message));
        }
        let (hash, n_bytes) =
            hash_of(&mut file).map_err(|error| io(&path, "cannot be read", error))?;
        let mut partial = Self {
            file,
            path,
            target: target.to_path_buf(),
            hash,
            n_bytes,
            pin,
        };
        if pin.is_some_and(|pin| n_bytes > pin.n_bytes) {
            partial.restart()?;
        }
        Ok(partial)
    }

    /// Bytes that are here.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Throws away what is here.
    pub(super) fn restart(&mut self) -> Result<(), ProviderError> {
        self.hash = Sha256::new();
        self.n_bytes = 0;
        let cut = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cut.map(|_| ())
            .map_err(|error| io(&self.path, "cannot be written", error))
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The disk is full, or more comes than was expected.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ProviderError> {
        let limit = self.pin.map_or(MAX_FILE_BYTES, |pin| pin.n_bytes);
        self.n_bytes += bytes.len() as u64;
        if self.n_bytes > limit {
            self.restart()?;
            let message = format!("the file is larger than the expected {limit} bytes");
            return Err(ProviderError::new(ErrorKind::Checksum, message));
        }
        self.hash.update(bytes);
        self.file
            .write_all(bytes)
            .map_err(|error| io(&self.path, "cannot be written", error))
    }

    /// Checks the whole file and puts it in place. `sha256` is the source's own checksum for
    /// files without a pin.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Checksum`]: it is another file; what is here is removed.
    pub(super) fn finish(self, sha256: Option<&str>) -> Result<(), ProviderError> {
        let found = hex(&self.hash.finalize());
        let expected = self.pin.map(|pin| pin.sha256).or(sha256);
        if let Some(expected) = expected
            && found != expected
        {
            // Kept, it would be continued and fail again.
            let _ = fs::remove_file(&self.path);
            return Err(ProviderError::new(
                ErrorKind::Checksum,
                format!(
                    "the file is another one than expected: sha256 {found}, expected {expected}"
                ),
            ));
        }
        let placed = self
            .file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, &self.target));
        placed.map_err(|error| io(&self.target, "cannot be put in place", error))
    }
}

fn hash_of(file: &mut File) -> std::io::Result<(Sha256, u64)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut n_bytes = 0;
    file.seek(SeekFrom::Start(0))?;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok((hash, n_bytes));
        }
        hash.update(&buffer[..n]);
        n_bytes += n as u64;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An error of this path.
pub(super) fn io(path: &Path, what: &str, error: std::io::Error) -> ProviderError {
    ProviderError::new(ErrorKind::Io, format!("{} {what}: {error}", path.display()))
        .with_source(error)
}
