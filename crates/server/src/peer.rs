//! A TCP stream that can also be asked whether its peer has closed.
//!
//! hyper notices a peer's close while it handles a request only as long as nothing unread
//! waits before it: a client that sent a stray line end, or its next request, and then went
//! away would keep its turn running. So the connection's owner asks here as well.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How often a peer that sent something unread is looked at; well under the 250 ms that a lost
/// client may cost.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The stream's reading and writing half for the one task that serves it.
pub(crate) struct PeerStream(Arc<TcpStream>);

/// Watches the same stream from that task.
pub(crate) struct PeerWatch(Arc<TcpStream>);

pub(crate) fn watched(stream: TcpStream) -> (PeerStream, PeerWatch) {
    let stream = Arc::new(stream);
    (PeerStream(Arc::clone(&stream)), PeerWatch(stream))
}

impl PeerWatch {
    /// Waits until the peer has closed its sending side.
    ///
    /// The readiness is looked at without clearing it, which would make the reading half miss
    /// its wake-up. It stays set while bytes are unread, so a close behind them is no event:
    /// then it is looked at again after a while. An answer that takes no longer is still given
    /// to a client that has closed its sending side.
    pub(crate) async fn closed(&self) {
        loop {
            let ready = self.0.ready(Interest::READABLE).await;
            tokio::time::sleep(LOOK_EVERY).await;
            if ready.is_ok_and(|ready| !ready.is_read_closed()) {
                continue;
            }
            return;
        }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.read_all_there_is(buf) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl PeerStream {
    /// Reads, and notes at once that nothing more is there where the buffer was not filled:
    /// else each request would cost a second read that says so. The outer call is there for the
    /// note alone.
    fn read_all_there_is(&self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let room = buf.remaining();
        let mut taken = false;
        let read = self.0.try_io(Interest::READABLE, || {
            let n_bytes = self.0.try_read_buf(buf)?;
            taken = true;
            match n_bytes {
                n if n == 0 || n == room => Ok(()),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        if taken { Ok(()) } else { read }
    }

    fn poll_written(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write))
    }
}
