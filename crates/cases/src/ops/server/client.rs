//! One HTTP exchange, which may end early.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A request to send.
pub(super) struct Sent {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// When the client goes away, if it does.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leave {
    pub(super) after_events: Option<u64>,
    pub(super) after: Option<Duration>,
}

/// What came back, up to the end or to the client's leaving.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// 0 if the client left before the head.
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// When the client left.
    pub(super) left: Option<Instant>,
}

pub(super) async fn exchange(
    address: SocketAddr,
    request: &Sent,
    leave: Leave,
) -> Result<Reply, String> {
    let mut reply = Reply::default();
    let read = read(address, request, leave.after_events, &mut reply);
    let left = match leave.after {
        None => read.await?,
        Some(after) => match tokio::time::timeout(after, read).await {
            Ok(ended) => ended?,
            Err(_) => true,
        },
    };
    reply.left = left.then(Instant::now);
    Ok(reply)
}

/// Reads into `reply`; true if the client left after so many events. The connection closes
/// when the future ends or is dropped.
async fn read(
    address: SocketAddr,
    request: &Sent,
    n_events: Option<u64>,
    reply: &mut Reply,
) -> Result<bool, String> {
    let text =
        |error: &dyn std::fmt::Display| format!("{} {}: {error}", request.method, request.path);
    let stream = TcpStream::connect(address).await.map_err(|e| text(&e))?;
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| text(&e))?;
    let mut head = Request::builder()
        .method(request.method.as_str())
        .uri(request.path.as_str())
        .header("host", "localhost");
    for (name, value) in &request.headers {
        head = head.header(name, value);
    }
    let body = Full::new(Bytes::from(request.body.clone()));
    let outgoing = head.body(body).map_err(|e| text(&e))?;
    let answer = async {
        let response = sender.send_request(outgoing).await.map_err(|e| text(&e))?;
        take(response, n_events, reply).await.map_err(|e| text(&e))
    };
    // The connection only ends by itself when the answer has.
    tokio::select! {
        answered = answer => answered,
        Err(error) = connection => Err(text(&error)),
    }
}

async fn take(
    response: Response<Incoming>,
    n_events: Option<u64>,
    reply: &mut Reply,
) -> Result<bool, hyper::Error> {
    reply.status = response.status().as_u16();
    let headers = response.headers().iter();
    reply.headers = headers
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            reply.body.extend_from_slice(data);
        }
        let seen = reply.body.windows(2).filter(|pair| pair == b"\n\n").count() as u64;
        if n_events.is_some_and(|wanted| seen >= wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}
