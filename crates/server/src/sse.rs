//! Replies as server-sent events: one writer for every endpoint family.
//!
//! Nothing is buffered: what the source has ready leaves as one chunk at once. While the
//! source is silent a comment goes out each `heartbeat`. Dropping the reply drops the
//! source, and that is what stops a generation whose client has gone.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use crate::Shutdown;
use crate::api_error::ApiError;

/// A comment: every reader skips it.
const HEARTBEAT: &[u8] = b": keep-alive\n\n";

/// How a family's streams go.
pub(crate) struct SsePlan {
    /// Silence after which a comment is sent.
    pub(crate) heartbeat: Duration,
    /// Ends streams when the server must go.
    pub(crate) shutdown: Shutdown,
    /// Writes an error as the family's last event.
    pub(crate) encode_error: fn(&ApiError) -> Bytes,
}

struct Running<S> {
    source: S,
    plan: SsePlan,
    next_heartbeat: Instant,
}

/// The reply whose body is the source's encoded events.
///
/// It ends with the source, with an error event when the server is cut off or when the
/// source panics.
pub(crate) fn sse_response<S>(source: S, plan: SsePlan) -> Response
where
    S: Stream<Item = Bytes> + Send + Unpin + 'static,
{
    let running = Running {
        source,
        next_heartbeat: Instant::now() + plan.heartbeat,
        plan,
    };
    let body = stream::unfold(Some(running), |running| async {
        let (bytes, running) = running?.advance().await?;
        Some((Ok::<_, Infallible>(bytes), running))
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        // nginx and its kin buffer unless told not to.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

impl<S: Stream<Item = Bytes> + Unpin> Running<S> {
    /// The next bytes, and what goes on after them; `None` at the end.
    async fn advance(mut self) -> Option<(Bytes, Option<Self>)> {
        let next = AssertUnwindSafe(self.source.next()).catch_unwind();
        let error = tokio::select! {
            biased;
            next = next => match next {
                Ok(bytes) => {
                    self.next_heartbeat = Instant::now() + self.plan.heartbeat;
                    return Some((bytes?, Some(self)));
                }
                Err(_) => ApiError::bug(),
            },
            () = self.plan.shutdown.cut_off() => {
                ApiError::shutting_down()
            }
            () = sleep_until(self.next_heartbeat) => {
                self.next_heartbeat = Instant::now() + self.plan.heartbeat;
                return Some((Bytes::from_static(HEARTBEAT), Some(self)));
            }
        };
        Some(((self.plan.encode_error)(&error), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    const BEAT: Duration = Duration::from_secs(10);

    fn plan(shutdown: &Shutdown) -> SsePlan {
        SsePlan {
            heartbeat: BEAT,
            shutdown: shutdown.clone(),
            encode_error: |e| Bytes::from(format!("[{}]", e.kind.as_str())),
        }
    }

    async fn text(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_filled_with_comments() {
        let source = stream::unfold(0, |n| async move {
            let pause = *[5, 25, 9].get(n)?;
            tokio::time::sleep(Duration::from_secs(pause)).await;
            Some((Bytes::from(format!("<{n}>")), n + 1))
        });
        let response = sse_response(source.boxed(), plan(&Shutdown::new()));
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/event-stream; charset=utf-8"
        );
        assert_eq!(
            text(response).await,
            "<0>: keep-alive\n\n: keep-alive\n\n<1><2>"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_ends_the_stream_with_an_error() {
        let shutdown = Shutdown::new();
        let source = stream::iter([Bytes::from("<0>")]).chain(stream::pending());
        let response = sse_response(source, plan(&shutdown));
        shutdown.stop();
        let cut = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            shutdown.cut();
        };
        let (text, ()) = tokio::join!(text(response), cut);
        assert_eq!(text, "<0>[shutting_down]");
    }

    #[tokio::test]
    async fn a_panic_in_the_source_becomes_an_error() {
        let source = stream::iter(0..2).map(|n| {
            assert!(n < 1, "on purpose");
            Bytes::from("<0>")
        });
        assert_eq!(
            text(sse_response(source, plan(&Shutdown::new()))).await,
            "<0>[internal]"
        );
    }
}
