use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, Stream, StreamExt, empty, unfold};
use twopass_core::chat::{Event, Reply, StopReason};
use twopass_core::control::ReplyAssembler;

use crate::{ErrorKind, ProviderError};

/// One item of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnItem {
    /// A step of the turn.
    Event(Event),
    /// The end: the whole turn. Nothing follows.
    Done(Box<Reply>),
}

/// What gives out a turn's items one after the other.
pub trait TurnSource: Send + 'static {
    /// The next item; `None` after the last one. Cancel safe. Not asked again after
    /// [`TurnItem::Done`] or an error.
    fn next(&mut self) -> impl Future<Output = Option<Result<TurnItem, ProviderError>>> + Send;
}

/// A running turn. Dropping it cancels the turn.
///
/// After [`TurnItem::Done`] or an error the stream gives `None`. An error keeps what was
/// given out before it: [`ProviderError::partial`].
pub struct TurnStream {
    items: BoxStream<'static, Result<TurnItem, ProviderError>>,
    ended: bool,
    /// The entry that errors name.
    provider: Option<Arc<str>>,
    /// What was given out, for the error that may follow it.
    so_far: ReplyAssembler,
}

impl TurnStream {
    /// Wraps a backend's stream.
    #[must_use]
    pub fn new(
        items: impl Stream<Item = Result<TurnItem, ProviderError>> + Send + 'static,
    ) -> Self {
        Self {
            items: items.boxed(),
            ended: false,
            provider: None,
            so_far: ReplyAssembler::new(),
        }
    }

    /// The items of this source.
    #[must_use]
    pub fn of(source: impl TurnSource) -> Self {
        // In a box: each item moves the state into a future and back.
        Self::new(unfold(Box::new(source), |mut source| async move {
            Some((source.next().await?, source))
        }))
    }

    /// The same turn; its error names this entry.
    pub(crate) fn of_provider(mut self, name: &str) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// The next item. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        StreamExt::next(self).await
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// The turn's error; a stream that ends without [`TurnItem::Done`] is
    /// [`ErrorKind::StreamTruncated`].
    pub async fn collect(mut self) -> Result<Reply, ProviderError> {
        while let Some(item) = self.next().await {
            if let TurnItem::Done(reply) = item? {
                return Ok(*reply);
            }
        }
        let message = "the turn ended without its end";
        let error = ProviderError::new(ErrorKind::StreamTruncated, message);
        Err(self.keep_partial(error))
    }

    /// What the turn held, a place at an engine for one, is given back.
    fn end(&mut self) {
        self.ended = true;
        self.items = empty().boxed();
    }

    /// The error with what came before it. Calls are left out: whether the model meant to go
    /// on is not known.
    fn keep_partial(&mut self, error: ProviderError) -> ProviderError {
        let so_far = std::mem::take(&mut self.so_far);
        let stop_reason = StopReason::Unknown(error.kind().as_str().to_owned());
        let partial = Reply {
            tool_calls: Vec::new(),
            ..so_far.finish(stop_reason)
        };
        let is_empty = partial.content.is_empty() && partial.reasoning.is_empty();
        if is_empty || error.partial().is_some() {
            return error;
        }
        error.with_partial(partial)
    }
}

impl Stream for TurnStream {
    type Item = Result<TurnItem, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = self.items.poll_next_unpin(cx);
        match item {
            Poll::Ready(Some(Ok(TurnItem::Event(ref event)))) => self.so_far.handle(event),
            Poll::Ready(None | Some(Ok(TurnItem::Done(_)))) => self.end(),
            Poll::Ready(Some(Err(error))) => {
                self.end();
                let error = match &self.provider {
                    Some(name) => error.with_provider(name),
                    None => error,
                };
                return Poll::Ready(Some(Err(self.keep_partial(error))));
            }
            Poll::Pending => {}
        }
        item
    }
}

impl fmt::Debug for TurnStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnStream")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
