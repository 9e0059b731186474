//! Turns as server-sent events: one writer for every face.
//!
//! Nothing is buffered: what the turns have ready leaves as one chunk at once. While they are
//! silent a sign of life goes out each `heartbeat`. Dropping the reply drops the turns, and
//! that is what stops a generation whose client has gone.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use twopass_core::chat::Reply;
use twopass_provider::{ErrorKind, TurnItem};

use crate::Shutdown;
use crate::api_error::{ApiError, ApiErrorKind};
use crate::faces::Encoder;
use crate::observe::Watch;

/// A comment: every reader skips it.
const HEARTBEAT: &str = ": keep-alive\n\n";
/// Events that are ready together leave together, up to about this many bytes.
const CHUNK_BYTES: usize = 16 << 10;

/// How streams go.
pub(crate) struct SsePlan {
    /// Silence after which a sign of life is sent.
    pub(crate) heartbeat: Duration,
    /// Ends streams when the server must go.
    pub(crate) shutdown: Shutdown,
    /// Turns that are to end.
    pub(crate) n_turns: usize,
    /// Where it is noted how they go.
    pub(crate) watch: Watch,
    /// Keeps the whole answer before its end is told, if it is to be kept.
    pub(crate) keep: Option<Keep>,
}

/// Takes a whole answer as it was written.
pub(crate) type Keep =
    Box<dyn Fn(String) -> BoxFuture<'static, Result<(), ApiError>> + Send + Sync>;

/// An item of the turn with this number.
pub(crate) type Numbered = (usize, Result<TurnItem, ApiError>);

struct Running<S> {
    turns: S,
    encoder: Box<dyn Encoder>,
    plan: SsePlan,
    next_heartbeat: Instant,
    /// Rings then or before: it is not set anew for each piece.
    alarm: Pin<Box<Sleep>>,
    cut_off: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// The reply whose body is the turns' encoded events.
///
/// It ends when all turns have, and with an error event when one of them fails or panics, or
/// when the server is cut off.
pub(crate) fn sse_response<S>(turns: S, encoder: Box<dyn Encoder>, plan: SsePlan) -> Response
where
    S: Stream<Item = Numbered> + Send + Unpin + 'static,
{
    // In a box: each chunk moves the state into a future and back.
    let next_heartbeat = Instant::now() + plan.heartbeat;
    let running = Box::new(Running {
        turns,
        encoder,
        next_heartbeat,
        alarm: Box::pin(sleep_until(next_heartbeat)),
        cut_off: Box::pin(plan.shutdown.cut_off()),
        plan,
    });
    let body = stream::unfold(Some(running), |running| async {
        let (text, running) = running?.advance().await;
        Some((Ok::<_, Infallible>(Bytes::from(text)), running))
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

impl<S: Stream<Item = Numbered> + Unpin> Running<S> {
    /// The next bytes, and what goes on after them.
    async fn advance(mut self: Box<Self>) -> (String, Option<Box<Self>>) {
        let mut out = String::new();
        loop {
            let next = AssertUnwindSafe(self.turns.next()).catch_unwind();
            let item = if out.is_empty() {
                tokio::select! {
                    biased;
                    next = next => next,
                    () = &mut self.cut_off => {
                        return self.fail(&ApiError::shutting_down(), out);
                    }
                    () = &mut self.alarm => {
                        let is_due = self.next_heartbeat <= Instant::now();
                        if is_due {
                            self.beat(&mut out);
                        }
                        let next_heartbeat = self.next_heartbeat;
                        self.alarm.as_mut().reset(next_heartbeat);
                        match is_due {
                            true => return (out, Some(self)),
                            false => continue,
                        }
                    }
                }
            } else if out.len() >= CHUNK_BYTES {
                return (out, Some(self));
            } else {
                match next.now_or_never() {
                    Some(next) => next,
                    None => return (out, Some(self)),
                }
            };
            let error = match item {
                Ok(Some((choice, Ok(TurnItem::Event(event))))) => {
                    self.plan.watch.output();
                    self.encoder.event(choice, &event, &mut out);
                    None
                }
                Ok(Some((choice, Ok(TurnItem::Done(reply))))) => {
                    self.plan.watch.answered(&reply);
                    match self.end(choice, &reply, &mut out).await {
                        Err(error) => Some(error),
                        Ok(()) if self.plan.n_turns == 0 => return (out, None),
                        Ok(()) => None,
                    }
                }
                Ok(Some((_, Err(error)))) => Some(error),
                Ok(None) => {
                    let kind = ApiErrorKind::Provider(ErrorKind::StreamTruncated);
                    Some(ApiError::new(kind, "the turn ended without its end"))
                }
                Err(_) => Some(ApiError::bug()),
            };
            if let Some(error) = error {
                return self.fail(&error, out);
            }
            if !out.is_empty() {
                self.next_heartbeat = Instant::now() + self.plan.heartbeat;
            }
        }
    }

    /// Ends a turn. Its end is not told if it cannot be kept.
    async fn end(
        &mut self,
        choice: usize,
        reply: &Reply,
        out: &mut String,
    ) -> Result<(), ApiError> {
        let before = out.len();
        self.encoder.done(choice, reply, out);
        if let (Some(keep), Some(whole)) = (&self.plan.keep, self.encoder.whole())
            && let Err(error) = keep(whole).await
        {
            out.truncate(before);
            return Err(error);
        }
        self.plan.n_turns = self.plan.n_turns.saturating_sub(1);
        Ok(())
    }

    fn fail(mut self, error: &ApiError, mut out: String) -> (String, Option<Box<Self>>) {
        self.plan.watch.failed(error.kind);
        self.encoder.error(&error.to_event(), &mut out);
        (out, None)
    }

    fn beat(&mut self, out: &mut String) {
        self.next_heartbeat = Instant::now() + self.plan.heartbeat;
        self.encoder.alive(out);
        if out.is_empty() {
            out.push_str(HEARTBEAT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use twopass_core::chat::{Event, Reply};
    use twopass_wire::generate::StreamEncoder;

    const BEAT: Duration = Duration::from_secs(10);

    fn reply<S>(turns: S, shutdown: &Shutdown) -> Response
    where
        S: Stream<Item = Numbered> + Send + Unpin + 'static,
    {
        let plan = SsePlan {
            heartbeat: BEAT,
            shutdown: shutdown.clone(),
            n_turns: 1,
            watch: Watch::new(&axum::http::Method::POST, "/test".to_owned()),
            keep: None,
        };
        sse_response(turns, Box::new(StreamEncoder::new()), plan)
    }

    fn text_item(text: &str) -> Numbered {
        (0, Ok(TurnItem::Event(Event::TextDelta(text.to_owned()))))
    }

    /// What came: a letter for each text, `.` for each sign of life, the kind of an error.
    async fn shown(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let events = text.split("\n\n").map(|event| match event {
            event if event.starts_with(':') => ".".to_owned(),
            event if event.starts_with("event: done") => "done".to_owned(),
            event => event
                .split_once("\"kind\":\"")
                .or_else(|| event.split_once("\"text\":\""))
                .map_or("", |(_, rest)| rest.split('"').next().unwrap_or_default())
                .to_owned(),
        });
        events.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_filled_with_comments() {
        let turns = stream::unfold(0, |n| async move {
            let pause = *[5, 25, 9].get(n)?;
            tokio::time::sleep(Duration::from_secs(pause)).await;
            Some((text_item(["a", "b", "c"][n]), n + 1))
        });
        let done = (0, Ok(TurnItem::Done(Box::<Reply>::default())));
        let response = reply(turns.chain(stream::iter([done])).boxed(), &Shutdown::new());
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/event-stream; charset=utf-8"
        );
        assert_eq!(shown(response).await, "a..bcdone");
    }

    #[tokio::test]
    async fn a_stream_without_its_end_is_an_error() {
        let response = reply(stream::iter([text_item("a")]), &Shutdown::new());
        assert_eq!(shown(response).await, "astream_truncated");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_ends_the_stream_with_an_error() {
        let shutdown = Shutdown::new();
        let turns = stream::iter([text_item("a")]).chain(stream::pending());
        let response = reply(turns, &shutdown);
        shutdown.stop();
        let cut = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            shutdown.cut();
        };
        let (shown, ()) = tokio::join!(shown(response), cut);
        assert_eq!(shown, "ashutting_down");
    }

    #[tokio::test]
    async fn a_panic_in_the_source_becomes_an_error() {
        let turns = stream::iter(0..2).map(|n| {
            assert!(n < 1, "on purpose");
            text_item("a")
        });
        assert_eq!(shown(reply(turns, &Shutdown::new())).await, "ainternal");
    }
}
