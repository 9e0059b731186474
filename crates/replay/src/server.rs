use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{JoinHandle, JoinSet};

use crate::{Answer, Connection, Listener, Request};

/// How the bytes leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each step in one write.
    Whole,
    /// One byte per packet, head included.
    OneByte,
}

/// A server that plays answers in the order in which requests come, the last one again and
/// again. Dropping it closes its port and all connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<Request>,
    n_ended: usize,
}

impl Server {
    /// Starts to listen on a free port.
    ///
    /// # Errors
    /// There is no free port, or no answer to play.
    pub async fn start(answers: Vec<Answer>, pace: Pace) -> io::Result<Self> {
        if answers.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "there is no answer to play",
            ));
        }
        let listener = Listener::bind().await?;
        let address = listener.address()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let script = Script {
            answers: Arc::new(answers),
            pace,
            seen: Arc::clone(&seen),
        };
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok(connection) = listener.accept().await {
                connections.spawn(script.clone().serve(connection));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            seen,
            task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.seen).requests.clone()
    }

    /// Connections that are over.
    #[must_use]
    pub fn n_ended(&self) -> usize {
        lock(&self.seen).n_ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Script {
    answers: Arc<Vec<Answer>>,
    pace: Pace,
    seen: Arc<Mutex<Seen>>,
}

impl Script {
    async fn serve(self, mut connection: Connection) {
        // A client that goes away, or bytes that are no HTTP, end the connection.
        while let Ok(Some(request)) = connection.read_request().await {
            let idx = {
                let mut seen = lock(&self.seen);
                seen.requests.push(request);
                (seen.requests.len() - 1).min(self.answers.len() - 1)
            };
            let played = connection.play(&self.answers[idx], self.pace).await;
            if !played.is_ok_and(|keeps| keeps) {
                break;
            }
        }
        drop(connection);
        lock(&self.seen).n_ended += 1;
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // What was counted stays true after a panic elsewhere.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
