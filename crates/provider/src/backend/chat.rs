//! Chat services: Chat Completions, Responses, Anthropic Messages, Ollama.
//!
//! ```text
//!  Request -> WireRequest -> Format::encode -> Endpoint::open -> Decoder -> MarkupReader -> items
//! ```
//! One code for all of them: a [`Format`] is a row of functions, a [`Preset`] a row of facts.
//! A turn with a budget is one request where the service keeps its own budget, else the two
//! of [`Passes`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use hyper::Uri;
use twopass_core::chat::{
    Delivery, Diagnostic, DiagnosticKind, Event, PassReport, Reply, Request, Thinking, TurnBudget,
};
use twopass_core::control::TurnSyntax;
use twopass_core::tool_parser::{CallRules, ToolSyntax};
use twopass_core::tool_prompt::ToolPromptOptions;
use twopass_wire::WireRequest;
use twopass_wire::facts::WireFacts;
use twopass_wire::fault::Refused;

use super::exchange::{Call, Endpoint, Exchange};
use super::format::Format;
use super::markup::{MarkupReader, call_rules};
use super::passes::Passes;
use super::{Backend, TurnItem, TurnSource, TurnStream};
use crate::config::{HermesInjection, ProviderConfig};
use crate::http::{self, Deadline};
use crate::preset::{PassMeans, Preset};
use crate::prompt::{in_text, turn_settings};
use crate::{ErrorKind, ProviderError, endpoint};

/// A client of one chat service.
#[derive(Debug)]
pub struct Chat {
    service: Arc<Service>,
}

/// The service, as every turn uses it.
#[derive(Debug)]
pub(super) struct Service {
    endpoint: Endpoint,
    uri: Uri,
    /// For turns that go on after a last assistant message.
    continue_uri: Uri,
    format: &'static Format,
    pub(super) preset: &'static Preset,
    pub(super) facts: WireFacts,
    model_name: String,
    /// What is looked for in text.
    pub(super) syntax: TurnSyntax,
    calls: CallRules,
    injection: HermesInjection,
    tool_prompt: ToolPromptOptions,
    /// Whether the reasoning is to be returned, as the service's field.
    extra: Vec<(String, String)>,
}

impl Chat {
    /// A client of the configured service. Opens no connection.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: the entry is of no chat service, has no address, or names
    /// an unknown dialect.
    pub fn new(config: &ProviderConfig) -> Result<Self, ProviderError> {
        let format = Format::of(config.backend).ok_or_else(|| {
            let message = format!("`{}` is no chat service", config.backend);
            ProviderError::new(ErrorKind::Config, message)
        })?;
        let settings = turn_settings(config)?;
        let injection = config.decisions.hermes_injection;
        let injection = injection.unwrap_or(HermesInjection::Server);
        // The service's own parser is trusted if it is said to have one and writes the tools.
        let is_own = config.tool_parser.as_str() == "openai";
        let reads_calls = !is_own || injection != HermesInjection::Server;
        let preset = config.preset();
        let field = format.include_reasoning;
        let wish = field.zip(config.generation.include_reasoning);
        let service = Service {
            extra: wish
                .map(|(field, on)| (field.to_owned(), on.to_string()))
                .into_iter()
                .collect(),
            endpoint: endpoint::connect(config)?,
            continue_uri: match config.continue_url() {
                Some(url) => http::uri(&url)?,
                None => endpoint::turn_uri(config)?,
            },
            uri: endpoint::turn_uri(config)?,
            format,
            preset,
            facts: WireFacts {
                reasoning_replay: config.replay_policy(),
                ..preset.facts
            },
            model_name: config.model_name.clone(),
            syntax: match reads_calls {
                true => settings.syntax,
                false => TurnSyntax::new(settings.syntax.reasoning().clone(), ToolSyntax::none()),
            },
            calls: CallRules {
                limits: settings.limits,
                ..CallRules::default()
            },
            injection,
            tool_prompt: settings.tool_prompt,
        };
        Ok(Self {
            service: Arc::new(service),
        })
    }

    /// A turn with a budget: kept by the service, else by two requests.
    async fn budgeted(
        &self,
        request: Request,
        max_thinking_tokens: u32,
    ) -> Result<TurnStream, ProviderError> {
        let service = &self.service;
        let total = service.endpoint.total_deadline();
        let mut notes = Vec::new();
        let mut means = service.preset.means;
        let has_native = means.first() == Some(&PassMeans::NativeBudget);
        if has_native && max_thinking_tokens < service.preset.min_budget_tokens {
            means = &means[1..];
        } else if has_native {
            match service.native(&request, total).await {
                Ok(turn) => return Ok(TurnStream::of(turn)),
                Err(error) if error.refused() == Some(Refused::Thinking) && means.len() > 1 => {
                    means = &means[1..];
                    notes.push(degraded(format!(
                        "the endpoint refused `native_budget`, so `{}` is used: {}",
                        means[0].as_str(),
                        error.message()
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        let turn = Passes::begin(Arc::clone(service), request, means, total, notes).await?;
        Ok(TurnStream::of(turn))
    }

    async fn single(&self, request: Request) -> Result<TurnStream, ProviderError> {
        let total = self.service.endpoint.total_deadline();
        Ok(TurnStream::of(self.service.single(request, total).await?))
    }
}

impl Service {
    /// One request in which the service keeps its own budget.
    async fn native(&self, request: &Request, total: Deadline) -> Result<Turn, ProviderError> {
        let wire = self.wire_request(request.clone());
        let sent = self.send(&wire, &self.facts, total).await?;
        let mut notes = Vec::new();
        if !self.preset.counts_budget {
            notes.push(degraded(
                "the budget went out as an effort, which caps no tokens".to_owned(),
            ));
        }
        Ok(Turn::new(sent, Box::new(self.markup(request)), notes))
    }

    /// One request; without thinking, or with the tools in its text, if the service refuses
    /// what was asked for.
    async fn single(&self, request: Request, total: Deadline) -> Result<Turn, ProviderError> {
        let markup = Box::new(self.markup(&request));
        let mut wire = self.wire_request(request);
        let mut notes = Vec::new();
        loop {
            let error = match self.send(&wire, &self.facts, total).await {
                Ok(sent) => return Ok(Turn::new(sent, markup, notes)),
                Err(error) => error,
            };
            match error.refused() {
                Some(Refused::Thinking) if wire.request.thinking != Thinking::Default => {
                    wire.request.thinking = Thinking::Default;
                    notes.push(degraded(format!(
                        "the endpoint refused thinking, so it was asked again without: {}",
                        error.message()
                    )));
                }
                Some(Refused::Tools)
                    if self.injection == HermesInjection::Auto
                        && !wire.request.tools.is_empty() =>
                {
                    wire.request = self.inject(wire.request);
                    notes.push(degraded(format!(
                        "the endpoint refused tools, so they stand in the prompt: {}",
                        error.message()
                    )));
                }
                _ => return Err(error),
            }
        }
    }

    pub(super) fn wire_request(&self, mut request: Request) -> WireRequest {
        if matches!(request.thinking, Thinking::On | Thinking::Off) && !self.preset.thinking_switch
        {
            request.thinking = Thinking::Default;
        }
        if self.injection == HermesInjection::Client {
            request = self.inject(request);
        }
        let stream = request.delivery == Delivery::Stream;
        WireRequest {
            stream,
            include_usage: stream,
            extra: self.extra.clone(),
            ..WireRequest::new(self.model_name.clone(), request)
        }
    }

    /// The request with its tools, past calls and results as text of the prompt (row B11).
    fn inject(&self, mut request: Request) -> Request {
        if request.tools.is_empty() {
            return request;
        }
        let tools = std::mem::take(&mut request.tools);
        let choice = std::mem::take(&mut request.tool_choice);
        request.messages = in_text(&request.messages, &tools, &choice, &self.tool_prompt);
        request
    }

    /// Sends a request as it is and waits for its first output.
    pub(super) async fn send(
        &self,
        wire: &WireRequest,
        facts: &WireFacts,
        total: Deadline,
    ) -> Result<Sent, ProviderError> {
        let started = Instant::now();
        let encoded = (self.format.encode)(wire, facts)?;
        let body = Bytes::from(encoded.body);
        let uri = match wire.continue_final {
            true => &self.continue_uri,
            false => &self.uri,
        };
        let session = self.endpoint.session(&wire.request);
        let call = || Call {
            uri: uri.clone(),
            session,
            body: body.clone(),
            framing: self.format.framing,
            delivery: wire.request.delivery,
            decoder: (self.format.decoder)(encoded.context.clone()),
        };
        let exchange = self.endpoint.open(call, total).await?;
        Ok(Sent {
            exchange,
            notes: encoded.diagnostics,
            started,
            budget: wire.request.budget,
        })
    }

    fn markup(&self, request: &Request) -> MarkupReader {
        MarkupReader::new(self.syntax.clone(), self.call_rules(request), request)
    }

    /// What calls in the text of a turn are judged by.
    pub(super) fn call_rules(&self, request: &Request) -> CallRules {
        call_rules(request, self.calls.clone())
    }
}

impl Backend for Chat {
    fn open(&self, request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        // Two futures: one would be as large as the larger in every turn.
        match request.budget {
            TurnBudget::TwoPass {
                max_thinking_tokens,
                ..
            } => self.budgeted(request, max_thinking_tokens).boxed(),
            TurnBudget::OnePass { .. } => self.single(request).boxed(),
        }
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { Ok(()) }.boxed()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

fn degraded(message: String) -> Diagnostic {
    Diagnostic::new(DiagnosticKind::Degraded, message)
}

/// An answer that has begun.
pub(super) struct Sent {
    pub(super) exchange: Box<Exchange>,
    pub(super) notes: Vec<Diagnostic>,
    started: Instant,
    budget: TurnBudget,
}

/// A turn of one request.
struct Turn {
    sent: Sent,
    markup: Box<MarkupReader>,
    items: VecDeque<TurnItem>,
}

impl Turn {
    fn new(mut sent: Sent, mut markup: Box<MarkupReader>, mut notes: Vec<Diagnostic>) -> Self {
        let mut out = Vec::new();
        notes.append(&mut sent.notes);
        for note in notes {
            markup.handle(Event::Diagnostic(note), &mut out);
        }
        Self {
            sent,
            markup,
            items: out.into_iter().map(TurnItem::Event).collect(),
        }
    }
}

impl TurnSource for Turn {
    async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(Ok(item));
            }
            let mut out = Vec::new();
            let done = match self.sent.exchange.next().await? {
                Err(error) => return Some(Err(error)),
                Ok(TurnItem::Event(event)) => {
                    self.markup.handle(event, &mut out);
                    None
                }
                Ok(TurnItem::Done(whole)) => {
                    let reports = reports(&self.sent, &whole);
                    Some(self.markup.finish(&whole, reports, &mut out))
                }
            };
            self.items.extend(out.into_iter().map(TurnItem::Event));
            self.items
                .extend(done.map(|reply| TurnItem::Done(Box::new(reply))));
        }
    }
}

/// What the one request did. With a budget of the service's own it stands for two passes.
fn reports(sent: &Sent, whole: &Reply) -> Vec<PassReport> {
    let usage = &whole.usage;
    let single = PassReport {
        name: "single",
        means: "single",
        max_tokens: None,
        prefill_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        cached_tokens: usage.cached_tokens,
        decode_tokens: usage.thinking_tokens + usage.response_tokens,
        duration_ms: sent.started.elapsed().as_secs_f64() * 1000.0,
        stop_reason: whole.stop_reason.clone(),
    };
    match sent.budget {
        TurnBudget::OnePass { max_tokens } => vec![PassReport {
            max_tokens,
            ..single
        }],
        TurnBudget::TwoPass {
            max_thinking_tokens,
            max_response_tokens,
            ..
        } => vec![
            PassReport {
                name: "thinking",
                means: "native_budget",
                max_tokens: Some(max_thinking_tokens),
                decode_tokens: usage.thinking_tokens,
                duration_ms: 0.0,
                ..single.clone()
            },
            PassReport {
                name: "answer",
                means: "native_budget",
                max_tokens: Some(max_response_tokens),
                prefill_tokens: 0,
                cached_tokens: 0,
                decode_tokens: usage.response_tokens,
                ..single
            },
        ],
    }
}
