use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, Stream, StreamExt};
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

/// A running turn. Dropping it cancels the turn.
///
/// After [`TurnItem::Done`] or an error the stream gives `None`.
pub struct TurnStream {
    items: BoxStream<'static, Result<TurnItem, ProviderError>>,
    ended: bool,
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
        }
    }

    /// The next item. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        StreamExt::next(self).await
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// The turn's error, with what was received before it; a stream that ends without [`TurnItem::Done`] is
    /// [`ErrorKind::StreamTruncated`].
    pub async fn collect(mut self) -> Result<Reply, ProviderError> {
        let mut partial = ReplyAssembler::new();
        while let Some(item) = self.next().await {
            match item {
                Ok(TurnItem::Done(reply)) => return Ok(*reply),
                Ok(TurnItem::Event(event)) => partial.handle(&event),
                Err(error) => {
                    let stop = StopReason::Unknown("error".to_owned());
                    return Err(error.with_partial(partial.finish(stop)));
                }
            }
        }
        Err(ProviderError::new(
            ErrorKind::StreamTruncated,
            "the turn ended without its end",
        ))
    }
}

impl Stream for TurnStream {
    type Item = Result<TurnItem, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = self.items.poll_next_unpin(cx);
        if let Poll::Ready(None | Some(Err(_) | Ok(TurnItem::Done(_)))) = item {
            self.ended = true;
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
