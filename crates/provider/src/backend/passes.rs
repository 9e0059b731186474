//! Two passes over a chat service (rows D7-D11, D13, D14).
//!
//! ```text
//!  TwoPass --Send--> Service::send (messages + the thought so far) --> Exchange
//!     ^-----------------------------------------------------------------' text
//! ```
//! The thought so far is the last, assistant's message of a pass and never leaves this file
//! (row D9). How the service is told to go on after it is the current means; a refused one
//! falls to the next, with a diagnostic.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use twopass_core::chat::{
    Diagnostic, DiagnosticKind, Event, InvalidToolCall, Message, OpaqueItem, Part, PassReport,
    Reply, Request, Role, StopReason, ThinkTag, Thinking, ToolCall, TurnBudget,
};
use twopass_core::chat_template::ThinkFraming;
use twopass_core::control::{
    Means, PassEnd, PassRequest, Step, TurnParserOptions, TurnPlan, TwoPass,
};
use twopass_core::tool_parser::CallRules;
use twopass_wire::WireRequest;
use twopass_wire::facts::{Continuation, WireFacts};

use super::chat::Service;
use super::exchange::Exchange;
use super::markup::{answer_form, missing_call, unforced, unread_calls};
use super::{TurnItem, TurnSource};
use crate::http::Deadline;
use crate::preset::PassMeans;
use crate::{ErrorKind, ProviderError};

/// A turn in two requests.
pub(crate) struct Passes {
    service: Arc<Service>,
    request: Request,
    tag: ThinkTag,
    /// The current means and those that are left.
    means: &'static [PassMeans],
    total: Deadline,
    machine: TwoPass,
    open: Option<OpenPass>,
    items: VecDeque<TurnItem>,
    /// What was given up before the first pass; told again if the turn starts anew.
    notes: Vec<Diagnostic>,
    kept: Kept,
    is_over: bool,
}

struct OpenPass {
    exchange: Box<Exchange>,
    request: PassRequest,
    started: Instant,
    /// Structured reasoning is coming in.
    in_reasoning: bool,
}

/// What came structured and passes the state machine by.
#[derive(Default)]
struct Kept {
    calls: Vec<ToolCall>,
    rejected: Vec<InvalidToolCall>,
    items: Vec<OpaqueItem>,
    has_output: bool,
}

impl Passes {
    /// Plans the turn and opens its first pass.
    ///
    /// # Errors
    /// The first pass fails by every means.
    pub(crate) async fn begin(
        service: Arc<Service>,
        request: Request,
        means: &'static [PassMeans],
        total: Deadline,
        notes: Vec<Diagnostic>,
    ) -> Result<Self, ProviderError> {
        let tag = match request.budget {
            TurnBudget::TwoPass { tag, .. } => tag,
            TurnBudget::OnePass { .. } => ThinkTag::Think,
        };
        let machine = service.machine(&request, tag, means[0]);
        let mut turn = Self {
            service,
            request,
            tag,
            means,
            total,
            machine,
            open: None,
            items: VecDeque::new(),
            notes,
            kept: Kept::default(),
            is_over: false,
        };
        turn.restart();
        while turn.open.is_none() && !turn.is_over {
            turn.advance().await?;
        }
        Ok(turn)
    }

    /// A turn at its start, by the current means.
    fn restart(&mut self) {
        self.machine = self.service.machine(&self.request, self.tag, self.means[0]);
        self.items.clear();
        for note in &self.notes {
            self.machine.handle_note(note.clone());
        }
    }
}

impl TurnSource for Passes {
    async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(Ok(item));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.advance().await {
                self.is_over = true;
                return Some(Err(error.with_output_sent(self.kept.has_output)));
            }
        }
    }
}

impl Passes {
    async fn advance(&mut self) -> Result<(), ProviderError> {
        match self.machine.poll() {
            Step::Emit(event) => {
                self.kept.has_output |=
                    matches!(event, Event::ReasoningDelta(_) | Event::TextDelta(_));
                self.items.push_back(TurnItem::Event(event));
            }
            Step::Send(pass) => self.send(pass).await?,
            Step::Read => self.read().await?,
            Step::Done(reply) => self.complete(*reply),
        }
        Ok(())
    }

    async fn send(&mut self, pass: PassRequest) -> Result<(), ProviderError> {
        loop {
            let started = Instant::now();
            let (wire, facts) = self.wire(&pass);
            match self.service.send(&wire, &facts, self.total).await {
                Ok(sent) => {
                    for note in sent.notes {
                        self.machine.handle_note(note);
                    }
                    self.open = Some(OpenPass {
                        exchange: sent.exchange,
                        request: pass,
                        started,
                        in_reasoning: false,
                    });
                    return Ok(());
                }
                Err(error) if self.may_fall(&pass, &error) => {
                    let note = fallen(self.means, &error);
                    self.means = &self.means[1..];
                    if self.kept.has_output {
                        self.machine.handle_note(note);
                    } else {
                        // Nothing was written yet: the next means opens the thought its way.
                        self.notes.push(note);
                        self.restart();
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// True if another means may do what this one cannot.
    fn may_fall(&self, pass: &PassRequest, error: &ProviderError) -> bool {
        let refuses = matches!(
            error.kind(),
            ErrorKind::BadRequest | ErrorKind::PrefillUnsupported
        );
        refuses && !pass.continuation.is_empty() && self.means.len() > 1
    }

    /// The request of a pass, and the facts that it is written by.
    fn wire(&self, pass: &PassRequest) -> (WireRequest, WireFacts) {
        let means = self.means[0];
        let mut request = self.request.clone();
        request.budget = TurnBudget::OnePass {
            max_tokens: pass.max_tokens,
        };
        request.stop.clone_from(&pass.stop);
        if means == PassMeans::AppendMessage {
            ask_for_tag(&mut request.messages, self.tag);
        }
        let continues = !pass.continuation.is_empty();
        if continues {
            let text = pass.continuation.clone();
            request.messages.push(Message::text(Role::Assistant, text));
        }
        let answers = pass.name == "answer" && continues;
        if answers && self.service.preset.thinking_switch {
            // The thought is there: an engine that would open another one answers inside it.
            request.thinking = Thinking::Off;
            let is_switch = |name: &str| name == "enable_thinking";
            request.template_kwargs.retain(|(name, _)| !is_switch(name));
        }
        let mut wire = self.service.wire_request(request);
        wire.continue_final = continues;
        let mut facts = self.service.facts;
        if means == PassMeans::AppendMessage {
            facts.continuation = Continuation::Trailing;
        }
        (wire, facts)
    }

    async fn read(&mut self) -> Result<(), ProviderError> {
        let Some(open) = &mut self.open else {
            return Err(ProviderError::new(
                ErrorKind::Internal,
                "a pass is read that is not open",
            ));
        };
        let item = match open.exchange.next().await {
            Some(item) => item?,
            None => {
                return Err(ProviderError::new(
                    ErrorKind::StreamTruncated,
                    "the pass ended without its end",
                ));
            }
        };
        match item {
            TurnItem::Event(event) => self.take(event),
            TurnItem::Done(whole) => self.end_pass(&whole),
        }
        Ok(())
    }

    /// Text and reasoning go to the state machine as the model's own text, tags and all.
    fn take(&mut self, event: Event) {
        let Some(open) = &mut self.open else { return };
        match event {
            Event::ReasoningDelta(text) => {
                if !std::mem::replace(&mut open.in_reasoning, true) && !self.machine.in_thought() {
                    self.machine.handle_text(&ThinkFraming::bare(self.tag).open);
                }
                self.machine.handle_text(&text);
            }
            Event::TextDelta(text) => {
                if std::mem::take(&mut open.in_reasoning) && self.machine.in_thought() {
                    self.machine
                        .handle_text(&ThinkFraming::bare(self.tag).close);
                }
                self.machine.handle_text(&text);
            }
            Event::Logprobs(tokens) => self.machine.handle_logprobs(tokens),
            Event::Diagnostic(note) => self.machine.handle_note(note),
            Event::ProviderItem(item) => self.kept.items.push(item),
            Event::ReasoningBlockEnd => {}
            event => {
                self.kept.has_output = true;
                match &event {
                    Event::CallFinished { call, .. } => self.kept.calls.push(call.clone()),
                    Event::CallRejected { call, .. } => self.kept.rejected.push(call.clone()),
                    _ => {}
                }
                self.items.push_back(TurnItem::Event(event));
            }
        }
    }

    fn end_pass(&mut self, whole: &Reply) {
        let Some(open) = self.open.take() else { return };
        let usage = &whole.usage;
        let report = PassReport {
            name: open.request.name,
            means: self.means[0].as_str(),
            max_tokens: open.request.max_tokens,
            prefill_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
            cached_tokens: usage.cached_tokens,
            decode_tokens: usage.thinking_tokens + usage.response_tokens,
            duration_ms: open.started.elapsed().as_secs_f64() * 1000.0,
            stop_reason: whole.stop_reason.clone(),
        };
        let stop_reason = match &whole.stop_reason {
            // Services that do not say which stop string they met (row D7).
            StopReason::EndTurn if open.request.name == "thinking" && self.machine.in_thought() => {
                StopReason::StopSequence(self.tag.close().to_owned())
            }
            // The state machine knows no structured calls.
            StopReason::ToolCalls => StopReason::EndTurn,
            other => other.clone(),
        };
        self.machine.handle_pass_end(PassEnd {
            stop_reason,
            reports: vec![report],
            usage: *usage,
            ..PassEnd::default()
        });
    }

    fn complete(&mut self, mut reply: Reply) {
        self.is_over = true;
        for item in std::mem::take(&mut self.kept.items) {
            let event = Event::ProviderItem(item.clone());
            self.items.push_back(TurnItem::Event(event));
            reply.provider_items.push(item);
        }
        let mut calls = std::mem::take(&mut self.kept.calls);
        if !calls.is_empty() {
            calls.append(&mut reply.tool_calls);
            reply.tool_calls = calls;
            if reply.stop_reason != StopReason::Length {
                reply.stop_reason = StopReason::ToolCalls;
            }
        }
        let mut rejected = std::mem::take(&mut self.kept.rejected);
        rejected.append(&mut reply.invalid_tool_calls);
        reply.invalid_tool_calls = rejected;
        if self.request.tool_choice.forces_call() && reply.tool_calls.is_empty() {
            self.note(missing_call(), &mut reply);
        }
        if !reply.content.is_empty() {
            let unread = unread_calls(&self.service.parser(&self.request), &self.request);
            if let Some(note) = unread.note(&reply) {
                self.note(note, &mut reply);
            }
        }
        self.items.push_back(TurnItem::Done(Box::new(reply)));
    }

    fn note(&mut self, note: Diagnostic, reply: &mut Reply) {
        let event = Event::Diagnostic(note.clone());
        self.items.push_back(TurnItem::Event(event));
        reply.diagnostics.push(note);
    }
}

impl Service {
    fn machine(&self, request: &Request, tag: ThinkTag, means: PassMeans) -> TwoPass {
        TwoPass::new(TurnPlan {
            budget: request.budget,
            means: Means::Continuation,
            opened_by_template: None,
            open_block: means == PassMeans::ChatPrefill,
            closed_by_template: false,
            framing: ThinkFraming::bare(tag),
            stop: request.stop.clone(),
            call_stop: None,
            call_markers: None,
            only_calls: false,
            parser: self.parser(request),
        })
    }

    fn parser(&self, request: &Request) -> TurnParserOptions {
        TurnParserOptions {
            syntax: self.syntax.clone(),
            answer_form: answer_form(request),
            calls: CallRules {
                choice: unforced(request.tool_choice.clone()),
                ..self.call_rules(request)
            },
            ..TurnParserOptions::default()
        }
    }
}

fn fallen(means: &[PassMeans], error: &ProviderError) -> Diagnostic {
    let name = |at: usize| means.get(at).map_or("none", |means| means.as_str());
    Diagnostic::new(
        DiagnosticKind::Degraded,
        format!(
            "the endpoint refused `{}`, so `{}` is used: {}",
            name(0),
            name(1),
            error.message()
        ),
    )
}

/// Row D11: a service that takes no text after the assistant boundary can only be asked.
fn ask_for_tag(messages: &mut Vec<Message>, tag: ThinkTag) {
    let (open, close) = (tag.open(), tag.close());
    let wish = format!(
        "Begin your reply with {open}, think step by step, write {close}, then give the answer."
    );
    let is_system = |message: &&mut Message| matches!(message.role, Role::System | Role::Developer);
    match messages.first_mut().filter(is_system) {
        Some(system) => {
            let wish = format!("\n\n{wish}");
            system.content.push(Part::Text(wish));
        }
        None => messages.insert(0, Message::text(Role::System, wish)),
    }
}
