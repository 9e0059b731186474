//! A real local HTTP server that plays given bytes and keeps what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to do after the request was read.
#[derive(Debug, Clone)]
pub(crate) enum Play {
    Send(Vec<u8>),
    Wait(Duration),
    /// Send these bytes one per packet.
    Drip(Vec<u8>),
}

/// One request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) struct Server {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    closed: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Answers the n-th request with the n-th play, the last one again and again.
    pub(crate) async fn start(plays: Vec<Vec<Play>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(Mutex::new(0));
        let (asked_in, closed_in) = (Arc::clone(&asked), Arc::clone(&closed));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let play = {
                    let n: usize = asked_in.lock().unwrap().len();
                    plays[n.min(plays.len() - 1)].clone()
                };
                let (asked, closed) = (Arc::clone(&asked_in), Arc::clone(&closed_in));
                connections.spawn(async move {
                    answer(stream, play, &asked).await;
                    *closed.lock().unwrap() += 1;
                });
            }
        });
        Self {
            address,
            asked,
            closed,
            task,
        }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Connections that are over.
    pub(crate) fn n_closed(&self) -> usize {
        *self.closed.lock().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, plays: Vec<Play>, asked: &Mutex<Vec<Asked>>) {
    stream.set_nodelay(true).unwrap();
    let request = read_request(&mut stream).await;
    asked.lock().unwrap().push(request);
    for play in plays {
        let sent = match play {
            Play::Send(bytes) => stream.write_all(&bytes).await,
            Play::Wait(time) => {
                let mut byte = [0];
                // A client that goes away ends the wait.
                match tokio::time::timeout(time, stream.read(&mut byte)).await {
                    Ok(_) => return,
                    Err(_) => Ok(()),
                }
            }
            Play::Drip(bytes) => {
                for byte in bytes {
                    if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                Ok(())
            }
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut TcpStream) -> Asked {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await.unwrap_or(0);
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_lowercase()
                        .strip_prefix("content-length: ")
                        .map(str::to_owned)
                })
                .and_then(|value| value.parse::<usize>().ok())
                .unwrap_or(0);
            if body.len() >= length {
                return Asked {
                    head: head.to_owned(),
                    body: body.to_owned(),
                };
            }
        }
        if n == 0 {
            return Asked::default();
        }
    }
}

/// A response of this status, content type and body.
pub(crate) fn response(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head of a response whose body ends with the connection.
pub(crate) fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n\r\n".to_vec()
}
