//! Requests as a client sends them, and how long each took.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use crate::Failure;

/// Where requests go.
#[derive(Clone)]
pub(crate) struct Target {
    /// `host:port`
    pub(crate) address: String,
    /// The model's name there.
    pub(crate) model: String,
}

/// One kind of load.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Bytes of the user's message.
    pub(crate) prompt_bytes: usize,
    /// Tokens of the answer.
    pub(crate) tokens: usize,
    pub(crate) streamed: bool,
    /// Requests at one time.
    pub(crate) at_once: usize,
    /// Requests of one round.
    pub(crate) requests: usize,
}

/// What the requests of a round took.
#[derive(Default)]
pub(crate) struct Times {
    /// Until the first token (of a whole answer: until its end), sorted.
    pub(crate) first: Vec<Duration>,
    pub(crate) wall: Duration,
    /// Tokens that came in streams.
    pub(crate) tokens: usize,
}

impl Times {
    /// The time that this share of the requests did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let last = self.first.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        self.first.get(at).copied().unwrap_or_default()
    }
}

/// Runs one round.
///
/// # Errors
/// A connection failed, or an answer was not what the upstream said.
pub(crate) async fn run(target: &Target, shape: Shape) -> Result<Times, Failure> {
    let body = Bytes::from(body(target, shape));
    let left = Arc::new(AtomicUsize::new(shape.requests));
    let started = Instant::now();
    let workers: Vec<_> = (0..shape.at_once)
        .map(|_| {
            tokio::spawn(worker(
                target.address.clone(),
                body.clone(),
                shape,
                left.clone(),
            ))
        })
        .collect();
    let mut times = Times::default();
    for worker in workers {
        let (first, tokens) = worker.await??;
        times.first.extend(first);
        times.tokens += tokens;
    }
    times.wall = started.elapsed();
    times.first.sort_unstable();
    Ok(times)
}

fn body(target: &Target, shape: Shape) -> String {
    let prompt: String = "some words of a prompt, "
        .chars()
        .cycle()
        .take(shape.prompt_bytes)
        .collect();
    json!({
        "model": target.model,
        "messages": [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": prompt},
        ],
        "temperature": 0.2,
        "max_tokens": 256,
        "stream": shape.streamed,
        "user": format!("tokens={}", shape.tokens),
    })
    .to_string()
}

/// One connection that sends until all requests are taken.
async fn worker(
    address: String,
    body: Bytes,
    shape: Shape,
    left: Arc<AtomicUsize>,
) -> Result<(Vec<Duration>, usize), Failure> {
    let mut sender = connect(&address).await?;
    let mut first = Vec::new();
    let mut tokens = 0;
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    while take().is_ok() {
        let started = Instant::now();
        let mut reply = send(&mut sender, &address, body.clone()).await?.into_body();
        let mut text = Vec::new();
        let mut first_at = None;
        while let Some(frame) = reply.frame().await {
            text.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
            if first_at.is_none() && (!shape.streamed || has_token(&text)) {
                first_at = Some(started.elapsed());
            }
        }
        let at = if shape.streamed {
            first_at
        } else {
            Some(started.elapsed())
        };
        first.push(at.ok_or("an answer without a token")?);
        tokens += check(&text, shape)?;
    }
    Ok((first, tokens))
}

/// A connection for one request after another.
pub(crate) async fn connect(address: &str) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends one chat request.
pub(crate) async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    address: &str,
    body: Bytes,
) -> Result<hyper::Response<hyper::body::Incoming>, Failure> {
    sender.ready().await?;
    let request = Request::post("/v1/chat/completions")
        .header("host", address)
        .header("content-type", "application/json")
        .header("authorization", "Bearer sk-none")
        .body(Full::new(body))?;
    Ok(sender.send_request(request).await?)
}

fn has_token(text: &[u8]) -> bool {
    memfind(text, b"w0")
}

fn memfind(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

/// Every answer is complete; returns the tokens of a stream.
fn check(text: &[u8], shape: Shape) -> Result<usize, Failure> {
    let last = if shape.streamed {
        format!("w{}", shape.tokens - 1)
    } else {
        "word word ".to_owned()
    };
    if memfind(text, last.as_bytes()) {
        return Ok(if shape.streamed { shape.tokens } else { 0 });
    }
    let shown = String::from_utf8_lossy(&text[..text.len().min(400)]);
    Err(format!("an answer misses its end: {shown}").into())
}
