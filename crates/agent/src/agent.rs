//! The one driver of the loop: a provider and a tool registry, and nothing else that waits.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use twopass_core::chat::{Message, ToolCall, ToolChoice};
use twopass_core::tool_parser::ToolSet;
use twopass_provider::{CallOptions, ErrorKind, Provider, ProviderError, TurnItem, TurnStream};
use twopass_tools::working_memory::WorkingMemory;
use twopass_tools::{Consent, Decision, Effect, ToolContext, ToolOutput, ToolRegistry};

use crate::{AgentEvent, Instructions, LoopOptions, Outcome, Step, TurnLoop};

/// How an agent works.
#[derive(Debug, Clone, Default)]
pub struct AgentOptions {
    /// Limits, guardrails, compaction.
    pub turns: LoopOptions,
    /// What every request says; its tools are the registry's.
    pub call: CallOptions,
    /// The system prompt, before the conversation. `None` = what the conversation brings.
    pub instructions: Option<Instructions>,
}

/// A model with tools. Cheap to clone.
#[derive(Clone)]
pub struct Agent {
    provider: Provider,
    tools: Arc<ToolRegistry>,
    context: ToolContext,
    options: AgentOptions,
}

impl Agent {
    /// An agent of these parts. Whatever the provider's backend, it works the same (row B18).
    #[must_use]
    pub fn new(
        provider: Provider,
        tools: Arc<ToolRegistry>,
        context: ToolContext,
        options: AgentOptions,
    ) -> Self {
        Self {
            provider,
            tools,
            context,
            options,
        }
    }

    /// The provider.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(crate) fn set_provider(&mut self, provider: Provider) {
        self.provider = provider;
    }

    pub(crate) fn call_mut(&mut self) -> &mut CallOptions {
        &mut self.options.call
    }

    /// The tools.
    #[must_use]
    pub fn tools(&self) -> &Arc<ToolRegistry> {
        &self.tools
    }

    /// Where the tools run.
    #[must_use]
    pub fn context(&self) -> &ToolContext {
        &self.context
    }

    /// How it works.
    #[must_use]
    pub fn options(&self) -> &AgentOptions {
        &self.options
    }

    /// Begins a run over this conversation, whose last message is the task. Nothing happens
    /// before [`Run::next`].
    #[must_use]
    pub fn start(&self, messages: Vec<Message>) -> Run {
        let tools = Arc::new(ToolSet::new(self.tools.specs()));
        let turns = self.options.turns.clone();
        Run {
            turns: TurnLoop::new(turns, messages, tools),
            agent: self.clone(),
            model: Model::Idle,
            queue: VecDeque::new(),
            asking: Vec::new(),
            running: FuturesUnordered::new(),
            is_exclusive: false,
            seen_revision: 0,
        }
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("provider", &self.provider)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A run under way. Dropping it cancels what is under way: the model's stream closes, running
/// calls stop. [`Run::cancel`] does the same and gives the outcome.
pub struct Run {
    agent: Agent,
    turns: TurnLoop,
    model: Model,
    /// Calls of the step that have not begun, in call order.
    queue: VecDeque<ToolCall>,
    /// Calls that wait for a person.
    asking: Vec<ToolCall>,
    running: FuturesUnordered<BoxFuture<'static, (String, ToolOutput)>>,
    /// A call that changes something is under way: nothing else begins.
    is_exclusive: bool,
    /// The revision of the working memory that the instructions show; they start at 1.
    seen_revision: u64,
}

enum Model {
    Idle,
    Opening(BoxFuture<'static, Result<TurnStream, ProviderError>>),
    Streaming(Box<TurnStream>),
}

impl Run {
    /// The next event; `None` after [`AgentEvent::Ended`]. Cancel safe: a future that is
    /// dropped loses nothing.
    ///
    /// After [`AgentEvent::ConsentNeeded`] it goes on with other calls, then waits until
    /// [`Run::consent`] was called.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        loop {
            self.refresh_instructions();
            match self.turns.poll() {
                Step::Emit(event) => return Some(event),
                Step::Ask(messages) => self.ask(messages),
                Step::Run(calls) => self.queue.extend(calls),
                Step::Wait => {
                    if let Some(event) = self.advance().await {
                        return Some(event);
                    }
                }
                Step::Done => return None,
            }
        }
    }

    /// Says what a person said of a call that needed consent. Unknown ids are ignored.
    pub fn consent(&mut self, call_id: &str, consent: Consent) {
        let asked = self.asking.iter().position(|call| call.id == call_id);
        if let Some(at) = asked {
            let call = self.asking.remove(at);
            self.begin(call, consent);
        }
    }

    /// Stops whatever is under way and ends the run, with every call answered.
    pub fn cancel(&mut self) {
        self.model = Model::Idle;
        self.queue.clear();
        self.asking.clear();
        self.running.clear();
        self.turns.handle_cancel();
    }

    /// Runs to the end without a person: calls that need consent are refused.
    pub async fn finish(mut self) -> Outcome {
        while let Some(event) = self.next().await {
            if let AgentEvent::ConsentNeeded { call } = event {
                self.consent(&call.id, Consent::NotAsked);
            }
        }
        self.turns.into_outcome()
    }

    /// Puts the instructions in front, again whenever the working memory has changed.
    fn refresh_instructions(&mut self) {
        let Some(instructions) = &self.agent.options.instructions else {
            return;
        };
        let revision = instructions.memory().map_or(1, WorkingMemory::revision);
        if revision != self.seen_revision {
            self.seen_revision = revision;
            self.turns.set_instructions(instructions.to_message());
        }
    }

    fn ask(&mut self, messages: Vec<Message>) {
        let specs = self.agent.tools.specs();
        self.turns.set_tools(Arc::new(ToolSet::new(specs.clone())));
        let forced = self.turns.forced_tool();
        let tool_choice = forced.map(|name| ToolChoice::Named(name.to_owned()));
        let usual = &self.agent.options.call.tool_choice;
        let options = CallOptions {
            tools: specs,
            tool_choice: tool_choice.unwrap_or_else(|| usual.clone()),
            ..self.agent.options.call.clone()
        };
        let provider = self.agent.provider.clone();
        let opening = async move {
            let request = provider.request(messages, options)?;
            provider.stream(request).await
        };
        self.model = Model::Opening(opening.boxed());
    }

    /// Waits for one thing that is under way and tells the loop.
    async fn advance(&mut self) -> Option<AgentEvent> {
        match &mut self.model {
            Model::Opening(opening) => {
                let opened = opening.await;
                self.model = Model::Idle;
                match opened {
                    Ok(stream) => self.model = Model::Streaming(Box::new(stream)),
                    Err(error) => self.fail(error),
                }
                return None;
            }
            Model::Streaming(stream) => {
                let item = stream.next().await;
                self.take(item);
                return None;
            }
            Model::Idle => {}
        }
        if let Some(event) = self.begin_calls() {
            return Some(event);
        }
        match self.running.next().await {
            Some((call_id, output)) => {
                self.is_exclusive &= !self.running.is_empty();
                self.turns.handle_result(&call_id, output);
            }
            // The loop waits although nothing is under way: a fault of ours, never a hang.
            None if self.asking.is_empty() && self.queue.is_empty() => self.cancel(),
            // Only a person can make it go on.
            None => pending().await,
        }
        None
    }

    fn take(&mut self, item: Option<Result<TurnItem, ProviderError>>) {
        match item {
            Some(Ok(TurnItem::Event(event))) => self.turns.handle_event(event),
            Some(Ok(TurnItem::Done(reply))) => {
                self.model = Model::Idle;
                self.turns.handle_reply(*reply);
            }
            Some(Err(error)) => self.fail(error),
            None => self.fail(ProviderError::new(
                ErrorKind::StreamTruncated,
                "the turn ended without its end",
            )),
        }
    }

    fn fail(&mut self, error: ProviderError) {
        self.model = Model::Idle;
        let error = error.with_provider(self.agent.provider.name());
        self.turns.handle_failure(error);
    }

    /// Begins the next call if it may begin now: calls that only look at things run side by
    /// side, a call that changes something runs alone, in its place among the others.
    fn begin_calls(&mut self) -> Option<AgentEvent> {
        if self.is_exclusive {
            return None;
        }
        let changes = self.changes_something(&self.queue.front()?.name);
        let is_free = self.running.is_empty() && self.asking.is_empty();
        if changes && !is_free {
            return None;
        }
        let call = self.queue.pop_front()?;
        self.is_exclusive = changes;
        if self.agent.tools.decide(&call.name) == Decision::Ask {
            self.asking.push(call.clone());
            return Some(AgentEvent::ConsentNeeded { call });
        }
        // What is refused is refused by the registry, in its own words.
        self.begin(call.clone(), Consent::NotAsked);
        Some(AgentEvent::CallStarted { call })
    }

    fn begin(&mut self, call: ToolCall, consent: Consent) {
        let tools = Arc::clone(&self.agent.tools);
        let context = self.agent.context.clone();
        let run = async move {
            let output = tools.run(&call, &context, consent).await;
            (call.id, output)
        };
        self.running.push(run.boxed());
    }

    fn changes_something(&self, name: &str) -> bool {
        let tool = self.agent.tools.get(name);
        tool.is_some_and(|tool| matches!(tool.effect(), Effect::Writes | Effect::Executes))
    }
}
