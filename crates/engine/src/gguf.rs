//! A look at a model file before llama.cpp sees it: what would be a confusing error, or no
//! error at all, becomes a clear one.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Error, ErrorKind};

/// Magic, version, tensor count, metadata count.
const HEADER_BYTES: usize = 4 + 4 + 8 + 8;

/// Checks that `path` is a readable file with a plausible GGUF header and returns its size.
///
/// Source of the layout: GGUF specification in the ggml repository (`docs/gguf.md`):
/// little-endian magic `GGUF`, u32 version, u64 tensor count, u64 metadata count. Versions 2
/// and 3 are what llama.cpp reads.
pub(crate) fn check_file(path: &Path) -> Result<u64, Error> {
    let shown = path.display();
    let bad = |what: String| Error::new(ErrorKind::BadModel, what);
    let io = |what: &str, e: std::io::Error| {
        let text = format!("cannot {what} model file `{shown}`");
        Error::with_source(ErrorKind::BadModel, text, e)
    };
    let mut file = File::open(path).map_err(|e| {
        if e.kind() == std::io::ErrorKind::NotFound {
            bad(format!("model file `{shown}` does not exist"))
        } else {
            io("open", e)
        }
    })?;
    let meta = file.metadata().map_err(|e| io("inspect", e))?;
    if meta.is_dir() {
        return Err(bad(format!("model file `{shown}` is a directory")));
    }
    let size = meta.len();
    if size == 0 {
        return Err(bad(format!("model file `{shown}` is empty")));
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.by_ref()
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .map_err(|e| io("read", e))?;
    if !header.starts_with(b"GGUF") {
        return Err(bad(format!(
            "model file `{shown}` is no GGUF file: it does not begin with `GGUF`"
        )));
    }
    if header.len() < HEADER_BYTES {
        return Err(bad(format!(
            "model file `{shown}` is truncated: {size} bytes are less than a header"
        )));
    }
    let version = read_u32(&header, 4);
    if !(2..=3).contains(&version) {
        return Err(bad(format!(
            "model file `{shown}` has GGUF version {version}, supported: 2 and 3"
        )));
    }
    // An entry of either list takes several bytes, so a count over the size is damage.
    let (n_tensors, n_meta) = (read_u64(&header, 8), read_u64(&header, 16));
    if n_tensors == 0 || n_tensors > size || n_meta > size {
        return Err(bad(format!(
            "model file `{shown}` is damaged: {n_tensors} tensors and {n_meta} entries in {size} bytes"
        )));
    }
    Ok(size)
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
