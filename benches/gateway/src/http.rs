//! The one way in which the mock and the floor listen: HTTP/1.1 with nodelay.

use std::convert::Infallible;
use std::future::Future;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::Failure;

/// A body, whole or in pieces. It ends with an error where the connection is to be cut.
pub(crate) type Body = UnsyncBoxBody<Bytes, Failure>;

/// A body in one piece.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    http_body_util::Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// Serves until the process is ended; prints its address once.
pub(crate) async fn serve<A, F>(port: u16, answer: A) -> Result<(), Failure>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, Failure>> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service_fn(answer.clone());
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            // A peer that goes away is no concern of a bench.
            let _ = connection.await;
        });
    }
}
