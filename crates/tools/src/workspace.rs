//! The folder that tools work in.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::{ErrorKind, ToolError};

/// An open folder that no path leads out of. Cheap to clone.
///
/// Every name is resolved below the open folder by the system call itself (`openat2` where
/// the kernel has it): `..`, absolute paths and symbolic links that lead outside are refused,
/// and a link that is swapped in meanwhile changes nothing.
#[derive(Clone)]
pub struct Workspace {
    dir: Arc<Dir>,
    root: Arc<Path>,
}

impl Workspace {
    /// Opens a folder.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: it does not exist, is no folder or may not be read.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, ToolError> {
        let root = root.into();
        let fail = |error: std::io::Error| {
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
        })
    }

    /// The folder's absolute path, links resolved, as it was when it was opened.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The open folder.
    #[must_use]
    pub fn dir(&self) -> &Dir {
        &self.dir
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workspace").field(&self.root).finish()
    }
}
