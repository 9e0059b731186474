//! The threads that the work runs on: one runtime for each process.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime};
use twopass_provider::{ErrorKind, ProviderError};

/// Sockets and bookkeeping only: models have threads of their own.
const WORKER_THREADS: usize = 2;

/// The runtime and the process that its threads live in.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// This process's runtime; a forked child gets its own, since threads stay with the parent.
///
/// # Errors
/// The system gives no threads.
pub(crate) fn runtime() -> Result<Arc<Runtime>, ProviderError> {
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, runtime)) = slot.as_ref()
        && *owner == process
    {
        return Ok(Arc::clone(runtime));
    }
    let built = Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .thread_name("twopass")
        .enable_all()
        .build();
    let runtime = Arc::new(built.map_err(|error| {
        ProviderError::new(ErrorKind::Internal, "cannot start threads").with_source(error)
    })?);
    if let Some((_, inherited)) = slot.replace((process, Arc::clone(&runtime))) {
        // Its threads do not exist here, so dropping it would wait for ever.
        std::mem::forget(inherited);
    }
    Ok(runtime)
}
