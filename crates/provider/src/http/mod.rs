//! The HTTP client that remote backends share: one connection pool, our deadlines, errors
//! by kind.
//!
//! Redirects are never followed: they would carry the prompt, and a key, to an address that
//! nobody configured. Bodies are read in bounded pieces.

mod body;
mod client;
mod connector;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::Response;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use twopass_wire::fault::Fault;

pub(crate) use body::Body;
pub use client::HttpClient;
pub(crate) use client::{transport_error, uri};

use crate::{ErrorKind, ProviderError};

/// The most bytes of an error body that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Time for an error body.
const ERROR_BODY_TIME: Duration = Duration::from_secs(2);

/// A moment and what passing it means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) kind: ErrorKind,
    pub(crate) limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration, kind: ErrorKind) -> Self {
        Self {
            // A limit beyond what the clock can hold is no limit: 100 years.
            at: Instant::now() + limit.min(Duration::from_secs(3_153_600_000)),
            kind,
            limit,
        }
    }

    /// The one that passes first.
    pub(crate) fn earlier(self, other: Self) -> Self {
        if other.at < self.at { other } else { self }
    }

    /// Waits for the future, but not longer than this.
    pub(crate) async fn wait<T>(self, future: impl Future<Output = T>) -> Result<T, ProviderError> {
        // A future that is always ready would be asked before the clock.
        if Instant::now() >= self.at {
            return Err(self.error());
        }
        tokio::time::timeout_at(self.at, future)
            .await
            .map_err(|_| self.error())
    }

    /// [`Deadline::wait`] for one of many futures, with the alarm that they share.
    pub(crate) async fn wait_with<T>(
        self,
        alarm: &mut Alarm,
        future: impl Future<Output = T>,
    ) -> Result<T, ProviderError> {
        if Instant::now() >= self.at {
            return Err(self.error());
        }
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => alarm.poll(self.at, cx).map(|()| Err(self.error())),
        })
        .await
    }

    fn error(self) -> ProviderError {
        let what = match self.kind {
            ErrorKind::TimeoutFirstToken => "no output came within",
            ErrorKind::TimeoutIdle => "the output stalled for",
            _ => "the turn took longer than",
        };
        ProviderError::new(self.kind, format!("{what} {} s", self.limit.as_secs_f64()))
    }
}

/// A timer for deadlines that follow each other. One that moves away leaves it as it is: it
/// rings too early once, instead of being set anew for each piece of an answer.
pub(crate) struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    pub(crate) fn new(first: Deadline) -> Self {
        Self(Box::pin(sleep_until(first.at)))
    }

    /// Ready once this moment has passed.
    fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if at < self.0.deadline() {
            self.0.as_mut().reset(at);
        }
        while self.0.as_mut().poll(cx).is_ready() {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            self.0.as_mut().reset(at);
        }
        Poll::Pending
    }
}

/// The fault of a response whose status is not a success, and its body, cut.
pub(crate) async fn status_fault(response: Response<Incoming>) -> (Fault, Vec<u8>) {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut text = Vec::new();
    // A body that breaks off, takes its time or cannot be read still has its status.
    if let Ok(mut body) = Body::new(response) {
        let read = async {
            while let Ok(Some(chunk)) = body.chunk().await {
                text.extend_from_slice(&chunk);
                if text.len() >= MAX_ERROR_BODY_BYTES {
                    text.truncate(MAX_ERROR_BODY_BYTES);
                    break;
                }
            }
        };
        let _ = timeout(ERROR_BODY_TIME, read).await;
    }
    let headers = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0.0, |since| since.as_secs_f64());
    let mut fault = Fault::from_response(status, headers, &text, now);
    if !fault.message.starts_with("HTTP ") {
        fault.message = format!("HTTP {status}: {}", fault.message);
    }
    (fault, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::time::{advance, sleep};

    fn deadline(seconds: u64) -> Deadline {
        Deadline::after(Duration::from_secs(seconds), ErrorKind::TimeoutIdle)
    }

    /// Seconds until a future that never ends was given up.
    async fn given_up(deadline: Deadline, alarm: &mut Alarm) -> u64 {
        let started = Instant::now();
        let waited = deadline.wait_with(alarm, pending::<()>()).await;
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimeoutIdle);
        started.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_that_move_are_met_to_the_second() {
        let mut alarm = Alarm::new(deadline(10));
        for _ in 0..5 {
            // Each piece comes in time and moves the end away.
            let piece = sleep(Duration::from_secs(8));
            assert!(deadline(10).wait_with(&mut alarm, piece).await.is_ok());
        }
        assert_eq!(given_up(deadline(10), &mut alarm).await, 10);
        // An alarm that has rung is of use for later ones, and for earlier ones than it was set.
        assert_eq!(given_up(deadline(100), &mut alarm).await, 100);
        let mut far = Alarm::new(deadline(1000));
        assert_eq!(given_up(deadline(3), &mut far).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_always_ready_has_a_deadline_too() {
        let first = deadline(1);
        let mut alarm = Alarm::new(first);
        assert!(first.wait_with(&mut alarm, ready(())).await.is_ok());
        advance(Duration::from_secs(2)).await;
        assert!(first.wait_with(&mut alarm, ready(())).await.is_err());
    }
}
