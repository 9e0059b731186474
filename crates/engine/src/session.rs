//! Kept prefixes in a file, so that an engine that starts again has them warm.
//!
//! One file per model file, in a folder that the operator names. Layout, little endian: magic;
//! length and text of an identity (one `name: value` per line: llama.cpp, model, cache); number
//! of sequences; of each its tokens and llama.cpp's state, both behind their lengths; a checksum
//! of all before it. What does not fit in every point is not used at all, with a warning that
//! says why: llama.cpp is never given bytes that it did not write in the same setting.
//!
//! The file holds what was said: only its owner may read it.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::prefix_cache::{Entry, Place};
use crate::stats::StatsCell;
use crate::{CacheType, EngineOptions, Error, TokenId};

const MAGIC: &[u8; 8] = b"2PSESS\x00\x01";
/// Longest identity.
const IDENTITY_LIMIT_BYTES: u64 = 4096;
/// Most sequences that a file holds.
const MAX_ENTRIES: u64 = 256;
/// Most tokens of one.
const MAX_TOKENS: u64 = 1 << 24;
/// Pieces of a model file that its digest looks at, and their size.
const DIGEST_PIECES: u64 = 64;
const DIGEST_PIECE_BYTES: u64 = 16 << 10;

/// Where an engine's prefixes are saved, and what they belong to.
#[derive(Debug)]
pub(crate) struct Session {
    path: PathBuf,
    identity: String,
    limit_bytes: usize,
    stats: Arc<StatsCell>,
    /// Something is kept that the file does not hold.
    is_stale: bool,
    writer: Option<JoinHandle<()>>,
}

impl Session {
    /// The session of these options, if they name a folder. It is made if it is not there.
    ///
    /// # Errors
    /// `BadOption`: there can be no such folder.
    pub(crate) fn open(
        options: &EngineOptions,
        stats: &Arc<StatsCell>,
    ) -> Result<Option<Self>, Error> {
        let Some(folder) = &options.session_path else {
            return Ok(None);
        };
        std::fs::create_dir_all(folder).map_err(|e| {
            let text = format!("cannot make the folder `{}`: {e}", folder.display());
            Error::bad_option("session_path", text)
        })?;
        let stem = options.model_path.file_stem().unwrap_or_default();
        let mut name = stem.to_owned();
        // Models of other folders may have the same name.
        let digest = digest(&options.model_path).unwrap_or_default();
        name.push(format!(".{digest:016x}.session"));
        Ok(Some(Self {
            path: folder.join(name),
            identity: identity(options, digest),
            limit_bytes: options.cached_bytes,
            stats: Arc::clone(stats),
            is_stale: false,
            writer: None,
        }))
    }

    /// What was saved, the least recently used first; nothing without a file, or if it does not
    /// fit (a warning says why).
    pub(crate) fn load(&self) -> Vec<Entry> {
        read_file(&self.path, &self.identity, self.limit_bytes).unwrap_or_else(|why| {
            let path = self.path.display();
            let text = format!("the saved session `{path}` is not used: {why}");
            self.stats.warn(text);
            Vec::new()
        })
    }

    /// Notes that something new is kept.
    pub(crate) fn note_change(&mut self) {
        self.is_stale = true;
    }

    /// True if there is something to save.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Saves what is parked of these entries, on a thread of its own. [`Self::finish`] waits
    /// for it.
    pub(crate) fn save<'a>(&mut self, entries: impl Iterator<Item = &'a Entry>) {
        self.finish();
        self.is_stale = false;
        let parked: Vec<Saved> = entries.filter_map(saved).collect();
        let (path, identity) = (self.path.clone(), self.identity.clone());
        let stats = Arc::clone(&self.stats);
        let work = move || {
            if let Err(e) = write_file(&path, &identity, &parked) {
                let path = path.display();
                stats.warn(format!("the session `{path}` cannot be saved: {e}"));
            }
        };
        let builder = std::thread::Builder::new().name("twopass-session".to_owned());
        match builder.spawn(work) {
            Ok(thread) => self.writer = Some(thread),
            Err(e) => self
                .stats
                .warn(format!("no thread to save the session: {e}")),
        }
    }

    /// Waits until what is being saved is saved.
    pub(crate) fn finish(&mut self) {
        if let Some(writer) = self.writer.take() {
            // A panic on the thread was reported there; nothing is left to do about it.
            let _ = writer.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A kept sequence on its way to the file.
#[derive(Debug)]
struct Saved {
    tokens: Vec<TokenId>,
    state: Arc<Vec<u8>>,
}

fn saved(entry: &Entry) -> Option<Saved> {
    match &entry.place {
        // Adapters are not part of the identity.
        Place::Parked(state) if entry.adapter.is_none() => Some(Saved {
            tokens: entry.tokens.clone(),
            state: Arc::clone(state),
        }),
        Place::Parked(_) | Place::Cells(_) => None,
    }
}

/// Everything that a saved state depends on.
fn identity(options: &EngineOptions, digest: u64) -> String {
    let cache_type = match options.cache_type {
        CacheType::F16 => "f16",
        CacheType::Q8_0 => "q8_0",
    };
    let flash_attention = match options.flash_attention {
        None => "auto",
        Some(true) => "on",
        Some(false) => "off",
    };
    format!(
        "engine: {}, ggml {}\nmodel: {digest:016x}\ncache type: {cache_type}\nflash attention: {flash_attention}\n",
        env!("CARGO_PKG_VERSION"),
        crate::ffi::version(),
    )
}

/// Tells model files apart: size, header and pieces from all over the weights.
fn digest(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut sum = sum_of(SUM_START, &size.to_le_bytes());
    for piece in 0..DIGEST_PIECES {
        let at = (size.saturating_sub(DIGEST_PIECE_BYTES) / (DIGEST_PIECES - 1)) * piece;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        (&mut file)
            .take(DIGEST_PIECE_BYTES)
            .read_to_end(&mut bytes)?;
        sum = sum_of(sum, &bytes);
    }
    Ok(sum)
}

/// The file appears whole or not at all.
fn write_file(path: &Path, identity: &str, entries: &[Saved]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    // Of a process of this number that ended too early.
    let _ = std::fs::remove_file(&new);
    let written = write_new(&new, identity, entries).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // Half a file is of no use; that it cannot be removed says nothing new.
        let _ = std::fs::remove_file(&new);
    }
    written
}

fn write_new(path: &Path, identity: &str, entries: &[Saved]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = Summed::new(BufWriter::new(options.open(path)?));
    out.write(MAGIC)?;
    out.write_counted(identity.as_bytes())?;
    out.write(&(entries.len() as u64).to_le_bytes())?;
    for entry in entries {
        let tokens: Vec<u8> = entry.tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        out.write_counted(&tokens)?;
        out.write_counted(&entry.state)?;
    }
    let sum = out.sum;
    out.write(&sum.to_le_bytes())?;
    out.inner.into_inner()?.sync_all()
}

/// The entries of a file; none if there is no file.
///
/// # Errors
/// Why it cannot be used.
fn read_file(path: &Path, identity: &str, limit_bytes: usize) -> Result<Vec<Entry>, String> {
    const DAMAGED: &str = "it is damaged or cut off";
    let file = match File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(|e| format!("it cannot be read: {e}"))?,
    };
    let mut input = Summed::new(BufReader::new(file));
    let mut magic = [0; 8];
    if input.read(&mut magic).is_none() || magic != *MAGIC {
        return Err("it is no session file of this version".to_owned());
    }
    let theirs = input.read_counted(IDENTITY_LIMIT_BYTES).ok_or(DAMAGED)?;
    if theirs != identity.as_bytes() {
        return Err(difference(&String::from_utf8_lossy(&theirs), identity));
    }
    let n_entries = input
        .number()
        .filter(|n| *n <= MAX_ENTRIES)
        .ok_or(DAMAGED)?;
    let mut left = limit_bytes as u64;
    let mut entries = Vec::new();
    for _ in 0..n_entries {
        let tokens = input.read_counted(4 * MAX_TOKENS).ok_or(DAMAGED)?;
        let (tokens, rest) = tokens.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(DAMAGED.to_owned());
        }
        let n_bytes = input.number().ok_or(DAMAGED)?;
        left = left
            .checked_sub(n_bytes)
            .ok_or_else(|| format!("it is damaged or holds more than {limit_bytes} bytes"))?;
        let state = input.bytes(n_bytes).ok_or(DAMAGED)?;
        entries.push(Entry {
            tokens: tokens.iter().map(|t| TokenId::from_le_bytes(*t)).collect(),
            adapter: None,
            place: Place::Parked(Arc::new(state)),
        });
    }
    let sum = input.sum;
    if input.number() != Some(sum) {
        return Err(DAMAGED.to_owned());
    }
    Ok(entries)
}

/// The first point in which two identities differ.
fn difference(saved: &str, now: &str) -> String {
    let pairs = saved.lines().zip(now.lines());
    let mut differing = pairs.filter(|(saved, now)| saved != now);
    match differing.next() {
        Some((saved, now)) => format!("it was saved with `{saved}`, here is `{now}`"),
        None => "it is of another version".to_owned(),
    }
}

/// A checksum (FNV-1a over words of eight bytes) against damage, not against attackers.
#[derive(Debug)]
struct Summed<T> {
    inner: T,
    sum: u64,
}

/// Where [`sum_of`] begins.
const SUM_START: u64 = 0xcbf2_9ce4_8422_2325;

fn sum_of(sum: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|&byte| u64::from(byte));
    words
        .chain(rest)
        .fold(sum, |sum, word| (sum ^ word).wrapping_mul(PRIME))
}

impl<T> Summed<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            sum: SUM_START,
        }
    }
}

impl<T: Write> Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum = sum_of(self.sum, bytes);
        self.inner.write_all(bytes)
    }

    /// Bytes behind their number.
    fn write_counted(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.write(&(bytes.len() as u64).to_le_bytes())?;
        self.write(bytes)
    }
}

impl<T: Read> Summed<T> {
    fn read(&mut self, bytes: &mut [u8]) -> Option<()> {
        self.inner.read_exact(bytes).ok()?;
        self.sum = sum_of(self.sum, bytes);
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(&mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Bytes behind their number, at most so many.
    fn read_counted(&mut self, most: u64) -> Option<Vec<u8>> {
        let n = self.number().filter(|n| *n <= most)?;
        self.bytes(n)
    }

    /// This many bytes; no more memory than the file holds is taken for them.
    fn bytes(&mut self, n: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.inner).take(n).read_to_end(&mut bytes).ok()?;
        self.sum = sum_of(self.sum, &bytes);
        (bytes.len() as u64 == n).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: &str = "engine: 1\ncache type: f16\n";
    const LIMIT: usize = 1 << 20;

    fn entries() -> Vec<Entry> {
        (1..4_u8)
            .map(|n| Entry {
                adapter: None,
                place: Place::Parked(Arc::new(vec![n; 1000 + usize::from(n)])),
                tokens: vec![TokenId::from(n); 17],
            })
            .collect()
    }

    fn why(path: &Path, identity: &str, limit_bytes: usize) -> String {
        read_file(path, identity, limit_bytes).unwrap_err()
    }

    #[test]
    fn a_session_comes_back_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.session");
        assert!(read_file(&path, IDENTITY, LIMIT).unwrap().is_empty());
        let saved: Vec<Saved> = entries().iter().filter_map(saved).collect();
        write_file(&path, IDENTITY, &saved).unwrap();
        let read = read_file(&path, IDENTITY, LIMIT).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", entries()));
        assert_eq!(
            why(&path, "engine: 1\ncache type: q8_0\n", LIMIT),
            "it was saved with `cache type: f16`, here is `cache type: q8_0`"
        );
        assert!(why(&path, IDENTITY, 3000).contains("more than 3000 bytes"));
        // Nothing but the file is left behind.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_seen_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.session");
        let saved: Vec<Saved> = entries().iter().filter_map(saved).collect();
        write_file(&path, IDENTITY, &saved).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(37) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            assert!(read_file(&path, IDENTITY, LIMIT).is_err(), "{at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read_file(&path, IDENTITY, LIMIT).is_err(), "cut at {at}");
        }
    }
}
