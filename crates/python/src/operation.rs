//! Work that runs while Python does something else, and what comes of it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyString;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use twopass_provider::{Invocation, ProviderError};

use crate::error::exception;
use crate::runtime::runtime;

/// Items that may lie ready; a reader that is slower than that slows the work.
const QUEUE_ITEMS: usize = 64;
/// How long a waiting thread may go without looking at signals (Ctrl-C).
const SIGNAL_POLL: Duration = Duration::from_millis(50);

/// One thing that an [`Operation`] gives.
pub(crate) enum Item {
    /// An event of a turn: its name, and its text or JSON.
    Event(&'static str, String),
    /// The two texts of `invoke`.
    Invocation(Invocation),
    /// One vector for each text.
    Vectors(Vec<Vec<f32>>),
    /// Tokens of a prompt, if the backend can count them.
    Count(Option<u64>),
}

impl Item {
    fn into_python(self, py: Python<'_>) -> PyResult<(Bound<'_, PyString>, Bound<'_, PyAny>)> {
        let (name, value) = match self {
            Self::Event(name, text) => (name, PyString::new(py, &text).into_any()),
            Self::Invocation(texts) => {
                let pair = (texts.response, texts.thinking);
                ("invocation", pair.into_pyobject(py)?.into_any())
            }
            Self::Vectors(vectors) => ("vectors", vectors.into_pyobject(py)?.into_any()),
            Self::Count(count) => ("count", count.into_pyobject(py)?.into_any()),
        };
        Ok((PyString::intern(py, name), value))
    }
}

type Received = Option<Result<Item, ProviderError>>;

/// Where the work puts what it has; it ends when nobody takes it.
pub(crate) type Outlet = mpsc::Sender<Result<Item, ProviderError>>;

/// Work that was started: a turn, vectors, a count.
///
/// Closing or dropping it cancels the work: an engine in this process frees its place at its
/// next step, a connection is closed.
#[pyclass(frozen, module = "twopass._native")]
pub(crate) struct Operation {
    items: Arc<Mutex<mpsc::Receiver<Result<Item, ProviderError>>>>,
    work: AbortHandle,
}

impl Operation {
    /// Starts work that puts items into its outlet; an error is its last item.
    ///
    /// # Errors
    /// There are no threads to run it.
    pub(crate) fn start<F>(work: impl FnOnce(Outlet) -> F) -> Result<Self, ProviderError>
    where
        F: Future<Output = Result<(), ProviderError>> + Send + 'static,
    {
        let (outlet, items) = mpsc::channel(QUEUE_ITEMS);
        let work = work(outlet.clone());
        let task = runtime()?.spawn(async move {
            if let Err(error) = work.await {
                // Nobody waits for it: then nobody needs it.
                let _ = outlet.send(Err(error)).await;
            }
        });
        Ok(Self {
            items: Arc::new(Mutex::new(items)),
            work: task.abort_handle(),
        })
    }
}

#[pymethods]
impl Operation {
    /// The next item, or None after the last. Waits without the interpreter's lock and looks
    /// at signals meanwhile.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            let waited = py.detach(|| {
                let runtime = runtime()?;
                let next = async { self.items.lock().await.recv().await };
                Ok(runtime.block_on(async { timeout(SIGNAL_POLL, next).await }))
            });
            match waited.map_err(|error| exception(py, &error))? {
                Ok(received) => return item(py, received),
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// What lies ready: `(True, item)`, after the last item `(True, None)`; `(False, None)` if
    /// one would have to wait.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<(bool, Option<Bound<'py, PyAny>>)> {
        let Ok(mut items) = self.items.try_lock() else {
            return Ok((false, None));
        };
        match items.try_recv() {
            Ok(received) => Ok((true, item(py, Some(received))?)),
            Err(mpsc::error::TryRecvError::Disconnected) => Ok((true, None)),
            Err(mpsc::error::TryRecvError::Empty) => Ok((false, None)),
        }
    }

    /// Calls `notify(item, error)` from another thread once there is a next item; both are
    /// None after the last.
    fn next_soon(&self, py: Python<'_>, notify: Py<PyAny>) -> PyResult<()> {
        let items = Arc::clone(&self.items);
        let runtime = runtime().map_err(|error| exception(py, &error))?;
        runtime.spawn(async move {
            let received = items.lock().await.recv().await;
            // None: the interpreter is about to end.
            let _ = Python::try_attach(|py| {
                let called = match item(py, received) {
                    Ok(item) => notify.call1(py, (item, py.None())),
                    Err(error) => notify.call1(py, (py.None(), error.into_value(py))),
                };
                if let Err(error) = called {
                    error.write_unraisable(py, None);
                }
                drop(notify);
            });
        });
        Ok(())
    }

    /// Cancels what is left of the work. Harmless after its end.
    fn close(&self) {
        self.work.abort();
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.work.abort();
    }
}

fn item(py: Python<'_>, received: Received) -> PyResult<Option<Bound<'_, PyAny>>> {
    match received {
        None => Ok(None),
        Some(Ok(item)) => {
            let pair = item.into_python(py)?.into_pyobject(py)?;
            Ok(Some(pair.into_any()))
        }
        Some(Err(error)) => Err(exception(py, &error)),
    }
}
