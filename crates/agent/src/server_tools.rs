//! Tools that a server carries out itself, also for clients that know nothing of them
//! (rows I3, L7).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use twopass_core::chat::{
    Arguments, Diagnostic, DiagnosticKind, Event, Message, Reply, Request, ResponseFormat,
    StopReason, ToolCall, ToolChoice, Usage,
};
use twopass_core::control::ReplyAssembler;
use twopass_provider::config::ProviderConfig;
use twopass_provider::{
    Backend, Provider, ProviderError, RawRequest, TurnItem, TurnSource, TurnStream,
};
use twopass_tools::{Consent, ToolContext, ToolRegistry};

/// How often a turn goes on after calls of the server's own tools.
const MAX_ROUNDS: u32 = 5;

/// The same provider, with tools of the server's own beside those of each request.
///
/// A turn that calls only those goes on within the same turn: the client sees neither the
/// calls nor their results, and its usage is the sum. In a turn that calls both, the server's
/// calls run and the client gets its own. Requests that demand a call, forbid calls or bind
/// the answer's form are left as they are, and so is a client's tool of the same name. The
/// entry's fallbacks have the tools too.
#[must_use]
pub fn with_server_tools(
    provider: Provider,
    tools: &Arc<ToolRegistry>,
    context: &ToolContext,
) -> Provider {
    provider.map_backend(|inner| {
        Arc::new(ServerTools {
            inner,
            tools: Arc::clone(tools),
            context: context.clone(),
        })
    })
}

struct ServerTools {
    inner: Arc<dyn Backend>,
    tools: Arc<ToolRegistry>,
    context: ToolContext,
}

impl ServerTools {
    /// Adds the tools to a request; gives the names of those that were added.
    fn add_to(&self, request: &mut Request) -> Vec<String> {
        let is_free = request.tool_choice == ToolChoice::Auto
            && request.response_format == ResponseFormat::Text;
        if !is_free {
            return Vec::new();
        }
        let own = self.tools.specs().into_iter();
        let own: Vec<_> = own
            .filter(|spec| !request.tools.iter().any(|tool| tool.name == spec.name))
            .collect();
        let names = own.iter().map(|spec| spec.name.clone()).collect();
        request.tools.extend(own);
        names
    }
}

impl Backend for ServerTools {
    fn open(&self, mut request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        async move {
            let own = self.add_to(&mut request);
            let stream = self.inner.open(request.clone()).await?;
            if own.is_empty() {
                return Ok(stream);
            }
            let turn = Turn {
                inner: Arc::clone(&self.inner),
                tools: Arc::clone(&self.tools),
                context: self.context.clone(),
                request,
                own,
                stream: Some(stream),
                ready: VecDeque::new(),
                shown: Shown::default(),
                usage: Usage::default(),
                n_rounds: 0,
            };
            Ok(TurnStream::of(turn))
        }
        .boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        self.inner.prepare()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    fn complete(&self, request: RawRequest) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        self.inner.complete(request)
    }

    fn count_prompt(
        &self,
        mut request: Request,
    ) -> BoxFuture<'_, Result<Option<u64>, ProviderError>> {
        self.add_to(&mut request);
        self.inner.count_prompt(request)
    }

    fn heir(&self, entry: &ProviderConfig) -> Option<Arc<dyn Backend>> {
        self.inner.heir(entry)
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }

    fn most_turns(&self) -> Option<usize> {
        self.inner.most_turns()
    }

    fn stats(&self) -> Vec<(&'static str, f64)> {
        self.inner.stats()
    }
}

/// A turn of a client, which may be several of the model.
struct Turn {
    inner: Arc<dyn Backend>,
    tools: Arc<ToolRegistry>,
    context: ToolContext,
    request: Request,
    /// Names of the tools that the client does not know.
    own: Vec<String>,
    /// The model's turn; none after the end.
    stream: Option<TurnStream>,
    ready: VecDeque<TurnItem>,
    shown: Shown,
    usage: Usage,
    n_rounds: u32,
}

/// What the client has seen.
#[derive(Default)]
struct Shown {
    reply: ReplyAssembler,
    /// Which call of the client's turn a call of the model's turn is; none = hidden.
    places: HashMap<usize, Option<usize>>,
    n_calls: usize,
    has_text: bool,
    has_reasoning: bool,
    /// A further round began: its text and its reasoning stand apart from what came.
    wants_text_gap: bool,
    wants_reasoning_gap: bool,
    /// What belongs to the model's turn as it was; the client gets it with the last one.
    held: Vec<Event>,
}

impl TurnSource for Turn {
    async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            match self.stream.as_mut()?.next().await {
                Some(Ok(TurnItem::Event(event))) => self.show(event),
                Some(Ok(TurnItem::Done(reply))) => {
                    self.stream = None;
                    if let Err(error) = self.end_round(*reply).await {
                        return Some(Err(error));
                    }
                }
                Some(Err(error)) => {
                    self.stream = None;
                    return Some(Err(error));
                }
                None => self.stream = None,
            }
        }
    }
}

impl Turn {
    fn show(&mut self, event: Event) {
        for event in self.shown.events(event, &self.own) {
            self.shown.reply.handle(&event);
            self.ready.push_back(TurnItem::Event(event));
        }
    }

    /// Runs what is ours; then the model goes on, or the client's turn is done.
    async fn end_round(&mut self, reply: Reply) -> Result<(), ProviderError> {
        self.add_usage(&reply.usage);
        let is_own = |name: &str| self.own.iter().any(|own| own == name);
        let calls = reply.tool_calls.iter();
        let mut own: Vec<ToolCall> = calls.filter(|call| is_own(&call.name)).cloned().collect();
        let invalid = reply.invalid_tool_calls.iter();
        let (bad, foreign): (Vec<_>, Vec<_>) =
            invalid.partition(|call| call.name.as_deref().is_some_and(is_own));
        let is_mixed = own.len() < reply.tool_calls.len() || !foreign.is_empty();
        let mut results = Vec::new();
        for call in &own {
            let output = self.tools.run(call, &self.context, Consent::NotAsked).await;
            results.push(Message {
                is_error: output.is_error(),
                ..Message::tool_result(&call.id, output.text)
            });
        }
        for call in bad {
            results.push(Message {
                is_error: true,
                ..Message::tool_result(&call.id, call.message.clone())
            });
            own.push(ToolCall {
                id: call.id.clone(),
                name: call.name.clone().unwrap_or_default(),
                arguments: Arguments::from_text(&call.arguments)
                    .unwrap_or_else(|_| Arguments::from_object(Default::default())),
            });
        }
        let goes_on = !own.is_empty() && !is_mixed && self.n_rounds < MAX_ROUNDS;
        if !goes_on {
            self.finish(reply, is_mixed, own.len());
            return Ok(());
        }
        self.n_rounds += 1;
        self.request.messages.push(Message {
            tool_calls: own,
            ..reply.to_message()
        });
        self.request.messages.extend(results);
        self.shown.begin_anew();
        self.stream = Some(self.inner.open(self.request.clone()).await?);
        Ok(())
    }

    fn finish(&mut self, last: Reply, is_mixed: bool, n_own: usize) {
        for item in std::mem::take(&mut self.shown.held) {
            self.shown.reply.handle(&item);
            self.ready.push_back(TurnItem::Event(item));
        }
        let has_calls = self.shown.n_calls > 0;
        let stop_reason = match last.stop_reason {
            StopReason::ToolCalls if !has_calls => StopReason::EndTurn,
            reason => reason,
        };
        if n_own > 0 {
            let what = match is_mixed {
                true => "calls of the server's own tools ran beside the client's",
                false => "the model went on calling the server's own tools",
            };
            self.show(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::Degraded,
                what,
            )));
        }
        let shown = std::mem::take(&mut self.shown.reply);
        let reply = Reply {
            usage: self.usage,
            reasoning_truncated: last.reasoning_truncated,
            ..shown.finish(stop_reason)
        };
        self.ready.push_back(TurnItem::Done(Box::new(reply)));
    }

    fn add_usage(&mut self, usage: &Usage) {
        self.usage.prompt_tokens += usage.prompt_tokens;
        self.usage.thinking_tokens += usage.thinking_tokens;
        self.usage.response_tokens += usage.response_tokens;
        self.usage.cached_tokens += usage.cached_tokens;
    }
}

impl Shown {
    fn begin_anew(&mut self) {
        self.places.clear();
        self.held.clear();
        self.wants_text_gap = self.has_text;
        self.wants_reasoning_gap = self.has_reasoning;
    }

    /// What the client sees of an event of the model's turn.
    fn events(&mut self, event: Event, own: &[String]) -> Vec<Event> {
        let is_own =
            |name: Option<&str>| name.is_some_and(|name| own.iter().any(|own| own == name));
        match event {
            Event::CallStarted { call_idx, id, name } => {
                let place = self.place(call_idx, is_own(Some(&name)));
                let started = |call_idx| Event::CallStarted { call_idx, id, name };
                place.map(started).into_iter().collect()
            }
            Event::ArgumentsDelta { call_idx, text } => {
                let place = self.places.get(&call_idx).copied().flatten();
                let piece = |call_idx| Event::ArgumentsDelta { call_idx, text };
                place.map(piece).into_iter().collect()
            }
            Event::CallFinished { call_idx, call } => {
                let place = self.place(call_idx, is_own(Some(&call.name)));
                let finished = |call_idx| Event::CallFinished { call_idx, call };
                place.map(finished).into_iter().collect()
            }
            Event::CallRejected { call_idx, call } => {
                let place = self.place(call_idx, is_own(call.name.as_deref()));
                let rejected = |call_idx| Event::CallRejected { call_idx, call };
                place.map(rejected).into_iter().collect()
            }
            Event::TextDelta(text) => {
                self.has_text = true;
                let gap = std::mem::take(&mut self.wants_text_gap);
                let gap = gap.then(|| Event::TextDelta("\n\n".to_owned()));
                gap.into_iter().chain([Event::TextDelta(text)]).collect()
            }
            Event::ReasoningDelta(text) => {
                self.has_reasoning = true;
                let gap = std::mem::take(&mut self.wants_reasoning_gap);
                let gap = gap.then_some(Event::ReasoningBlockEnd);
                gap.into_iter()
                    .chain([Event::ReasoningDelta(text)])
                    .collect()
            }
            Event::Reclassified => {
                self.has_text = false;
                vec![Event::Reclassified]
            }
            item @ Event::ProviderItem(_) => {
                self.held.push(item);
                Vec::new()
            }
            other => vec![other],
        }
    }

    fn place(&mut self, call_idx: usize, is_own: bool) -> Option<usize> {
        if let Some(place) = self.places.get(&call_idx) {
            return *place;
        }
        let place = (!is_own).then_some(self.n_calls);
        self.n_calls += usize::from(!is_own);
        self.places.insert(call_idx, place);
        place
    }
}
