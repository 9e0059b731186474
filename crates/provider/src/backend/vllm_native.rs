//! A client of a `/generate` server (rows B12, B13): ours, or one that only knows the
//! documented whole reply.
//!
//! What the server says is read as a chat service's text is: think tags that it left in the
//! answer are split off, and its calls are judged by the tools that were offered. What our
//! own server sends passes unchanged.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Uri;
use twopass_core::chat::{Delivery, Event, Reply, Request, ToolCall, TurnBudget, WireFormat};
use twopass_core::control::TurnSyntax;
use twopass_core::tool_parser::{CallRules, ToolSyntax};
use twopass_wire::error::ErrorBody;
use twopass_wire::fault::Fault;
use twopass_wire::generate::{GenerateRequest, StreamDecoder, StreamItem, decode_reply};
use twopass_wire::sse::SseEvent;

use super::exchange::{Call, Decoder, Endpoint, Exchange, Framing};
use super::markup::{MarkupReader, call_rules};
use super::{Backend, TurnItem, TurnSource, TurnStream};
use crate::config::ProviderConfig;
use crate::plan::reasoning_syntax;
use crate::{ErrorKind, ProviderError, endpoint};

/// The backend of `provider_backend: vllm_native`.
#[derive(Debug)]
pub struct VllmNative {
    endpoint: Endpoint,
    uri: Uri,
    config: ProviderConfig,
    /// Call markup is the server's to find.
    syntax: TurnSyntax,
}

impl VllmNative {
    /// A client of the configured server. Opens no connection.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: `api_config.base_url` is missing.
    pub fn new(config: &ProviderConfig) -> Result<Self, ProviderError> {
        Ok(Self {
            endpoint: endpoint::connect(config)?,
            uri: endpoint::turn_uri(config)?,
            syntax: TurnSyntax::new(reasoning_syntax(config), ToolSyntax::none()),
            config: config.clone(),
        })
    }

    /// The body of the request: messages, two-pass fields, tools, choice and parser.
    fn body(&self, request: &Request) -> String {
        let mut body = GenerateRequest {
            model: Some(self.config.model_name.clone()),
            stream: request.delivery == Delivery::Stream,
            messages: request.messages.clone(),
            sampling: request.sampling,
            logprobs: request.logprobs,
            stop: request.stop.clone(),
            template_kwargs: request.template_kwargs.clone(),
            response_format: request.response_format.clone(),
            user: request.session.clone(),
            passthrough: request
                .passthrough
                .clone()
                .filter(|passed| passed.format == WireFormat::Generate),
            ..GenerateRequest::default()
        };
        if !request.tools.is_empty() {
            body.tools.clone_from(&request.tools);
            body.tool_choice = Some(request.tool_choice.clone());
            body.tool_parser = Some(self.config.tool_parser.as_str().to_owned());
            // Unsaid, a demanded call is one call, a free choice several.
            let is_said = request.tool_choice.forces_call() || !request.parallel_tool_calls;
            body.parallel_tool_calls = is_said.then_some(request.parallel_tool_calls);
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
        let session = self.endpoint.session(request);
        let body = Bytes::from(self.body(request));
        let call = || Call {
            uri: self.uri.clone(),
            session,
            body: body.clone(),
            framing: Framing::Sse,
            delivery: request.delivery,
            decoder: Box::new(Answer::default()),
        };
        let total = self.endpoint.total_deadline();
        let exchange = self.endpoint.open(call, total).await?;
        let mut rules = call_rules(request, CallRules::default());
        if request.tools.is_empty() {
            // The server may have tools of its own (row B13).
            rules.tools = None;
        }
        let turn = Turn {
            exchange,
            markup: MarkupReader::new(self.syntax.clone(), rules.clone(), request),
            rules,
            items: VecDeque::new(),
            any_output: false,
        };
        Ok(TurnStream::of(turn))
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

/// A turn of one request.
struct Turn {
    exchange: Box<Exchange>,
    markup: MarkupReader,
    rules: CallRules,
    items: VecDeque<TurnItem>,
    /// Text, reasoning or a call came before the end.
    any_output: bool,
}

impl TurnSource for Turn {
    async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(Ok(item));
            }
            match self.exchange.next().await? {
                Err(error) => return Some(Err(error)),
                Ok(TurnItem::Event(event)) => self.handle(event),
                Ok(TurnItem::Done(whole)) => self.finish(*whole),
            }
        }
    }
}

impl Turn {
    fn handle(&mut self, event: Event) {
        self.any_output |= !matches!(event, Event::Diagnostic(_) | Event::PassFinished(_));
        let event = match event {
            Event::CallFinished { call_idx, call } => self.judged(call_idx, call),
            other => other,
        };
        let mut out = Vec::new();
        self.markup.handle(event, &mut out);
        self.items.extend(out.into_iter().map(TurnItem::Event));
    }

    /// A call as the rules see it, under an id that the conversation does not have yet.
    fn judged(&self, call_idx: usize, call: ToolCall) -> Event {
        let mut id = call.id;
        while self.rules.taken_ids.contains(&id) {
            id.push_str("_2");
        }
        let arguments = call.arguments.as_text();
        match self.rules.judge(&id, &call.name, arguments, false) {
            Ok((judged, _)) => Event::CallFinished {
                call_idx,
                call: ToolCall { id, ..judged },
            },
            Err(call) => Event::CallRejected {
                call_idx,
                call: *call,
            },
        }
    }

    /// The end: what came decides over what `done` says of it; the rest is the server's.
    fn finish(&mut self, whole: Reply) {
        if !self.any_output {
            for event in events_of(&whole) {
                self.handle(event);
            }
        }
        let mut out = Vec::new();
        let read = self.markup.finish(&whole, Vec::new(), &mut out);
        let mut reply = Reply {
            content: read.content,
            reasoning: read.reasoning,
            tool_calls: read.tool_calls,
            stop_reason: read.stop_reason,
            ..whole
        };
        for note in read.diagnostics {
            if !reply.diagnostics.contains(&note) {
                reply.diagnostics.push(note);
            }
        }
        for call in read.invalid_tool_calls {
            if !reply.invalid_tool_calls.contains(&call) {
                reply.invalid_tool_calls.push(call);
            }
        }
        self.items.extend(out.into_iter().map(TurnItem::Event));
        self.items.push_back(TurnItem::Done(Box::new(reply)));
    }
}

/// Reads one answer. Its errors name our own kinds.
#[derive(Default)]
struct Answer {
    decoder: StreamDecoder,
    reply: Option<Box<Reply>>,
}

impl Decoder for Answer {
    fn push(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<(), ProviderError> {
        let mut items = Vec::new();
        let read = self.decoder.decode(event, &mut items);
        for item in items {
            match item {
                StreamItem::Event(event) => out.push(event),
                StreamItem::Done(reply) => self.reply = Some(reply),
                StreamItem::Error(said) => return Err(reported(&said)),
            }
        }
        read.map_err(|error| ProviderError::new(ErrorKind::InvalidResponse, error.to_string()))
    }

    fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), ProviderError> {
        let text = std::str::from_utf8(body).map_err(|_| {
            ProviderError::new(ErrorKind::InvalidResponse, "the reply is not UTF-8")
        })?;
        let reply = decode_reply(text).map_err(|error| {
            // An error object in a 200 answer is an error (case rule 17).
            match ErrorBody::from_json(body) {
                Some(said) if !said.message.is_empty() => reported(&said),
                _ => ProviderError::new(ErrorKind::InvalidResponse, error.to_string()),
            }
        })?;
        out.extend(events_of(&reply));
        self.reply = Some(Box::new(reply));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.reply.is_some()
    }

    fn finish(&mut self, _out: &mut Vec<Event>) -> Result<Reply, ProviderError> {
        self.reply.take().map(|reply| *reply).ok_or_else(|| {
            ProviderError::new(
                ErrorKind::StreamTruncated,
                "the server's stream ended before its `done` event",
            )
        })
    }

    fn refusal(&self, fault: Fault, body: &[u8]) -> ProviderError {
        let said = ErrorBody::from_json(body).unwrap_or_default();
        let error = ProviderError::from(fault);
        match ErrorKind::from_name(&said.kind) {
            Some(kind) => error.with_kind(kind),
            None => error,
        }
    }
}

fn reported(said: &ErrorBody) -> ProviderError {
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
    if !reply.logprobs.is_empty() {
        events.push(Event::Logprobs(reply.logprobs.clone()));
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
