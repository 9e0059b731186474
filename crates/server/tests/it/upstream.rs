//! A `/generate` server that answers piece by piece, as the test tells it.

use std::net::SocketAddr;

use serde_json::Value;
use twopass_replay::{Connection, Exchange, Listener};

pub(crate) struct Upstream {
    listener: Listener,
    pub(crate) addr: SocketAddr,
}

/// One request that the upstream got and has not answered yet.
pub(crate) struct Call {
    connection: Connection,
    pub(crate) body: Value,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = Listener::bind().await.unwrap();
        let addr = listener.address().unwrap();
        Self { listener, addr }
    }

    /// The next request, read whole.
    pub(crate) async fn call(&self) -> Call {
        let Exchange {
            request,
            connection,
        } = self.listener.exchange().await.unwrap();
        Call {
            connection,
            body: request.json(),
        }
    }
}

impl Call {
    pub(crate) async fn write(&mut self, text: &str) {
        self.connection.write(text).await.unwrap();
    }

    /// False once the caller takes no more.
    pub(crate) async fn write_while_open(&mut self, text: &str) -> bool {
        self.connection.write(text).await.is_ok()
    }

    /// A whole reply, after which the connection ends.
    pub(crate) async fn answer(mut self, status: &str, headers: &str, body: &str) {
        let head = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        self.write(&head).await;
        self.write(body).await;
        self.end().await;
    }

    /// The head of an event stream that ends with the connection.
    pub(crate) async fn begin_stream(&mut self) {
        self.connection.begin_stream().await.unwrap();
    }

    pub(crate) async fn end(mut self) {
        self.connection.close().await.unwrap();
    }

    /// Waits until the caller has closed.
    pub(crate) async fn closed(self) {
        self.connection.gone().await;
    }
}
