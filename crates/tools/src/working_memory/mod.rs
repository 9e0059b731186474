//! Working memory: a text under headings that the model keeps for itself during a
//! conversation, and the tools by which it edits it.
//!
//! Every edit is whole or nothing, says what it did, and does nothing twice: an edit that was
//! made already is a note, not an error. What could be meant in two ways is refused, with the
//! places. Each change has a new revision number, so that an edit of an older text can be
//! refused.

mod document;
mod edits;
mod patch;
mod tools;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{ErrorKind, ToolError, ToolOutput, ToolRegistry};
use edits::Edited;

pub use tools::{
    AppendInMemory, DeleteFromMemory, OverwriteMemory, PatchMemory, ReplaceInMemory, UpdateMemory,
};

/// Where working memory starts: three headings, nothing under them.
pub const START: &str =
    "## 1. Goals and plans\n\n## 2. Facts and knowledge\n\n## 3. Active notes\n";

/// Longest working memory, in characters: about 4,000 tokens of every prompt.
pub const MAX_CHARS: usize = 16_000;

/// Which tools the model edits its memory with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The whole text anew: `overwrite_memory`.
    Overwrite,
    /// Passages: `patch_memory`, `replace_in_memory`.
    PatchAndReplace,
    /// Lines under headings: `append_in_memory`, `delete_from_memory`.
    AppendAndDelete,
    /// Lines by number: `update_memory`.
    Update,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 4] = [
        Self::Overwrite,
        Self::PatchAndReplace,
        Self::AppendAndDelete,
        Self::Update,
    ];

    /// The name in configuration and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::PatchAndReplace => "patch_and_replace",
            Self::AppendAndDelete => "append_and_delete",
            Self::Update => "update",
        }
    }

    /// The strategy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == name)
    }
}

/// The text. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct WorkingMemory {
    state: Arc<Mutex<State>>,
}

struct State {
    text: String,
    revision: u64,
}

impl Default for WorkingMemory {
    fn default() -> Self {
        Self::new(START)
    }
}

impl WorkingMemory {
    /// A memory with this text, as revision 1.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                text: text.into(),
                revision: 1,
            })),
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Replaces the text by one that was kept elsewhere, as a further revision.
    pub fn restore(&self, text: impl Into<String>) {
        let mut state = self.lock();
        state.text = text.into();
        state.revision += 1;
    }

    /// The number of the text's revision, which grows by one with every change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Adds the tools of a strategy.
    ///
    /// # Errors
    /// Kind [`ErrorKind::BadName`]: one of the names is taken.
    pub fn register(&self, registry: &ToolRegistry, strategy: Strategy) -> Result<(), ToolError> {
        match strategy {
            Strategy::Overwrite => registry.register(OverwriteMemory::new(self.clone())),
            Strategy::PatchAndReplace => {
                registry.register(PatchMemory::new(self.clone()))?;
                registry.register(ReplaceInMemory::new(self.clone()))
            }
            Strategy::AppendAndDelete => {
                registry.register(AppendInMemory::new(self.clone()))?;
                registry.register(DeleteFromMemory::new(self.clone()))
            }
            Strategy::Update => registry.register(UpdateMemory::new(self.clone())),
        }
    }

    /// Applies an edit to the text as it is now.
    fn edit(
        &self,
        seen_revision: Option<u64>,
        edit: impl FnOnce(&str) -> Result<Edited, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        let mut state = self.lock();
        if let Some(seen) = seen_revision.filter(|seen| *seen != state.revision) {
            return Err(ToolError::failed(format!(
                "the memory is at revision {}, the edit is for revision {seen}; look at the \
                 memory again",
                state.revision
            )));
        }
        let edited = edit(&state.text)?;
        let n_chars = edited.text.chars().count();
        if n_chars > MAX_CHARS {
            return Err(ToolError::new(
                ErrorKind::TooLarge,
                format!(
                    "the memory would have {n_chars} characters, at most {MAX_CHARS}; shorten it"
                ),
            ));
        }
        if edited.text != state.text {
            state.text.clone_from(&edited.text);
            state.revision += 1;
        }
        Ok(ToolOutput::text(format!(
            "{}; revision {}, {n_chars} of {MAX_CHARS} characters",
            edited.summary, state.revision
        )))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Edits change the text in one step: poisoned data is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
