use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Error;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::Closing;

/// A reply's body that knows whether it was taken to its end.
pub(super) struct Watched {
    body: Body,
    closing: Closing,
}

impl Watched {
    pub(super) fn new(body: Body, mut closing: Closing) -> Self {
        closing.complete = body.is_end_stream();
        Self { body, closing }
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.closing.complete = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
