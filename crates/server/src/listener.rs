//! The listening socket: accepts, guards and drains connections.
//!
//! HTTP/1.1 only, on hyper itself, because head deadlines, stall guards and draining belong
//! to connections. A client that closes its end makes hyper, which goes on reading while a
//! request is handled, or else [`crate::peer`] drop the handler's future or the reply's
//! stream, and with it the generation: that is how a client that went away stops its work,
//! streamed or not.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::idle::{Places, Seat};
use crate::options::check_reach;
use crate::peer::watched;
use crate::stall_guard::StallGuard;
use crate::{Error, Limits, ServerOptions, Shutdown};

/// Pause after a failed accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Accepted connections that may wait for a place.
const WITHOUT_PLACE: usize = 64;
/// Time for the last bytes once running requests were cut.
const CUT_GRACE: Duration = Duration::from_millis(500);
/// Header lines of one request.
const HEADERS_MAX: usize = 128;
/// Bytes of one request's head, and of hyper's read buffer.
const HEAD_BYTES: usize = 64 << 10;
/// A silent peer is asked after `KEEPALIVE_IDLE`, then each `KEEPALIVE_PROBE`; one that does
/// not answer for `Limits::write_stall` is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBE: Duration = Duration::from_secs(5);

/// Binds `host:port`. Refuses an address beyond loopback when there are no keys.
///
/// # Errors
/// Kind `Config`: the host is unknown, or open to others without keys. Kind `Io`: the system
/// does not give the address.
pub(crate) async fn bind(options: &ServerOptions, has_keys: bool) -> Result<TcpListener, Error> {
    let ServerOptions { host, port, .. } = options;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addrs: Vec<SocketAddr> = tokio::net::lookup_host((bare, *port))
        .await
        .map_err(|e| Error::io(format!("cannot resolve host `{host}`"), e))?
        .collect();
    if addrs.is_empty() {
        return Err(Error::config(format!("host `{host}` has no address")));
    }
    if !has_keys {
        addrs
            .iter()
            .try_for_each(|addr| check_reach(host, addr.ip()))?;
    }
    TcpListener::bind(addrs.as_slice())
        .await
        .map_err(|e| Error::io(format!("cannot listen on `{host}` port {port}"), e))
}

/// Serves until `shutdown`, then drains. Returns when no connection is left.
pub(crate) async fn run(listener: TcpListener, app: Router, limits: Limits, shutdown: &Shutdown) {
    let mut connections = JoinSet::new();
    accept_until_draining(listener, &app, limits, shutdown, &mut connections).await;
    drain(limits, shutdown, &mut connections).await;
}

async fn accept_until_draining(
    listener: TcpListener,
    app: &Router,
    limits: Limits,
    shutdown: &Shutdown,
    connections: &mut JoinSet<()>,
) {
    let places = Places::new(limits.connections);
    // Those that have a place, and a few that wait for one.
    let sockets = Arc::new(Semaphore::new(limits.connections + WITHOUT_PLACE));
    loop {
        let accept = async {
            // The semaphore is never closed; one is free sooner or later, since every state
            // of a connection has a deadline.
            let socket = Arc::clone(&sockets).acquire_owned().await.ok();
            (listener.accept().await, socket)
        };
        let (accepted, socket) = tokio::select! {
            () = shutdown.draining() => return,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let app = app.clone();
        let (shutdown, places) = (shutdown.clone(), places.clone());
        connections.spawn(async move {
            let seat = tokio::select! {
                seat = places.take() => seat,
                () = shutdown.draining() => None,
            };
            if let Some(seat) = seat {
                serve_connection(stream, app, (limits, &seat), &shutdown).await;
            }
            drop(socket);
        });
    }
}

async fn drain(limits: Limits, shutdown: &Shutdown, connections: &mut JoinSet<()>) {
    if !all_done_within(limits.drain, shutdown, connections).await {
        shutdown.cut();
        all_done_within(CUT_GRACE, shutdown, connections).await;
    }
    connections.shutdown().await;
}

async fn all_done_within(
    time: Duration,
    shutdown: &Shutdown,
    connections: &mut JoinSet<()>,
) -> bool {
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => true,
        () = shutdown.aborted() => false,
        () = tokio::time::sleep(time) => false,
    }
}

async fn serve_connection(
    stream: TcpStream,
    app: Router,
    (limits, seat): (Limits, &Seat),
    shutdown: &Shutdown,
) {
    configure(&stream, limits.write_stall);
    let (stream, peer) = watched(stream);
    let io = TokioIo::new(StallGuard::new(stream, limits.write_stall));
    let works_at = seat.clone();
    let app = app.map_request(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(works_at.works());
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(io, TowerToHyperService::new(app));
    let mut connection = pin!(connection);
    // Together: of those only what happened is asked, not each for each piece of an answer.
    let mut endings: FuturesUnordered<BoxFuture<'_, Ending>> = FuturesUnordered::from_iter([
        shutdown.draining().map(|()| Ending::Drains).boxed(),
        seat.must_leave().map(|()| Ending::MustLeave).boxed(),
        peer.closed().map(|()| Ending::PeerClosed).boxed(),
    ]);
    loop {
        tokio::select! {
            biased;
            // An error here is the client's: a broken head, a lost connection. It was answered
            // where that was possible.
            _ = connection.as_mut() => return,
            Some(ending) = endings.next() => match ending {
                // A request of which no whole head came yet is not waited for.
                Ending::Drains if seat.waits() => return,
                Ending::Drains => connection.as_mut().graceful_shutdown(),
                Ending::MustLeave | Ending::PeerClosed => return,
            },
        }
    }
}

/// What ends a connection beside its client.
enum Ending {
    /// The running request is the last one.
    Drains,
    MustLeave,
    PeerClosed,
}

/// Small writes leave at once; peers that vanished without a word are noticed.
fn configure(stream: &TcpStream, write_stall: Duration) {
    // A socket whose options cannot be set still works, only less well.
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_PROBE);
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(write_stall));
    #[cfg(not(target_os = "linux"))]
    let _ = write_stall;
}
