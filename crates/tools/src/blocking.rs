//! Work that blocks, such as files and search, away from the runtime's threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{ErrorKind, ToolError};

/// Set once nobody waits for the work any more.
#[derive(Clone, Default)]
pub(crate) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets the flag when it is dropped.
struct CancelOnDrop(Cancelled);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs work on a thread for such work. Dropping the future sets the work's flag; work that
/// looks at it ends then, short work just ends.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&Cancelled) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let cancelled = Cancelled::default();
    let _guard = CancelOnDrop(cancelled.clone());
    let done = tokio::task::spawn_blocking(move || work(&cancelled)).await;
    done.unwrap_or_else(|error| {
        Err(ToolError::new(ErrorKind::Internal, "the tool broke down").with_source(error))
    })
}
