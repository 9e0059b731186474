//! A look at a model file before llama.cpp sees it: what would be a confusing error, or an
//! abort of the process, becomes a clear one.

use std::path::Path;

use crate::{Error, ErrorKind};

/// Checks that `path` is a readable GGUF file with a plausible header; returns its size.
pub(crate) fn check_file(path: &Path) -> Result<u64, Error> {
    let bad = |what: String| {
        let shown = path.display();
        Error::new(ErrorKind::BadModel, format!("model file `{shown}` {what}"))
    };
    if !path.exists() {
        return Err(bad("does not exist".to_owned()));
    }
    let header = twopass_gguf::read_header(path).map_err(|error| bad(error.to_string()))?;
    header.check().map_err(|error| bad(error.to_string()))?;
    Ok(header.n_bytes)
}
