//! Connections that wait for a request, so that one of them can make room.
//!
//! A server has a bounded number of places. When all are taken, the connection that has
//! waited longest without a request loses its own: a client that opens connections and says
//! nothing must not keep others out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The places of a server and who waits on one of them. Clones share them.
#[derive(Clone)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// In the order in which they began to wait.
    waiting: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

impl Places {
    pub(crate) fn new(n_places: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(n_places)),
            idle: Arc::default(),
        }
    }

    /// A place, if need be that of the connection that has waited longest; when all others
    /// work, the first that becomes free. Its holder waits for its first request.
    pub(crate) async fn take(&self) -> Option<Seat> {
        let place = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let oldest = self.idle().waiting.pop_first();
                if let Some((_, leave)) = oldest {
                    leave.notify_one();
                }
                // Never closed.
                Arc::clone(&self.free).acquire_owned().await.ok()?
            }
        };
        let seat = Seat(Arc::new(Inner {
            places: self.clone(),
            leave: Arc::default(),
            number: Mutex::default(),
            _place: place,
        }));
        seat.0.wait();
        Some(seat)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place; given back when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Seat(Arc<Inner>);

struct Inner {
    places: Places,
    leave: Arc<Notify>,
    /// Its number among those that wait; `None` while a request is answered.
    number: Mutex<Option<u64>>,
    _place: OwnedSemaphorePermit,
}

impl Seat {
    /// Ends when this connection has to make room.
    pub(crate) async fn must_leave(&self) {
        self.0.leave.notified().await;
    }

    /// True if no request is being answered.
    pub(crate) fn waits(&self) -> bool {
        self.0.number().is_some()
    }

    /// A request came. Until the last clone of the answer is dropped nobody takes the place.
    pub(crate) fn works(&self) -> Working {
        self.0.stop_waiting();
        Working(Arc::new(Work(self.clone())))
    }
}

/// A request that is being answered.
#[derive(Clone)]
pub(crate) struct Working(#[expect(dead_code, reason = "it is dropped")] Arc<Work>);

struct Work(Seat);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.0.wait();
    }
}

impl Inner {
    fn wait(&self) {
        let mut idle = self.places.idle();
        let number = idle.next;
        idle.next += 1;
        idle.waiting.insert(number, Arc::clone(&self.leave));
        *self.number() = Some(number);
    }

    fn stop_waiting(&self) {
        if let Some(number) = self.number().take() {
            self.places.idle().waiting.remove(&number);
        }
    }

    fn number(&self) -> MutexGuard<'_, Option<u64>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}
