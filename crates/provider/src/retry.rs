//! When a failed request is sent again.
//!
//! Written here and not taken from a crate: the wait depends on what the service said, the
//! budget is the turn's own deadline, and what is tried again is a state machine's step, not
//! a closure.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::ProviderError;
use crate::http::Deadline;

/// The first wait is at most this long; each further one at most twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// No wait that we choose is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// The retries that are left to one request.
#[derive(Debug)]
pub(crate) struct Retries {
    left: u32,
    /// Retries so far.
    n: u32,
    total: Deadline,
}

impl Retries {
    /// At most `most` retries, none that could not begin before `total` passes.
    pub(crate) fn new(most: u32, total: Deadline) -> Self {
        Self {
            left: most,
            n: 0,
            total,
        }
    }

    /// Waits until the request may be sent again: as long as the service asks, else a random
    /// time below a doubling limit (full jitter), so that clients spread out.
    ///
    /// # Errors
    /// The given error, if it is not retryable or no retry is left.
    pub(crate) async fn wait(&mut self, error: ProviderError) -> Result<(), ProviderError> {
        if self.left == 0 || !error.is_retryable() {
            return Err(error);
        }
        let wait = error.retry_after().unwrap_or_else(|| {
            let limit = FIRST_WAIT.saturating_mul(1 << self.n.min(16));
            limit.min(LONGEST_WAIT).mul_f64(random())
        });
        let at = Instant::now().checked_add(wait);
        match at {
            Some(at) if at < self.total.at => tokio::time::sleep_until(at).await,
            _ => return Err(error),
        }
        self.left -= 1;
        self.n += 1;
        Ok(())
    }
}

/// Uniform in 0..1, from the randomness that the standard library seeds its maps with.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(0_u8);
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
    unit
}
