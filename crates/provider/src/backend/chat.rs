//! Chat services: Chat Completions, Responses, Anthropic Messages, Ollama.
//!
//! ```text
//!  Request -> WireRequest -> Format::encode -> Endpoint::open -> Decoder -> MarkupReader -> items
//! ```
//! One code for all of them: a [`Format`] is a row of functions, a [`Preset`] a row of facts.

use std::collections::VecDeque;
use std::time::Instant;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::unfold;
use twopass_core::chat::{
    Delivery, Diagnostic, DiagnosticKind, Event, PassReport, Reply, Request, Thinking, TurnBudget,
};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::tool_parser::ToolSyntax;
use twopass_wire::facts::WireFacts;
use twopass_wire::fault::Refused;
use twopass_wire::{DecodeContext, WireRequest};
use url::Url;

use super::exchange::{Call, Endpoint, Exchange};
use super::format::Format;
use super::markup::MarkupReader;
use super::{Backend, TurnItem, TurnStream};
use crate::config::ProviderConfig;
use crate::http::Deadline;
use crate::plan::reasoning_syntax;
use crate::preset::Preset;
use crate::{ErrorKind, ProviderError, endpoint};

/// A client of one chat service.
#[derive(Debug)]
pub struct Chat {
    endpoint: Endpoint,
    url: Url,
    format: &'static Format,
    preset: &'static Preset,
    facts: WireFacts,
    model_name: String,
    reasoning: ReasoningSyntax,
    tools: ToolSyntax,
}

impl Chat {
    /// A client of the configured service. Opens no connection.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: the entry is of no chat service, has no address, or names
    /// an unknown dialect.
    pub fn new(config: &ProviderConfig) -> Result<Self, ProviderError> {
        let fault = |message: String| ProviderError::new(ErrorKind::Config, message);
        let format = Format::of(config.backend)
            .ok_or_else(|| fault(format!("`{}` is no chat service", config.backend)))?;
        let dialect = config.tool_parser.as_str();
        let tools = ToolSyntax::from_name_with(dialect, &config.dialects).ok_or_else(|| {
            fault(format!("unknown dialect `{dialect}`")).with_param("tool_parser")
        })?;
        let preset = config.preset();
        Ok(Self {
            endpoint: endpoint::connect(config)?,
            url: endpoint::turn_url(config)?,
            format,
            preset,
            facts: WireFacts {
                reasoning_replay: config.replay_policy(),
                ..preset.facts
            },
            model_name: config.model_name.clone(),
            reasoning: reasoning_syntax(config),
            tools,
        })
    }

    async fn start(&self, request: Request) -> Result<TurnStream, ProviderError> {
        let total = self.endpoint.total_deadline();
        let (asked, notes) = self.ask(self.wire_request(request), total).await?;
        let turn = Turn::new(asked, notes);
        Ok(TurnStream::new(unfold(turn, |mut turn| async move {
            Some((turn.next().await?, turn))
        })))
    }

    fn wire_request(&self, mut request: Request) -> WireRequest {
        if matches!(request.thinking, Thinking::On | Thinking::Off) && !self.preset.thinking_switch
        {
            request.thinking = Thinking::Default;
        }
        let stream = request.delivery == Delivery::Stream;
        WireRequest {
            stream,
            include_usage: stream,
            ..WireRequest::new(self.model_name.clone(), request)
        }
    }

    /// Sends the request; without thinking if that is what the service refuses.
    async fn ask(
        &self,
        mut wire: WireRequest,
        total: Deadline,
    ) -> Result<(Asked, Vec<Diagnostic>), ProviderError> {
        let mut notes = Vec::new();
        loop {
            match self.send(&wire, total).await {
                Err(error)
                    if error.refused() == Some(Refused::Thinking) && asks_thinking(&wire) =>
                {
                    notes.push(Diagnostic::new(
                        DiagnosticKind::Degraded,
                        format!(
                            "the endpoint refused thinking, so it was asked again without: {}",
                            error.message()
                        ),
                    ));
                    wire = without_thinking(wire);
                }
                Err(error) => return Err(error),
                Ok(asked) => return Ok((asked, notes)),
            }
        }
    }

    /// Sends the request as it is and waits for its first output.
    async fn send(&self, wire: &WireRequest, total: Deadline) -> Result<Asked, ProviderError> {
        let started = Instant::now();
        let encoded = (self.format.encode)(wire, &self.facts)?;
        let call = || Call {
            url: self.url.clone(),
            body: encoded.body.clone(),
            framing: self.format.framing,
            delivery: wire.request.delivery,
            decoder: (self.format.decoder)(encoded.context.clone()),
        };
        let exchange = self.endpoint.open(call, total).await?;
        Ok(Asked {
            exchange,
            markup: self.markup(&encoded.context),
            notes: encoded.diagnostics,
            started,
            budget: wire.request.budget,
        })
    }

    fn markup(&self, context: &DecodeContext) -> MarkupReader {
        MarkupReader::new(
            self.reasoning.clone(),
            self.tools.clone(),
            context.rules().clone(),
        )
    }
}

impl Backend for Chat {
    fn open(&self, request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        self.start(request).boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { Ok(()) }.boxed()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// True if the request says anything of thinking.
fn asks_thinking(wire: &WireRequest) -> bool {
    wire.request.thinking != Thinking::Default
        || matches!(wire.request.budget, TurnBudget::TwoPass { .. })
}

fn without_thinking(mut wire: WireRequest) -> WireRequest {
    wire.request.thinking = Thinking::Default;
    if let TurnBudget::TwoPass {
        max_response_tokens,
        ..
    } = wire.request.budget
    {
        wire.request.budget = TurnBudget::OnePass {
            max_tokens: Some(max_response_tokens),
        };
    }
    wire
}

/// An answer that has begun.
struct Asked {
    exchange: Exchange,
    markup: MarkupReader,
    notes: Vec<Diagnostic>,
    started: Instant,
    budget: TurnBudget,
}

/// A turn of one request.
struct Turn {
    asked: Asked,
    items: VecDeque<TurnItem>,
}

impl Turn {
    fn new(mut asked: Asked, mut notes: Vec<Diagnostic>) -> Self {
        let mut out = Vec::new();
        notes.append(&mut asked.notes);
        for note in notes {
            asked.markup.handle(Event::Diagnostic(note), &mut out);
        }
        Self {
            asked,
            items: out.into_iter().map(TurnItem::Event).collect(),
        }
    }

    /// The next item. Cancel safe.
    async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(Ok(item));
            }
            let mut out = Vec::new();
            let done = match self.asked.exchange.next().await? {
                Err(error) => return Some(Err(error)),
                Ok(TurnItem::Event(event)) => {
                    self.asked.markup.handle(event, &mut out);
                    None
                }
                Ok(TurnItem::Done(whole)) => {
                    let reports = reports(&self.asked, &whole);
                    Some(self.asked.markup.finish(&whole, reports, &mut out))
                }
            };
            self.items.extend(out.into_iter().map(TurnItem::Event));
            self.items
                .extend(done.map(|reply| TurnItem::Done(Box::new(reply))));
        }
    }
}

/// What the one request did. With a budget of the service's own it stands for two passes.
fn reports(asked: &Asked, whole: &Reply) -> Vec<PassReport> {
    let usage = &whole.usage;
    let single = PassReport {
        name: "single",
        means: "single",
        max_tokens: None,
        prefill_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        cached_tokens: usage.cached_tokens,
        decode_tokens: usage.thinking_tokens + usage.response_tokens,
        duration_ms: asked.started.elapsed().as_secs_f64() * 1000.0,
        stop_reason: whole.stop_reason.clone(),
    };
    match asked.budget {
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
