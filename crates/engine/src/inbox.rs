//! The way from callers to the engine thread: a bounded queue and a bell.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::stream::Sender;
use crate::turn::Turn;
use crate::{Error, ErrorKind};

/// A request that waits for a slot.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) turn: Turn,
    pub(crate) sender: Sender,
}

/// What a waiting engine thread wakes up for.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    bell: Condvar,
    /// Most jobs that run and wait.
    limit: usize,
    /// Interrupts the running decode.
    abort: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Jobs that run and wait.
    n_open: usize,
    has_rung: bool,
    is_stopped: bool,
}

impl Inbox {
    pub(crate) fn new(limit: usize, abort: Arc<AtomicBool>) -> Self {
        Self {
            state: Mutex::default(),
            bell: Condvar::new(),
            limit,
            abort,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, or says that the queue is full or the engine gone.
    ///
    /// Those that run count too: a burst that there is room for comes faster than the engine
    /// takes it up.
    pub(crate) fn push(&self, job: Job) -> Result<(), Error> {
        let mut state = self.lock();
        if state.is_stopped {
            return Err(Error::new(ErrorKind::Stopped, "the engine has stopped"));
        }
        if state.n_open >= self.limit {
            return Err(Error::new(
                ErrorKind::QueueFull,
                format!(
                    "{} requests run or wait already, try again later",
                    self.limit
                ),
            ));
        }
        state.n_open += 1;
        job.sender.hold_place();
        state.jobs.push_back(job);
        state.has_rung = true;
        self.bell.notify_one();
        Ok(())
    }

    /// Takes back the place of one that has ended.
    pub(crate) fn give_back(&self) {
        self.lock().n_open -= 1;
    }

    /// Wakes the engine thread.
    pub(crate) fn wake(&self) {
        self.lock().has_rung = true;
        self.bell.notify_one();
    }

    /// Wakes the engine thread to look for cancelled streams.
    pub(crate) fn wake_for_cancel(&self, aborts_step: bool) {
        if aborts_step {
            self.abort.store(true, Ordering::Release);
        }
        self.wake();
    }

    /// Refuses new jobs and makes the engine thread end.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.abort.store(true, Ordering::Release);
        self.wake();
    }

    /// True once the engine shall end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Number of jobs that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Takes the oldest job if `fits` says so; a job that does not fit keeps its place.
    pub(crate) fn pop_if(&self, fits: impl FnOnce(&Turn) -> bool) -> Option<Job> {
        let mut state = self.lock();
        let job = state.jobs.front()?;
        if fits(&job.turn) {
            state.jobs.pop_front()
        } else {
            None
        }
    }

    /// Takes every job that was cancelled while it waited, or all of them.
    pub(crate) fn drain(&self, all: bool) -> Vec<Job> {
        let mut state = self.lock();
        let jobs = std::mem::take(&mut state.jobs);
        let (gone, kept): (Vec<_>, _) = jobs
            .into_iter()
            .partition(|job| all || job.sender.is_cancelled());
        state.jobs = kept.into_iter().collect::<VecDeque<_>>();
        gone
    }

    /// Sleeps until somebody rings.
    pub(crate) fn wait(&self) {
        let is_quiet = |state: &mut State| !state.has_rung && !state.is_stopped;
        let mut state = self
            .bell
            .wait_while(self.lock(), is_quiet)
            .unwrap_or_else(PoisonError::into_inner);
        state.has_rung = false;
    }

    /// As [`Self::wait`], for so long at most; false if nobody rang.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        let is_quiet = |state: &mut State| !state.has_rung && !state.is_stopped;
        let (mut state, slept) = self
            .bell
            .wait_timeout_while(self.lock(), time, is_quiet)
            .unwrap_or_else(PoisonError::into_inner);
        state.has_rung = false;
        !slept.timed_out()
    }
}
