//! The one way of every turn, whatever face it came through.
//!
//! ```text
//!  body --Face::decode--> Ask --pick, plan--> Turn --open--> events --Encoder--> stream
//!                                                    \---> whole replies --Face--> body
//! ```
//! Cancel points: everything after the body. A client that closes its connection makes the
//! listener drop the handler's future, or the stream that it returned, and with it the turns.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, TryFutureExt};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use twopass_core::chat::{Delivery, Request};
use twopass_provider::{Provider, ProviderError, TurnStream};
use twopass_wire::ReplyMeta;

use crate::api_error::ApiError;
use crate::faces::{About, Ask, Face};
use crate::ids::new_id;
use crate::models::model_id;
use crate::observe::Watch;
use crate::routes::{self, App};
use crate::sse::{SsePlan, sse_response};

/// Bodies from here on are read on a thread of their own: parsing takes about 2 ms per MB.
const LARGE_BODY_BYTES: usize = 256 << 10;

/// Answers one request.
pub(crate) async fn answer(
    app: App,
    face: &'static dyn Face,
    body: Bytes,
    watch: Watch,
) -> Result<Response, ApiError> {
    let ask = decode(face, body).await?;
    let streamed = ask.stream;
    let turn = Turn::plan(&app, face, ask, watch)?;
    if streamed {
        turn.stream(&app, face).await
    } else {
        turn.whole(face).await
    }
}

async fn decode(face: &'static dyn Face, body: Bytes) -> Result<Ask, ApiError> {
    if body.len() < LARGE_BODY_BYTES {
        return Ok(face.decode(&body)?);
    }
    let read = spawn_blocking(move || face.decode(&body)).await;
    Ok(read.map_err(|_| ApiError::bug())??)
}

/// A request that has its provider, its budget and its name.
struct Turn {
    provider: Provider,
    request: Request,
    about: About,
    watch: Watch,
}

impl Turn {
    fn plan(app: &App, face: &'static dyn Face, ask: Ask, watch: Watch) -> Result<Self, ApiError> {
        let provider = app.models().pick(ask.model.as_deref())?.clone();
        watch.picked(provider.name(), model_id(&provider));
        let mut options = ask.options;
        if !ask.stream {
            options.delivery = Delivery::Whole;
        }
        let request = provider.request(ask.messages, options)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let meta = ReplyMeta {
            id: format!("{}{}", face.id_prefix(), new_id()),
            created_s: now.map_or(0, |now| now.as_secs()),
            model: ask.model.unwrap_or_else(|| provider.name().to_owned()),
        };
        Ok(Self {
            provider,
            request,
            about: About {
                meta,
                wishes: ask.wishes,
            },
            watch,
        })
    }

    /// The request of the answer with this number: with a seed each has its own.
    fn request(&self, choice: usize) -> Request {
        let mut request = self.request.clone();
        let seed = &mut request.sampling.seed;
        *seed = seed.map(|seed| seed.wrapping_add(choice as u64));
        request
    }

    async fn whole(self, face: &'static dyn Face) -> Result<Response, ApiError> {
        let turns = (0..self.about.wishes.n_choices)
            .map(|choice| self.provider.generate(self.request(choice)));
        let replies = try_join_all(turns).await?;
        for reply in &replies {
            self.watch.used(&reply.usage);
        }
        Ok(routes::json_text(face.encode_whole(&replies, &self.about)))
    }

    async fn stream(self, app: &App, face: &'static dyn Face) -> Result<Response, ApiError> {
        let heartbeat = app.limits().heartbeat;
        let turns = (0..self.about.wishes.n_choices)
            .map(|choice| open(self.provider.clone(), self.request(choice), heartbeat));
        let turns = try_join_all(turns).await?;
        let plan = SsePlan {
            heartbeat,
            shutdown: app.shutdown().clone(),
            n_turns: turns.len(),
            watch: self.watch,
        };
        let items = turns.into_iter().enumerate().map(|(choice, turn)| {
            let provider = self.provider.clone();
            let named = move |error: ProviderError| error.with_provider(provider.name()).into();
            turn.map(move |item| (choice, item.map_err(&named)))
        });
        let items = stream::select_all(items);
        Ok(sse_response(items, face.encoder(self.about), plan))
    }
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
