//! How many requests are worked on at one time, and how many may wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use twopass_provider::ErrorKind;

use crate::Limits;
use crate::api_error::{ApiError, ApiErrorKind};
use crate::observe::Watch;

/// The gate before everything that costs work.
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    limits: Limits,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.requests)),
            waiting: AtomicUsize::default(),
            limits,
        }
    }

    /// Lets a request through. It keeps its place until the last byte of its reply.
    pub(crate) async fn pass(&self, request: Request, next: Next) -> Response {
        match self.enter().await {
            Ok(place) => {
                if let Some(watch) = request.extensions().get::<Watch>() {
                    watch.admitted(place);
                }
                next.run(request).await
            }
            Err(error) => error.into_response(),
        }
    }

    /// A place, at once or within the time that requests may wait.
    async fn enter(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let turn = Turn::of(&self.waiting);
        if turn.n_waiting > self.limits.queue {
            return Err(self.full(Duration::ZERO));
        }
        let place = Arc::clone(&self.places).acquire_owned();
        match timeout(self.limits.queue_time, place).await {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed.
            _ => Err(self.full(self.limits.queue_time)),
        }
    }

    fn full(&self, waited: Duration) -> ApiError {
        let n = self.limits.requests;
        let message = format!(
            "the server works on {n} requests, as many as it may; waited {} s",
            waited.as_secs()
        );
        ApiError::new(ApiErrorKind::Provider(ErrorKind::QueueFull), message)
    }
}

/// One among those that wait.
struct Turn<'a> {
    waiting: &'a AtomicUsize,
    n_waiting: usize,
}

impl<'a> Turn<'a> {
    fn of(waiting: &'a AtomicUsize) -> Self {
        Self {
            waiting,
            n_waiting: waiting.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
