//! The allocator, and how what is free goes back to the system. One call of C, since the
//! allocator's crate has no other way.

use std::convert::Infallible;
use std::time::Duration;

/// How often a server looks for memory that nobody has used for a second.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives free memory back, again and again. The allocator does so by itself only while there
/// is work: a server that has become quiet would keep what its busiest moment needed.
pub(crate) async fn give_back() -> Infallible {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        collect();
    }
}

#[expect(unsafe_code, reason = "the allocator is C")]
fn collect() {
    // SAFETY: takes no pointer and may be called on any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(false) };
}
