//! The tools that every agent has: files, search and programs of one workspace.
//!
//! One file per tool: its arguments with their documentation, and what it does.

mod create_file;
mod edit_file;
mod execute_bash;
mod list_directory;
mod read_file;
mod search_codebase;

pub use create_file::CreateFile;
pub use edit_file::EditFile;
pub use execute_bash::ExecuteBash;
pub use list_directory::ListDirectory;
pub use read_file::ReadFile;
pub use search_codebase::SearchCodebase;

use globset::{GlobBuilder, GlobMatcher};

use crate::{ErrorKind, Sandbox, ToolError, ToolRegistry};

/// Adds the tools of this module; commands run in this sandbox.
///
/// # Errors
/// Kind [`ErrorKind::BadName`]: one of the names is taken.
pub fn register(registry: &ToolRegistry, sandbox: Sandbox) -> Result<(), ToolError> {
    registry.register(ReadFile)?;
    registry.register(CreateFile)?;
    registry.register(EditFile)?;
    registry.register(ListDirectory)?;
    registry.register(SearchCodebase)?;
    registry.register(ExecuteBash::new(sandbox))
}

/// A glob of a model: without a slash it is matched with file names, else with paths.
struct NameGlob {
    glob: GlobMatcher,
    whole_path: bool,
}

impl NameGlob {
    fn new(pattern: &str) -> Result<Self, ToolError> {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        let glob = glob.map_err(|error| {
            ToolError::new(ErrorKind::InvalidArguments, format!("bad glob: {error}"))
        })?;
        Ok(Self {
            glob: glob.compile_matcher(),
            whole_path: pattern.contains('/'),
        })
    }

    fn matches(&self, path: &std::path::Path) -> bool {
        match path.file_name() {
            Some(name) if !self.whole_path => self.glob.is_match(name),
            _ => self.glob.is_match(path),
        }
    }
}
