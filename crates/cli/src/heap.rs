//! The allocator, and how what is free goes back to the system. One call of C, since the
//! allocator's crate has no other way.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// How often a server looks for memory that nobody has used for a second.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds so far.
static ROUND: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The round in which this thread looked at its own heap.
    static LOOKED_IN: Cell<u32> = const { Cell::new(0) };
}

/// Gives free memory back, again and again. The allocator does so by itself only while there
/// is work: a server that has become quiet would keep what its busiest moment needed.
///
/// Each thread has a heap that no other may tidy, so the runtime's are woken for it, as far as
/// the runtime wakes sleepers for work that is nearly none: two of them at least. Those that sleep
/// on keep what they have until they work again.
pub(crate) async fn give_back() -> Infallible {
    let n_workers = Handle::current().metrics().num_workers();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        ROUND.fetch_add(1, Ordering::Relaxed);
        for _ in 0..n_workers {
            tokio::spawn(async {});
        }
        collect();
    }
}

/// For a thread of the runtime that goes to sleep: looks at its own heap, once in each round.
pub(crate) fn before_sleep() {
    let round = ROUND.load(Ordering::Relaxed);
    if LOOKED_IN.replace(round) != round {
        collect();
    }
}

#[expect(unsafe_code, reason = "the allocator is C")]
fn collect() {
    // SAFETY: takes no pointer and may be called on any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(false) };
}
