//! `POST /generate`: the native contract, whole or as events (rows F1-F6).

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, TryFutureExt, stream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use twopass_core::chat::{BadRequest, Request};
use twopass_provider::{CallOptions, ErrorKind, Provider, ProviderError, TurnItem, TurnStream};
use twopass_wire::generate::{GenerateRequest, StreamEncoder, encode_reply};

use super::App;
use crate::api_error::{ApiError, ApiErrorKind};
use crate::body::JsonBytes;
use crate::sse::{SsePlan, sse_response};

/// Bodies from here on are read on a thread of their own: parsing takes about 2 ms per MB.
const LARGE_BODY_BYTES: usize = 256 << 10;

/// Cancel points: everything after the body. A client that closes its connection makes the
/// listener drop this future, or the stream that it returned, and with it the turn.
pub(super) async fn generate(
    State(app): State<App>,
    JsonBytes(body): JsonBytes,
) -> Result<Response, ApiError> {
    let wire = decode(body).await?;
    let provider = app.models().pick(wire.model.as_deref())?;
    let streamed = wire.stream;
    let request = plan(provider, wire)?;
    if !streamed {
        let reply = provider.generate(request).await?;
        return Ok(super::json_text(encode_reply(&reply)));
    }
    let heartbeat = app.0.limits.heartbeat;
    let turn = open(provider.clone(), request, heartbeat).await?;
    let plan = SsePlan {
        heartbeat,
        shutdown: app.0.shutdown.clone(),
        encode_error,
    };
    Ok(sse_response(
        encode_turn(turn, provider.name()).boxed(),
        plan,
    ))
}

/// Opens a turn. What fails within `patience` is a status; a turn that has said nothing by
/// then begins as a silent stream, so that proxies see life, and may fail as its last event.
async fn open(
    provider: Provider,
    request: Request,
    patience: Duration,
) -> Result<TurnStream, ProviderError> {
    let mut opening = async move { provider.stream(request).await }.boxed();
    match timeout(patience, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => Ok(TurnStream::new(opening.try_flatten_stream())),
    }
}

async fn decode(body: Bytes) -> Result<GenerateRequest, ApiError> {
    let request = if body.len() < LARGE_BODY_BYTES {
        GenerateRequest::from_json(&body)
    } else {
        let parsed = spawn_blocking(move || GenerateRequest::from_json(&body)).await;
        parsed.map_err(|_| ApiError::bug())?
    };
    Ok(request?)
}

fn plan(provider: &Provider, wire: GenerateRequest) -> Result<Request, BadRequest> {
    let (messages, options) = CallOptions::from_generate(wire);
    provider.request(messages, options)
}

/// The turn's events as bytes: one chunk per event that says something, an error as the
/// last event of a turn that failed.
fn encode_turn(turn: TurnStream, provider: &str) -> impl Stream<Item = Bytes> + Send + use<> {
    let state = Some((turn, StreamEncoder::new(), provider.to_owned()));
    stream::unfold(state, |state| async {
        let (mut turn, mut encoder, provider) = state?;
        let mut out = String::new();
        let ended = loop {
            match turn.next().await {
                Some(Ok(TurnItem::Event(event))) => {
                    encoder.encode(&event, &mut out);
                    if !out.is_empty() {
                        break false;
                    }
                }
                Some(Ok(TurnItem::Done(reply))) => {
                    encoder.encode_done(&reply, &mut out);
                    break true;
                }
                Some(Err(error)) => {
                    let error = ApiError::from(error.with_provider(&provider));
                    encoder.encode_error(&error.to_body(), &mut out);
                    break true;
                }
                None => {
                    let kind = ApiErrorKind::Provider(ErrorKind::StreamTruncated);
                    let error = ApiError::new(kind, "the turn ended without its end");
                    encoder.encode_error(&error.to_body(), &mut out);
                    break true;
                }
            }
        };
        let next = (!ended).then_some((turn, encoder, provider));
        Some((Bytes::from(out), next))
    })
}

fn encode_error(error: &ApiError) -> Bytes {
    let mut out = String::new();
    StreamEncoder::new().encode_error(&error.to_body(), &mut out);
    Bytes::from(out)
}
