//! How a server ends.
//!
//! ```text
//! running --stop()--> draining --drain time over or stop()--> cut --grace--> gone
//! ```
//!
//! Draining: nothing new is accepted, what runs goes on. Cut: streams get an error event and
//! end, waiting requests get 503. After the first signal's drain time there is a short grace
//! for those last bytes; after a second signal there is none.

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Asks a server to end. Clones ask the same server.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    cut: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    /// A server that goes on.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The first call drains, the second one ends everything at once.
    pub fn stop(&self) {
        if self.drain.is_cancelled() {
            self.abort.cancel();
        }
        self.drain.cancel();
    }

    /// True from the first [`Self::stop`] on.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Ends running requests (the drain time is over).
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }

    pub(crate) async fn draining(&self) {
        self.drain.cancelled().await;
    }

    pub(crate) fn cut_off(&self) -> WaitForCancellationFutureOwned {
        self.cut.clone().cancelled_owned()
    }

    pub(crate) async fn aborted(&self) {
        self.abort.cancelled().await;
    }
}

/// Calls [`Shutdown::stop`] at each SIGINT and SIGTERM (elsewhere: at each Ctrl-C), until
/// dropped.
///
/// # Errors
/// The system refuses the handlers.
pub(crate) async fn stop_on_signals(shutdown: &Shutdown) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            shutdown.stop();
        }
    }
    #[cfg(not(unix))]
    loop {
        tokio::signal::ctrl_c().await?;
        shutdown.stop();
    }
}
