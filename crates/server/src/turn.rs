//! The one way of every turn, whatever face it came through.
//!
//! ```text
//!  body --Face::decode--> Ask --resume, restore, plan--> Turn --open--> events --Encoder--> stream
//!                                                           \--demands--> replies --Face--> body
//! ```
//! What is kept of an answer is kept before its end is told. Cancel points: everything after
//! the body. A client that closes its connection makes the listener drop the handler's future,
//! or the stream that it returned, and with it the turns.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream::{BoxStream, StreamExt, select_all};
use futures_util::{FutureExt, TryFutureExt};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use twopass_core::chat::{BadRequest, Delivery, Reply};
use twopass_provider::config::TwoPassMode;
use twopass_provider::{
    CallOptions, Planned, Provider, ProviderError, RawRequest, Thinking, TurnItem, TurnStream,
};
use twopass_wire::ReplyMeta;

use crate::api_error::ApiError;
use crate::caller::Caller;
use crate::certain::{Service, certain};
use crate::enforce::Demands;
use crate::faces::{About, Ask, Face};
use crate::ids::new_id;
use crate::memory::Scope;
use crate::models::model_id;
use crate::observe::Watch;
use crate::routes::{self, App};
use crate::sse::{Keep, SsePlan, sse_response};
use crate::stored::Thread;

/// Bodies from here on are read on a thread of their own: parsing takes about 2 ms per MB.
const LARGE_BODY_BYTES: usize = 256 << 10;
/// Digits of an answer's id in the ids of its calls.
const CALL_SALT_DIGITS: usize = 10;

/// Tokens of a raw completion if the client names no cap, as OpenAI has it.
const RAW_TOKENS: u32 = 16;

/// Who asks, and where it is noted what becomes of it.
pub(crate) struct Client {
    pub(crate) caller: Caller,
    pub(crate) watch: Watch,
}

/// Answers one request.
pub(crate) async fn answer(
    app: &App,
    face: &'static dyn Face,
    client: Client,
    body: Bytes,
) -> Result<Response, ApiError> {
    let mut ask = decode(face, body).await?;
    if let Some(thread) = &ask.thread {
        let messages = &mut ask.messages;
        thread
            .resume(app.responses(), &client.caller, messages)
            .await?;
    }
    let streamed = ask.stream;
    let turn = Turn::plan(app, face, client, ask)?;
    if streamed {
        turn.stream().await
    } else {
        turn.whole().await
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
    face: &'static dyn Face,
    provider: Provider,
    work: Work,
    /// What is known of the service, where what was shown cannot be taken back.
    service: Option<Service>,
    demands: Demands,
    about: About,
    kept: Keeping,
    watch: Watch,
}

impl Turn {
    fn plan(
        app: &App,
        face: &'static dyn Face,
        client: Client,
        mut ask: Ask,
    ) -> Result<Self, ApiError> {
        let served = app.live().now();
        let provider = served
            .models
            .pick(&client.caller, ask.model.as_deref())?
            .clone();
        client.watch.picked(provider.name(), model_id(&provider));
        check_choices(ask.wishes.n_choices, &provider)?;
        let id = new_id();
        let kept = Keeping {
            app: app.clone(),
            caller: client.caller,
            provider: provider.name().to_owned(),
            thread: ask.thread,
            id: format!("{}{id}", face.id_prefix()),
        };
        if let Some(memory) = app.memory() {
            memory.restore(kept.scope(), &mut ask.messages);
        }
        let mut options = ask.options;
        if !ask.stream {
            options.delivery = Delivery::Whole;
        }
        if options.two_pass.is_none() && asks_for_budget(&options, &provider) {
            options.two_pass = Some(TwoPassMode::On);
        }
        // Ids are unique over all answers of this server: clients put answers side by side.
        options.call_id_salt = format!("{}_", &id[..CALL_SALT_DIGITS]);
        client.watch.asked(&ask.messages, ask.prompt.as_deref());
        let work = match ask.prompt {
            Some(prompt) => Work::raw(prompt, options),
            None => Work::Turn(provider.request(ask.messages, options)?),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let meta = ReplyMeta {
            id: kept.id.clone(),
            created_s: now.map_or(0, |now| now.as_secs()),
            model: ask.model.unwrap_or_else(|| provider.name().to_owned()),
            echo: ask.echo,
        };
        Ok(Self {
            face,
            demands: work.demands(face)?,
            service: match &work {
                Work::Turn(request) if !face.tells_all() => {
                    Some(Service::new(&provider, request, app.habits()))
                }
                _ => None,
            },
            provider,
            work,
            about: About {
                meta,
                wishes: ask.wishes,
            },
            kept,
            watch: client.watch,
        })
    }

    async fn whole(self) -> Result<Response, ApiError> {
        let (provider, demands) = (&self.provider, &self.demands);
        let replies = match self.about.wishes.n_choices {
            // Alone it needs no place on the heap.
            1 => vec![self.work.reply(provider, demands).await?],
            n_choices => {
                let works = self.work.choices(n_choices).into_iter();
                try_join_all(works.map(|work| work.reply(provider, demands))).await?
            }
        };
        for reply in &replies {
            self.watch.answered(reply);
            self.kept.remember(reply);
        }
        let whole = self.face.encode_whole(&replies, &self.about);
        if let Some(keep) = self.kept.keep() {
            keep(whole.clone()).await?;
        }
        Ok(routes::json_text(whole))
    }

    async fn stream(self) -> Result<Response, ApiError> {
        let app = &self.kept.app;
        let heartbeat = app.limits().heartbeat;
        let works = self.work.choices(self.about.wishes.n_choices).into_iter();
        let turns = works.map(|work| open(self.provider.clone(), work, heartbeat));
        let turns = try_join_all(turns).await?;
        let plan = SsePlan {
            heartbeat,
            shutdown: app.shutdown().clone(),
            n_turns: turns.len(),
            keep: self.kept.keep(),
            watch: self.watch.clone(),
        };
        let finish = Arc::new((self.demands, self.kept));
        let mut items = turns.into_iter().enumerate().map(|(choice, turn)| {
            let finish = Arc::clone(&finish);
            let items = match &self.service {
                Some(service) => certain(turn, service.clone()),
                None => plain(turn, &self.provider),
            };
            items.map(move |item| {
                if let Ok(TurnItem::Done(reply)) = &item {
                    let (demands, kept) = &*finish;
                    if let Err(error) = demands.check(reply) {
                        return (choice, Err(error));
                    }
                    kept.remember(reply);
                }
                (choice, item)
            })
        });
        let encoder = self.face.encoder(self.about);
        // One turn alone needs nobody to wake the right one.
        match (items.len(), items.next()) {
            (1, Some(only)) => Ok(sse_response(only, encoder, plan)),
            (_, first) => {
                let all = select_all(first.into_iter().chain(items));
                Ok(sse_response(all, encoder, plan))
            }
        }
    }
}

/// More answers than there is room for at one time would be refused however often they are
/// asked for.
fn check_choices(n_choices: usize, provider: &Provider) -> Result<(), BadRequest> {
    let most = provider.most_turns();
    match most.filter(|_| provider.fallbacks().is_empty()) {
        Some(most) if n_choices > most => Err(BadRequest::new(
            "n",
            format!("at most {most} answers at one time here, got {n_choices}"),
        )),
        _ => Ok(()),
    }
}

/// True if a thought is to be capped that only we can cap: by two passes over an engine.
fn asks_for_budget(options: &CallOptions, provider: &Provider) -> bool {
    options.thinking == Thinking::On
        && options.max_thinking_tokens.is_some()
        && provider.config().backend.continues_exactly()
}

/// The turn's items as they come.
fn plain(turn: TurnStream, provider: &Provider) -> BoxStream<'static, Result<TurnItem, ApiError>> {
    let provider = provider.clone();
    let named = move |error: ProviderError| error.with_provider(provider.name()).into();
    turn.map(move |item| item.map_err(&named)).boxed()
}

/// What a provider is asked for.
#[derive(Clone)]
enum Work {
    Turn(Planned),
    Raw(RawRequest),
}

impl Work {
    fn raw(prompt: String, options: CallOptions) -> Self {
        Self::Raw(RawRequest {
            prompt,
            max_tokens: Some(options.max_tokens.unwrap_or(RAW_TOKENS)),
            sampling: options.sampling,
            stop: options.stop.unwrap_or_default(),
            logprobs: options.logprobs,
            delivery: options.delivery,
        })
    }

    fn demands(&self, face: &dyn Face) -> Result<Demands, BadRequest> {
        match self {
            Self::Turn(request) => Demands::of(request, face.tells_all()),
            Self::Raw(_) => Ok(Demands::default()),
        }
    }

    /// The work of each answer that is wanted: with a seed each has its own.
    fn choices(self, n_choices: usize) -> Vec<Self> {
        let others = (1..n_choices).map(|choice| self.of_choice(choice));
        let mut choices: Vec<Self> = others.collect();
        choices.insert(0, self);
        choices
    }

    fn of_choice(&self, choice: usize) -> Self {
        let mut work = self.clone();
        let sampling = match &mut work {
            Self::Turn(request) => {
                request.call_id_salt.push_str(&format!("{choice}_"));
                &mut request.sampling
            }
            Self::Raw(raw) => &mut raw.sampling,
        };
        sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(choice as u64));
        work
    }

    /// One whole answer that meets the demands.
    async fn reply(self, provider: &Provider, demands: &Demands) -> Result<Reply, ApiError> {
        match self {
            Self::Turn(request) => demands.reply(provider, request).await,
            raw => Ok(raw.open(provider).await?.collect().await?),
        }
    }

    async fn open(self, provider: &Provider) -> Result<TurnStream, ProviderError> {
        match self {
            Self::Turn(request) => provider.stream(request).await,
            Self::Raw(raw) => provider.complete(raw).await,
        }
    }
}

/// Opens a turn. What fails within `patience` is a status; a turn that has said nothing by
/// then begins as a silent stream, so that proxies see life, and may fail as its last event.
async fn open(
    provider: Provider,
    work: Work,
    patience: Duration,
) -> Result<TurnStream, ProviderError> {
    let mut opening = async move { work.open(&provider).await }.boxed();
    match timeout(patience, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => Ok(TurnStream::new(opening.try_flatten_stream())),
    }
}

/// What is kept of an answer when it is done.
struct Keeping {
    app: App,
    caller: Caller,
    provider: String,
    thread: Option<Thread>,
    /// The answer's id.
    id: String,
}

impl Keeping {
    fn scope(&self) -> Scope<'_> {
        Scope {
            caller: &self.caller,
            provider: &self.provider,
        }
    }

    /// Remembers what it was thought with.
    fn remember(&self, reply: &Reply) {
        if let Some(memory) = self.app.memory() {
            memory.keep(self.scope(), reply);
        }
    }

    /// Stores the answer under its id, where it is to be.
    fn keep(&self) -> Option<Keep> {
        let thread = self.thread.clone().filter(|thread| thread.stores)?;
        let (app, caller, id) = (self.app.clone(), self.caller.clone(), self.id.clone());
        Some(Box::new(move |whole| {
            let (app, caller, thread) = (app.clone(), caller.clone(), thread.clone());
            let id = id.clone();
            async move {
                let stored = (id.as_str(), whole.as_str());
                app.responses().put(&caller, &thread, stored).await
            }
            .boxed()
        }))
    }
}
