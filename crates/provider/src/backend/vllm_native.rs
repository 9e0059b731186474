//! A client of a `/generate` server (rows B12, B13): ours, or one that only knows the
//! documented whole reply.

use std::collections::VecDeque;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::try_unfold;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use secrecy::ExposeSecret;
use twopass_core::chat::{Event, Reply, Request, TurnBudget};
use twopass_wire::generate::{GenerateRequest, StreamDecoder, StreamItem, decode_reply};
use twopass_wire::sse::{Decoder, DecoderOptions, SseEvent};
use url::Url;

use super::{Backend, TurnItem, TurnStream};
use crate::config::{ProviderConfig, Timeouts};
use crate::http::{self, Deadline};
use crate::{ErrorKind, ProviderError};

/// The backend of `provider_backend: vllm_native`.
#[derive(Debug)]
pub struct VllmNative {
    client: Client,
    url: Url,
    config: ProviderConfig,
}

impl VllmNative {
    /// A client of the configured server. Opens no connection.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: `api_config.base_url` is missing.
    pub fn new(config: &ProviderConfig) -> Result<Self, ProviderError> {
        let base = config.api.base_url.as_ref().ok_or_else(|| {
            ProviderError::new(
                ErrorKind::Config,
                "`api_config.base_url` is missing: `vllm_native` needs the server's address",
            )
            .with_param("api_config.base_url")
        })?;
        Ok(Self {
            client: http::client(config.api.timeouts.connect)?,
            url: generate_url(base),
            config: config.clone(),
        })
    }

    /// The body of the request: messages, two-pass fields, tools, choice and parser.
    fn body(&self, request: &Request) -> String {
        let mut body = GenerateRequest {
            model: Some(self.config.model_name.clone()),
            stream: true,
            messages: request.messages.clone(),
            sampling: request.sampling,
            stop: request.stop.clone(),
            template_kwargs: request.template_kwargs.clone(),
            ..GenerateRequest::default()
        };
        if !request.tools.is_empty() {
            body.tools.clone_from(&request.tools);
            body.tool_choice = Some(request.tool_choice.clone());
            body.tool_parser = Some(self.config.tool_parser.as_str().to_owned());
            body.parallel_tool_calls = (!request.parallel_tool_calls).then_some(false);
        }
        match request.budget {
            TurnBudget::OnePass { max_tokens } => {
                body.two_pass = Some(false);
                body.max_tokens = max_tokens;
                body.max_response_tokens = max_tokens;
            }
            TurnBudget::TwoPass {
                tag,
                max_thinking_tokens,
                max_response_tokens,
            } => {
                body.two_pass = Some(true);
                body.think_tag = Some(tag);
                body.max_thinking_tokens = Some(max_thinking_tokens);
                body.max_response_tokens = Some(max_response_tokens);
            }
        }
        body.to_json()
    }

    async fn send(&self, request: &Request) -> Result<TurnStream, ProviderError> {
        let timeouts = self.config.api.timeouts;
        let total = Deadline::after(timeouts.total, ErrorKind::TimeoutTotal);
        let first =
            Deadline::after(timeouts.first_token, ErrorKind::TimeoutFirstToken).earlier(total);
        let mut post = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(self.body(request));
        if let Some(key) = &self.config.api.api_key {
            post = post.bearer_auth(key.expose_secret());
        }
        let response = first
            .wait(post.send())
            .await?
            .map_err(|error| self.locate(&error))?;
        if !response.status().is_success() {
            return Err(first.wait(http::status_error(response)).await?);
        }
        let reading = Reading {
            response,
            timeouts,
            total,
            next: first,
            sse: Decoder::new(DecoderOptions::default()),
            decoder: StreamDecoder::new(),
            items: VecDeque::new(),
            has_output: false,
            input_ended: false,
        };
        if is_event_stream(&reading.response) {
            Ok(TurnStream::new(try_unfold(reading, Reading::step)))
        } else {
            let body = first.wait(http::read_body(reading.response)).await??;
            let reply = read_whole(&body)?;
            let items: Vec<_> = events_of(&reply)
                .into_iter()
                .map(TurnItem::Event)
                .chain([TurnItem::Done(Box::new(reply))])
                .map(Ok)
                .collect();
            Ok(TurnStream::new(futures_util::stream::iter(items)))
        }
    }

    /// A transport error with the address it concerns: host and port, never a query.
    fn locate(&self, error: &reqwest::Error) -> ProviderError {
        let error = http::transport_error(error);
        let host = self.url.host_str().unwrap_or("?");
        let port = self.url.port_or_known_default().unwrap_or(0);
        ProviderError::new(error.kind(), format!("{} ({host}:{port})", error.message()))
    }
}

impl Backend for VllmNative {
    fn open(&self, request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        async move { self.send(&request).await }.boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { Ok(()) }.boxed()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// `/generate` below the base address; a final `/v1`, which the chat services have, is not
/// part of it.
fn generate_url(base: &Url) -> Url {
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/generate").unwrap_or(path);
    let path = path.strip_suffix("/v1").unwrap_or(path);
    url.set_path(&format!("{path}/generate"));
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn is_event_stream(response: &Response) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().starts_with("text/event-stream"))
}

fn read_whole(body: &[u8]) -> Result<Reply, ProviderError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| ProviderError::new(ErrorKind::InvalidResponse, "the reply is not UTF-8"))?;
    decode_reply(text).map_err(|error| {
        // An error object in a 200 answer is an error (case rule 17).
        match twopass_wire::error::ErrorBody::from_json(body) {
            Some(said) if !said.message.is_empty() => upstream_error(&said),
            _ => ProviderError::new(ErrorKind::InvalidResponse, error.to_string()),
        }
    })
}

fn upstream_error(said: &twopass_wire::error::ErrorBody) -> ProviderError {
    let kind = ErrorKind::from_name(&said.kind).unwrap_or(ErrorKind::UpstreamError);
    ProviderError::new(kind, format!("the server reports: {}", said.message))
}

/// The events that a whole reply stands for.
fn events_of(reply: &Reply) -> Vec<Event> {
    let mut events = Vec::new();
    if !reply.reasoning.is_empty() {
        events.push(Event::ReasoningDelta(reply.reasoning.clone()));
        events.push(Event::ReasoningBlockEnd);
    }
    if !reply.content.is_empty() {
        events.push(Event::TextDelta(reply.content.clone()));
    }
    for (call_idx, call) in reply.tool_calls.iter().enumerate() {
        events.push(Event::CallStarted {
            call_idx,
            id: call.id.clone(),
            name: call.name.clone(),
        });
        events.push(Event::ArgumentsDelta {
            call_idx,
            text: call.arguments.as_text().to_owned(),
        });
        events.push(Event::CallFinished {
            call_idx,
            call: call.clone(),
        });
    }
    events
}

/// A running event stream.
struct Reading {
    response: Response,
    timeouts: Timeouts,
    total: Deadline,
    /// When the next output is due.
    next: Deadline,
    sse: Decoder,
    decoder: StreamDecoder,
    items: VecDeque<StreamItem>,
    has_output: bool,
    input_ended: bool,
}

impl Reading {
    /// The next item, and the state after it.
    async fn step(mut self) -> Result<Option<(TurnItem, Self)>, ProviderError> {
        loop {
            match self.items.pop_front() {
                Some(StreamItem::Event(event)) => {
                    self.has_output = true;
                    return Ok(Some((TurnItem::Event(event), self)));
                }
                Some(StreamItem::Done(reply)) => return Ok(Some((TurnItem::Done(reply), self))),
                Some(StreamItem::Error(said)) => {
                    return Err(upstream_error(&said).with_output_sent(self.has_output));
                }
                None if self.input_ended => {
                    return Err(ProviderError::new(
                        ErrorKind::StreamTruncated,
                        "the server's stream ended before its `done` event",
                    )
                    .with_output_sent(self.has_output));
                }
                None => {
                    let read = self.read().await;
                    read.map_err(|error| error.with_output_sent(self.has_output))?;
                }
            }
        }
    }

    /// Reads one chunk and what it completes.
    async fn read(&mut self) -> Result<(), ProviderError> {
        let chunk = self.next.wait(self.response.chunk()).await?;
        let mut events = Vec::new();
        match chunk.map_err(|error| http::transport_error(&error))? {
            Some(bytes) => self
                .sse
                .push(&bytes, &mut events)
                .map_err(|error| ProviderError::new(ErrorKind::EventTooLarge, error.to_string()))?,
            None => {
                self.sse.finish(&mut events);
                self.input_ended = true;
            }
        }
        self.decode(&events)
    }

    fn decode(&mut self, events: &[SseEvent]) -> Result<(), ProviderError> {
        let mut items = Vec::new();
        for event in events {
            self.decoder.decode(event, &mut items).map_err(|error| {
                ProviderError::new(ErrorKind::InvalidResponse, error.to_string())
            })?;
        }
        if !items.is_empty() {
            // Comments are no output: only items move the deadline (case rule 20).
            self.next =
                Deadline::after(self.timeouts.idle, ErrorKind::TimeoutIdle).earlier(self.total);
            self.items.extend(items);
        }
        Ok(())
    }
}
