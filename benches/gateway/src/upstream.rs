//! A model service with fixed times: Chat Completions, whole or streamed.
//!
//! What it does is said by the request's `user` field, so that any gateway can stand between:
//! `tokens=N` in the answer, `cut` drops the connection in the middle, `limit` answers 429.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::Failure;
use crate::http::{Body, whole};

/// From the request to the first token of a stream.
pub(crate) const FIRST_TOKEN: Duration = Duration::from_millis(20);
/// From one token of a stream to the next: 200 tokens a second.
pub(crate) const PER_TOKEN: Duration = Duration::from_millis(5);
/// What a limited request is told to wait, in seconds.
pub(crate) const RETRY_AFTER: &str = "7";

#[derive(Deserialize)]
struct Ask {
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    user: String,
}

pub(crate) async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    if path.ends_with("/models") {
        let list = json!({"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "mock"}]});
        return Ok(Response::builder()
            .header("content-type", "application/json")
            .body(whole(list.to_string()))?);
    }
    if !path.ends_with("/chat/completions") {
        return Ok(Response::new(whole("ok")));
    }
    let ask: Ask = serde_json::from_slice(&body)?;
    if ask.user == "limit" {
        let error = json!({"error": {"message": "slow down", "type": "rate_limit", "code": "rate_limit_exceeded"}});
        return Ok(Response::builder()
            .status(429)
            .header("content-type", "application/json")
            .header("retry-after", RETRY_AFTER)
            .body(whole(error.to_string()))?);
    }
    let tokens = ask.user.strip_prefix("tokens=");
    let n_tokens: usize = tokens.map_or(Ok(16), str::parse)?;
    if ask.stream {
        return streamed(n_tokens, ask.user == "cut");
    }
    let reply = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "word ".repeat(n_tokens)},
        }],
        "usage": {"prompt_tokens": 12, "completion_tokens": n_tokens, "total_tokens": 12 + n_tokens},
    });
    Ok(Response::builder()
        .header("content-type", "application/json")
        .body(whole(reply.to_string()))?)
}

fn streamed(n_tokens: usize, cut: bool) -> Result<Response<Body>, Failure> {
    let start = Instant::now() + FIRST_TOKEN;
    let events = stream::iter(0..=n_tokens + 1).then(move |idx| async move {
        let step = u32::try_from(idx.min(n_tokens)).unwrap_or(u32::MAX);
        sleep_until(start + PER_TOKEN * step).await;
        if cut && idx == n_tokens / 2 {
            return Err(Failure::from("cut"));
        }
        Ok(Frame::data(event(idx, n_tokens)))
    });
    Ok(Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(events.boxed()).boxed_unsync())?)
}

/// One event of the stream: the tokens, the end, the marker.
fn event(idx: usize, n_tokens: usize) -> Bytes {
    let chunk = |delta, finish| {
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    if idx < n_tokens {
        chunk(json!({"content": format!("w{idx} ")}), json!(null))
    } else if idx == n_tokens {
        chunk(json!({}), json!("stop"))
    } else {
        Bytes::from_static(b"data: [DONE]\n\n")
    }
}
