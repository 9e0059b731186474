//! The folder that tools work in: no path leads out of it, no file is too large, no write is
//! half done.

mod backups;
mod files;
mod walk;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::{ErrorKind, ToolError};

use backups::Backups;
pub use files::MAX_FILE_BYTES;
pub(crate) use walk::{FoundKind, WalkOptions};

/// Longest path that is looked at, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// An open folder that no path leads out of. Cheap to clone.
///
/// Every name is resolved below the open folder by the system call itself (`openat2` where
/// the kernel has it): `..`, absolute paths and symbolic links that lead outside are refused,
/// and a link that is swapped in meanwhile changes nothing. Files of `/proc` are refused even
/// if the workspace contains it, because they show what other processes hold.
#[derive(Clone)]
pub struct Workspace {
    dir: Arc<Dir>,
    root: Arc<Path>,
    backups: Arc<Backups>,
}

impl Workspace {
    /// Opens a folder.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: it does not exist, is no folder or may not be read.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, ToolError> {
        let root = root.into();
        let fail = |error: io::Error| {
            ToolError::new(
                ErrorKind::Unavailable,
                format!("cannot open the workspace {}: {error}", root.display()),
            )
        };
        let resolved = root.canonicalize().map_err(fail)?;
        let dir = Dir::open_ambient_dir(&resolved, ambient_authority()).map_err(fail)?;
        Ok(Self {
            dir: Arc::new(dir),
            root: resolved.into(),
            backups: Arc::default(),
        })
    }

    /// The folder's absolute path, links resolved, as it was when it was opened.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path as a model wrote it, relative to the workspace: `""` is the workspace itself,
    /// an absolute path must begin with [`Workspace::root`].
    ///
    /// This only reads the text. Where the path leads is checked when it is opened.
    fn relative(&self, path: &str) -> Result<PathBuf, ToolError> {
        if path.contains('\0') {
            return Err(ToolError::new(
                ErrorKind::OutsideWorkspace,
                format!("the path `{}` holds a null byte", path.escape_debug()),
            ));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(ToolError::new(
                ErrorKind::TooLarge,
                format!(
                    "the path has {} bytes, at most {MAX_PATH_BYTES}",
                    path.len()
                ),
            ));
        }
        let path = Path::new(path);
        let inside = if path.is_absolute() {
            path.strip_prefix(&self.root).map_err(|_| outside(path))?
        } else {
            path
        };
        if inside.as_os_str().is_empty() {
            return Ok(PathBuf::from("."));
        }
        Ok(inside.to_owned())
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workspace").field(&self.root).finish()
    }
}

fn outside(path: &Path) -> ToolError {
    ToolError::new(
        ErrorKind::OutsideWorkspace,
        format!(
            "`{}` leads out of the workspace; use a path relative to the workspace",
            path.display()
        ),
    )
}

/// A path for a line of text: control characters, such as a line end in a name, are escaped.
pub(crate) fn printable(path: &Path) -> String {
    let mut shown = String::new();
    for char in path.to_string_lossy().chars() {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

/// What the system said of a path, for the model.
fn refused(verb: &str, path: &Path, error: &io::Error) -> ToolError {
    let shown = path.display();
    match error.kind() {
        // An escape is the one refusal that comes from cap-std and not from the system.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(path),
        io::ErrorKind::NotFound => {
            ToolError::new(ErrorKind::NotFound, format!("`{shown}` does not exist"))
        }
        _ => ToolError::failed(format!("cannot {verb} `{shown}`: {error}")),
    }
}
