//! One request and its answer over HTTP, whatever the format.
//!
//! ```text
//!  post -> status -> body pieces -> frames (SSE, lines, one whole) -> decoder -> items
//! ```
//! A request that fails before its first output is sent again by the rules of
//! [`Retries`]; one that gave output is not. A stream that broke after its own end counts as
//! complete (case rule 16). Cancel points: the waits for the network and between retries.
//! Dropping an [`Exchange`] closes its connection.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::{Method, Request as HttpRequest, Response, Uri};
use secrecy::{ExposeSecret, SecretString};
use twopass_core::chat::{Delivery, Event, Reply, Request};
use twopass_wire::fault::Fault;
use twopass_wire::ndjson;
use twopass_wire::sse::{self, EventTooLarge, SseEvent};

use super::TurnItem;
use crate::config::{ApiConfig, Timeouts};
use crate::http::{self, Alarm, Body, Deadline, HttpClient};
use crate::replicas::{Place, Replicas};
use crate::retry::Retries;
use crate::{ErrorKind, ProviderError};

/// The most bytes of a whole reply that are read.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// The most bytes of a stream that are read, and of text that comes of them: about half a
/// million events, four million tokens.
const MAX_STREAM_BYTES: usize = 128 * 1024 * 1024;
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// Shorter values are no secrets, and ordinary words.
const LEAST_SECRET_BYTES: usize = 6;

/// Reads the answer to one request.
pub(crate) trait Decoder: Send {
    /// Reads one frame of a stream; a line is an event without a name.
    fn push(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<(), ProviderError>;

    /// Reads a whole answer.
    fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), ProviderError>;

    /// True once nothing more can come.
    fn is_done(&self) -> bool;

    /// Ends the turn; an error if the answer was not complete.
    fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, ProviderError>;

    /// The error of an answer that was no success.
    fn refusal(&self, fault: Fault, _body: &[u8]) -> ProviderError {
        fault.into()
    }
}

/// How a format frames its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse,
    /// JSON lines.
    Lines,
}

/// A request ready to be sent.
pub(crate) struct Call {
    /// At the entry's first server; the others differ in their origin only.
    pub(crate) uri: Uri,
    /// What keeps the requests of one conversation at one server.
    pub(crate) session: Option<u64>,
    /// The same for every try.
    pub(crate) body: Bytes,
    pub(crate) framing: Framing,
    pub(crate) delivery: Delivery,
    pub(crate) decoder: Box<dyn Decoder>,
}

/// Where requests of one entry go.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    client: HttpClient,
    replicas: Replicas,
    headers: HeaderMap,
    /// What no error may repeat.
    secrets: Arc<[SecretString]>,
    timeouts: Timeouts,
    max_retries: u32,
}

impl Endpoint {
    /// An endpoint that sends these headers with every request. Opens no connection.
    ///
    /// # Errors
    /// TLS cannot start.
    pub(crate) fn new(headers: HeaderMap, config: &ApiConfig) -> Result<Self, ProviderError> {
        let values = config.headers.iter().map(|(_, value)| value);
        let secrets = config.api_key.iter().chain(values);
        let secrets = secrets.filter(|secret| secret.expose_secret().len() >= LEAST_SECRET_BYTES);
        let client = HttpClient::new(config.timeouts.connect)?;
        Ok(Self {
            replicas: Replicas::new(&config.base_urls, client.clone())?,
            client,
            headers,
            secrets: secrets.cloned().collect(),
            timeouts: config.timeouts,
            max_retries: config.max_retries,
        })
    }

    /// What keeps the requests of this turn's conversation at one server.
    pub(crate) fn session(&self, request: &Request) -> Option<u64> {
        self.replicas.session(request)
    }

    /// The end of a turn that begins now.
    pub(crate) fn total_deadline(&self) -> Deadline {
        Deadline::after(self.timeouts.total, ErrorKind::TimeoutTotal)
    }

    /// Asks for one whole answer beside the turns: a GET, or a POST of this JSON body. A
    /// server that fails is not asked again, but another one is.
    ///
    /// # Errors
    /// The answer's own error, or why there is none.
    pub(crate) async fn fetch(
        &self,
        uri: &Uri,
        body: Option<String>,
        limit: Deadline,
    ) -> Result<Vec<u8>, ProviderError> {
        let mut failed = Vec::new();
        loop {
            let place = self.replicas.begin(None, &failed);
            failed.push(place.idx());
            let asked = limit.wait(self.whole(place.at(uri), body.clone())).await;
            let error = match place.settle(asked.and_then(|answer| answer)) {
                Ok(answer) => return Ok(answer),
                Err(error) => error.without(&self.secrets),
            };
            if !error.kind().is_transient() || !self.replicas.has_more(&failed) {
                return Err(error);
            }
        }
    }

    async fn whole(&self, uri: Uri, body: Option<String>) -> Result<Vec<u8>, ProviderError> {
        let response = self.send(uri, body.map(Bytes::from)).await?;
        if !response.status().is_success() {
            return Err(http::status_fault(response).await.0.into());
        }
        let mut body = Body::new(response)?;
        let mut whole = Vec::new();
        while let Some(bytes) = body.chunk().await? {
            if whole.len() + bytes.len() > MAX_REPLY_BYTES {
                return Err(ProviderError::new(
                    ErrorKind::EventTooLarge,
                    format!("the answer is larger than {MAX_REPLY_BYTES} bytes"),
                ));
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    }

    /// [`Endpoint::fetch`] of a POST, again if need be, read by `read`.
    ///
    /// # Errors
    /// The last attempt's error, or that of `read`, which is not tried again.
    pub(crate) async fn fetch_retried<T>(
        &self,
        uri: &Uri,
        body: &str,
        read: impl FnOnce(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, ProviderError> {
        let total = self.total_deadline();
        let mut retries = Retries::new(self.max_retries, total);
        loop {
            let fetched = self.fetch(uri, Some(body.to_owned()), total).await;
            match fetched {
                Ok(body) => {
                    let read = read(&body).map_err(ProviderError::from);
                    return read.map_err(|error| error.without(&self.secrets));
                }
                Err(error) => retries.wait(error).await?,
            }
        }
    }

    /// Sends the request, again if need be, and reads up to its first output or its end.
    /// Another server is asked at once; one that has failed only after a wait.
    ///
    /// # Errors
    /// The last attempt's error.
    pub(crate) async fn open(
        &self,
        call: impl Fn() -> Call,
        total: Deadline,
    ) -> Result<Box<Exchange>, ProviderError> {
        let mut retries = Retries::new(self.max_retries, total);
        let mut failed = Vec::new();
        loop {
            let call = call();
            let place = self.replicas.begin(call.session, &failed);
            failed.push(place.idx());
            let error = match place.settle(self.attempt(call, &place, total).await) {
                Ok(exchange) => return Ok(exchange.at(place)),
                Err(error) => error.without(&self.secrets),
            };
            if error.kind().is_transient() && self.replicas.has_more(&failed) {
                continue;
            }
            retries.wait(error).await?;
            failed.clear();
        }
    }

    async fn attempt(
        &self,
        call: Call,
        place: &Place,
        total: Deadline,
    ) -> Result<Box<Exchange>, ProviderError> {
        let first = match call.delivery {
            Delivery::Stream => {
                Deadline::after(self.timeouts.first_token, ErrorKind::TimeoutFirstToken)
                    .earlier(total)
            }
            // No output can come before the whole.
            Delivery::Whole => total,
        };
        let sent = self.send(place.at(&call.uri), Some(call.body));
        let mut alarm = Alarm::new(first);
        let response = first.wait_with(&mut alarm, sent).await??;
        if !response.status().is_success() {
            // In a box: the other answers do not carry its state.
            let refused = Box::pin(http::status_fault(response));
            let (fault, body) = first.wait(refused).await?;
            return Err(call.decoder.refusal(fault, &body));
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let framer = Framer::of(
            content_type.unwrap_or_default(),
            &call.framing,
            call.delivery,
        );
        let mut exchange = Box::new(Exchange {
            told_length: response.headers().contains_key(CONTENT_LENGTH),
            place: None,
            body: Some(Body::new(response)?),
            framer,
            decoder: call.decoder,
            secrets: Arc::clone(&self.secrets),
            timeouts: self.timeouts,
            total,
            next: first,
            alarm,
            items: VecDeque::new(),
            n_bytes: 0,
            n_output_bytes: 0,
            failed: None,
            has_output: false,
        });
        exchange.until_output().await?;
        Ok(exchange)
    }

    /// A GET, or a POST of this JSON body.
    async fn send(
        &self,
        uri: Uri,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>, ProviderError> {
        let mut request = HttpRequest::new(Full::default());
        *request.headers_mut() = self.headers.clone();
        if let Some(body) = body {
            *request.method_mut() = Method::POST;
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(CONTENT_TYPE, json);
            *request.body_mut() = Full::new(body);
        }
        *request.uri_mut() = uri.clone();
        let sent = self.client.send(request).await;
        sent.map_err(|error| error.located(&host_and_port(&uri)))
    }
}

/// What may be shown of an address: never a query.
fn host_and_port(uri: &Uri) -> String {
    let host = uri.host().unwrap_or("?");
    let port = match uri.scheme() == Some(&Scheme::HTTPS) {
        true => 443,
        false => 80,
    };
    format!("{host}:{}", uri.port_u16().unwrap_or(port))
}

/// A running answer. Large, so those who hold it hold a box.
pub(crate) struct Exchange {
    /// Held until the answer's end, once it has begun.
    place: Option<Place>,
    /// `None` once everything was read.
    body: Option<Body>,
    /// The length was told, so what came is whole.
    told_length: bool,
    framer: Framer,
    decoder: Box<dyn Decoder>,
    secrets: Arc<[SecretString]>,
    timeouts: Timeouts,
    total: Deadline,
    /// When the next output is due.
    next: Deadline,
    alarm: Alarm,
    items: VecDeque<TurnItem>,
    n_bytes: usize,
    n_output_bytes: usize,
    /// Given out after the items that came before it.
    failed: Option<ProviderError>,
    has_output: bool,
}

impl Exchange {
    /// An answer that has begun at this place.
    fn at(mut self: Box<Self>, place: Place) -> Box<Self> {
        self.place = self.body.is_some().then_some(place);
        self
    }

    /// The next item; `None` after the last one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(Ok(item));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            self.body.as_ref()?;
            self.read().await;
        }
    }

    async fn until_output(&mut self) -> Result<(), ProviderError> {
        while !self.has_output && self.body.is_some() {
            self.read().await;
        }
        match self.failed.take() {
            Some(error) if !self.has_output => Err(error),
            failed => {
                self.failed = failed;
                Ok(())
            }
        }
    }

    /// Reads one piece and what it completes.
    async fn read(&mut self) {
        let Some(body) = &mut self.body else { return };
        match self.next.wait_with(&mut self.alarm, body.chunk()).await {
            Ok(Ok(Some(bytes))) => self.take(&bytes),
            Ok(Ok(None)) => self.end(None),
            Ok(Err(error)) | Err(error) => self.end(Some(error)),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.n_bytes += bytes.len();
        if self.n_bytes > MAX_STREAM_BYTES || self.n_output_bytes > MAX_OUTPUT_BYTES {
            let limit = match self.n_bytes > MAX_STREAM_BYTES {
                true => format!("{MAX_STREAM_BYTES} bytes"),
                false => format!("{MAX_OUTPUT_BYTES} bytes of text"),
            };
            let message = format!("the stream goes on after {limit}");
            return self.fail(ProviderError::new(ErrorKind::EventTooLarge, message));
        }
        let mut frames = Vec::new();
        let taken = self.framer.push(bytes, &mut frames);
        self.decode(&frames);
        if let (Err(error), None) = (taken, &self.failed) {
            self.fail(error);
        }
        if self.body.is_some() && self.decoder.is_done() {
            // The end of the body is usually there already; reading it keeps the connection.
            if let Some(body) = &mut self.body {
                let _ = body.chunk().now_or_never();
            }
            self.end(None);
        }
    }

    fn decode(&mut self, frames: &[SseEvent]) {
        for frame in frames {
            let mut events = Vec::new();
            let read = self.decoder.push(frame, &mut events);
            self.keep(events);
            if let Err(error) = read {
                self.fail(error);
                return;
            }
        }
    }

    /// Queues events. Comments are no output: only output moves the deadline (case rule 20).
    fn keep(&mut self, events: Vec<Event>) {
        self.n_output_bytes += events.iter().map(text_bytes).sum::<usize>();
        if events.iter().any(Event::is_output) {
            self.has_output = true;
            self.next =
                Deadline::after(self.timeouts.idle, ErrorKind::TimeoutIdle).earlier(self.total);
        }
        self.items.extend(events.into_iter().map(TurnItem::Event));
    }

    fn fail(&mut self, error: ProviderError) {
        self.body = None;
        if let Some(place) = self.place.take() {
            place.handle_failure(error.kind());
        }
        let error = error.without(&self.secrets);
        self.failed = Some(error.with_output_sent(self.has_output));
    }

    /// The input is over, or broke for this cause. What is complete counts as complete.
    fn end(&mut self, cause: Option<ProviderError>) {
        let mut events = Vec::new();
        // A body of no told length that broke off ends like a whole one.
        let broke_off;
        let rest = match &mut self.framer {
            Framer::Whole(_) if cause.is_some() => {
                broke_off = false;
                Ok(())
            }
            Framer::Whole(body) => {
                broke_off = !self.told_length && is_half_json(body);
                self.decoder.push_whole(body, &mut events)
            }
            framer => {
                let mut frames = Vec::new();
                framer.finish(&mut frames);
                // Only a last line without its end can be half a line.
                let last = frames.last().filter(|_| matches!(framer, Framer::Lines(_)));
                broke_off = !self.told_length
                    && last.is_some_and(|line| is_half_json(line.data.as_bytes()));
                self.decode(&frames);
                Ok(())
            }
        };
        let cause = cause.or_else(|| broke_off.then(|| Fault::truncated().into()));
        if let Some(failed) = &self.failed {
            // A frame that broke off cannot be read: then the break is what went wrong.
            if let (ErrorKind::InvalidResponse, Some(cause)) = (failed.kind(), cause) {
                self.fail(cause);
            }
            return;
        }
        let reply = rest.and_then(|()| self.decoder.finish(&mut events));
        self.keep(events);
        self.body = None;
        match reply {
            Err(error) => self.fail(cause.unwrap_or(error)),
            Ok(reply) => {
                self.place = None;
                self.items.push_back(TurnItem::Done(Box::new(reply)));
            }
        }
    }
}

/// True if the text is an object that ends too early.
fn is_half_json(text: &[u8]) -> bool {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let read = serde_json::from_slice::<serde::de::IgnoredAny>(text);
    first == Some(&b'{') && read.is_err_and(|error| error.is_eof())
}

/// Bytes of text in an event.
fn text_bytes(event: &Event) -> usize {
    match event {
        Event::ReasoningDelta(text)
        | Event::TextDelta(text)
        | Event::ArgumentsDelta { text, .. } => text.len(),
        _ => 0,
    }
}

/// Cuts a body into frames.
enum Framer {
    Sse(sse::Decoder),
    Lines(ndjson::Decoder),
    /// One frame, at the end of the body.
    Whole(Vec<u8>),
    /// The content type tells nothing: the first character will.
    Unknown(Framing),
}

impl Framer {
    fn of(content_type: &str, framing: &Framing, delivery: Delivery) -> Self {
        let content_type = content_type.to_ascii_lowercase();
        let says = |word: &str| content_type.contains(word);
        if says("event-stream") {
            Self::Sse(sse::Decoder::new(sse::DecoderOptions::default()))
        } else if says("ndjson") || says("jsonl") || says("json-lines") {
            Self::Lines(ndjson::Decoder::default())
        } else if says("json") || says("html") || delivery == Delivery::Whole {
            Self::Whole(Vec::new())
        } else {
            Self::Unknown(*framing)
        }
    }

    fn push(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), ProviderError> {
        match self {
            Self::Sse(decoder) => decoder.push(bytes, out).map_err(too_large),
            Self::Lines(decoder) => {
                let mut lines = Vec::new();
                let pushed = decoder.push(bytes, &mut lines);
                out.extend(lines.into_iter().map(line_event));
                pushed.map_err(too_large)
            }
            Self::Whole(body) => {
                if body.len() + bytes.len() > MAX_REPLY_BYTES {
                    return Err(ProviderError::new(
                        ErrorKind::EventTooLarge,
                        format!("the reply is larger than {MAX_REPLY_BYTES} bytes"),
                    ));
                }
                body.extend_from_slice(bytes);
                Ok(())
            }
            Self::Unknown(framing) => {
                let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                    return Ok(());
                };
                *self = match (first, framing) {
                    (b'{', Framing::Lines) => Self::Lines(ndjson::Decoder::default()),
                    // A comment, or `data`, `event`, `id`, `retry`.
                    (b':' | b'd' | b'e' | b'i' | b'r', _) => {
                        Self::Sse(sse::Decoder::new(sse::DecoderOptions::default()))
                    }
                    _ => Self::Whole(Vec::new()),
                };
                self.push(bytes, out)
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<SseEvent>) {
        match self {
            Self::Sse(decoder) => decoder.finish(out),
            Self::Lines(decoder) => {
                let mut lines = Vec::new();
                decoder.finish(&mut lines);
                out.extend(lines.into_iter().map(line_event));
            }
            Self::Whole(_) | Self::Unknown(_) => {}
        }
    }
}

fn line_event(data: String) -> SseEvent {
    SseEvent {
        event: "message".to_owned(),
        data,
    }
}

fn too_large(error: EventTooLarge) -> ProviderError {
    ProviderError::new(ErrorKind::EventTooLarge, error.to_string())
}
