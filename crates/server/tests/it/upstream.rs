//! A real HTTP server that answers `/generate` with recorded bytes, piece by piece, as the
//! test tells it.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Upstream {
    listener: TcpListener,
    pub(crate) addr: SocketAddr,
}

/// One request that the upstream got and has not answered yet.
pub(crate) struct Call {
    stream: BufReader<TcpStream>,
    pub(crate) body: Value,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self { listener, addr }
    }

    /// The next request, read whole.
    pub(crate) async fn call(&self) -> Call {
        let mut stream = BufReader::new(self.listener.accept().await.unwrap().0);
        let mut n_bytes = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(n) = line.strip_prefix("content-length:") {
                n_bytes = n.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; n_bytes];
        stream.read_exact(&mut body).await.unwrap();
        Call {
            stream,
            body: serde_json::from_slice(&body).unwrap(),
        }
    }
}

impl Call {
    pub(crate) async fn write(&mut self, text: &str) {
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .await
            .unwrap();
    }

    /// False once the caller takes no more.
    pub(crate) async fn write_while_open(&mut self, text: &str) -> bool {
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .await
            .is_ok()
    }

    /// A whole reply, after which the connection ends.
    pub(crate) async fn answer(mut self, status: &str, headers: &str, body: &str) {
        let head = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        self.write(&head).await;
        self.write(body).await;
        self.stream.get_mut().shutdown().await.unwrap();
    }

    /// The head of an event stream that ends with the connection.
    pub(crate) async fn begin_stream(&mut self) {
        self.write(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n",
        )
        .await;
    }

    pub(crate) async fn end(mut self) {
        self.stream.get_mut().shutdown().await.unwrap();
    }

    /// Waits until the caller has closed.
    pub(crate) async fn closed(mut self) {
        let mut rest = Vec::new();
        // A reset is a close too.
        let _ = self.stream.read_to_end(&mut rest).await;
    }
}
