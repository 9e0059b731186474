//! The least that a gateway can be: a proxy on hyper that reads and prints each JSON body and
//! each event of a stream, and knows nothing of what they mean.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::Failure;
use crate::http::{Body, whole};

#[derive(Clone)]
pub(crate) struct Floor {
    client: Client<HttpConnector, Full<Bytes>>,
    upstream: String,
}

impl Floor {
    pub(crate) fn new(upstream: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            upstream: upstream.to_owned(),
        }
    }

    pub(crate) async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let (parts, body) = request.into_parts();
        let body = reprinted(&body.collect().await?.to_bytes())?;
        let uri: Uri = format!("http://{}{}", self.upstream, parts.uri.path()).parse()?;
        let outgoing = Request::builder()
            .method(parts.method)
            .uri(uri)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let (parts, body) = self.client.request(outgoing).await?.into_parts();
        let is_stream =
            parts.headers.get(CONTENT_TYPE) == Some(&HeaderValue::from_static("text/event-stream"));
        let body = if is_stream {
            StreamBody::new(events(body).boxed()).boxed_unsync()
        } else {
            whole(reprinted(&body.collect().await?.to_bytes())?)
        };
        let mut response = Response::new(body);
        *response.status_mut() = parts.status;
        if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
            response.headers_mut().insert(CONTENT_TYPE, kind.clone());
        }
        Ok(response)
    }
}

fn reprinted(json: &[u8]) -> Result<Bytes, Failure> {
    let value: Value = serde_json::from_slice(json)?;
    Ok(serde_json::to_vec(&value)?.into())
}

/// The events of a stream, each read and printed, all that came at once in one piece.
fn events(body: Incoming) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Failure>> {
    stream::unfold(
        (body, BytesMut::new()),
        |(mut body, mut pending)| async move {
            loop {
                let frame = match body.frame().await? {
                    Ok(frame) => frame,
                    Err(error) => return Some((Err(error.into()), (body, pending))),
                };
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                pending.extend_from_slice(data);
                match printed(&mut pending) {
                    Ok(out) if out.is_empty() => {}
                    Ok(out) => return Some((Ok(Frame::data(out.into())), (body, pending))),
                    Err(error) => return Some((Err(error), (body, pending))),
                }
            }
        },
    )
}

fn printed(pending: &mut BytesMut) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    while let Some(end) = pending.windows(2).position(|pair| pair == b"\n\n") {
        let event = pending.split_to(end + 2);
        let Some(data) = event.trim_ascii().strip_prefix(b"data: ") else {
            continue;
        };
        out.extend_from_slice(b"data: ");
        if data == b"[DONE]" {
            out.extend_from_slice(data);
        } else {
            let value: Value = serde_json::from_slice(data)?;
            serde_json::to_writer(&mut out, &value)?;
        }
        out.extend_from_slice(b"\n\n");
    }
    Ok(out)
}
