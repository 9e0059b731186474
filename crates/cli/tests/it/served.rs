//! A server of given answers that runs beside the binary.

use tokio::runtime::{Builder, Runtime};
use twopass_replay::{Answer, Pace, Request, Server};

pub(crate) struct Served {
    server: Server,
    /// Dropped last: it runs the server.
    _runtime: Runtime,
}

impl Served {
    /// Plays this answer to every request.
    pub(crate) fn start(answer: Answer) -> Self {
        Self::start_all(vec![answer])
    }

    /// Plays these answers in order, the last one to every further request.
    pub(crate) fn start_all(answers: Vec<Answer>) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(Server::start(answers, Pace::Whole));
        Self {
            server: server.unwrap(),
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }
}
