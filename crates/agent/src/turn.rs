//! The driver of one user message: the run, then, for workflow agents, the update of the
//! memory.

use futures_util::future::{BoxFuture, FutureExt};
use twopass_core::chat::{Message, ToolChoice, Usage};
use twopass_provider::{CallOptions, Provider};
use twopass_tools::working_memory::{Strategy, WorkingMemory};
use twopass_tools::{Consent, Policy, ToolContext, ToolError, ToolRegistry};

use crate::memory_update::{Edits, MemoryUpdate};
use crate::{AgentEvent, EndReason, Outcome, Run};

/// The answering of one message. Dropping it cancels.
pub struct Turn {
    run: Run,
    question: String,
    /// What is to happen after the answer.
    updater: Option<Updater>,
    update: Option<Update>,
    /// The end, which is told last.
    ended: Option<Box<Outcome>>,
}

/// What an update of the memory needs.
#[derive(Clone)]
pub(crate) struct Updater {
    pub(crate) provider: Provider,
    pub(crate) context: ToolContext,
    pub(crate) call: CallOptions,
    pub(crate) memory: WorkingMemory,
    pub(crate) strategy: Strategy,
}

/// An update under way.
struct Update {
    updater: Updater,
    machine: MemoryUpdate,
    attempt: Option<BoxFuture<'static, Attempt>>,
}

/// What came of an attempt.
struct Attempt {
    usage: Usage,
    outcome: Result<(), Failure>,
}

enum Failure {
    /// The model's reply was wrong; it hears why.
    Reply { reply: String, error: String },
    /// Another try would fare no better.
    Final(String),
}

impl Turn {
    pub(crate) fn new(run: Run, updater: Option<Updater>, question: String) -> Self {
        Self {
            run,
            question,
            updater,
            update: None,
            ended: None,
        }
    }

    /// The next event; `None` after [`AgentEvent::Ended`]. Cancel safe.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        loop {
            if let Some(update) = &mut self.update {
                if let Some(event) = update.next().await {
                    return Some(event);
                }
                self.update = None;
            }
            if let Some(outcome) = self.ended.take() {
                return Some(AgentEvent::Ended(outcome));
            }
            match self.run.next().await? {
                AgentEvent::Ended(outcome) => {
                    let updater = self.updater.take();
                    let updater = updater.filter(|_| outcome.end == EndReason::Answer);
                    self.update = updater.and_then(|updater| {
                        Update::new(updater, &self.question, &outcome.answer).ok()
                    });
                    self.ended = Some(outcome);
                }
                event => return Some(event),
            }
        }
    }

    /// Says what a person said of a call that needed consent.
    pub fn consent(&mut self, call_id: &str, consent: Consent) {
        self.run.consent(call_id, consent);
    }

    /// Stops whatever is under way. An answer that is there already stays the answer.
    pub fn cancel(&mut self) {
        self.updater = None;
        self.update = None;
        if self.ended.is_none() {
            self.run.cancel();
        }
    }

    /// Runs to the end without a person: calls that need consent are refused.
    pub async fn finish(mut self) -> Option<Outcome> {
        loop {
            match self.next().await? {
                AgentEvent::ConsentNeeded { call } => self.consent(&call.id, Consent::NotAsked),
                AgentEvent::Ended(outcome) => return Some(*outcome),
                _ => {}
            }
        }
    }
}

impl Update {
    fn new(updater: Updater, question: &str, answer: &str) -> Result<Self, ToolError> {
        let tools = updater.registry(&updater.memory)?.specs();
        let machine = MemoryUpdate::new(&updater.memory.text(), (question, answer), tools);
        Ok(Self {
            updater,
            machine,
            attempt: None,
        })
    }

    /// The outcome of the next attempt; `None` if there is no further one.
    async fn next(&mut self) -> Option<AgentEvent> {
        let attempt = match &mut self.attempt {
            Some(attempt) => attempt,
            None => {
                let messages = self.machine.ask()?;
                let updater = self.updater.clone();
                let attempt = updater.attempt(self.machine.clone(), messages);
                self.attempt.insert(attempt.boxed())
            }
        };
        let Attempt { usage, outcome } = attempt.await;
        self.attempt = None;
        let error = match outcome {
            Ok(()) => {
                self.machine.finish();
                None
            }
            Err(Failure::Reply { reply, error }) => {
                self.machine.handle_error(&reply, &error);
                Some(error)
            }
            Err(Failure::Final(error)) => {
                self.machine.finish();
                Some(error)
            }
        };
        Some(AgentEvent::MemoryUpdated {
            attempt: self.machine.n_attempts(),
            error,
            revision: self.updater.memory.revision(),
            usage,
        })
    }
}

impl Updater {
    /// The tools that edit this memory; nobody need be asked about them.
    fn registry(&self, memory: &WorkingMemory) -> Result<ToolRegistry, ToolError> {
        let registry = ToolRegistry::new();
        registry.set_default_policy(Policy::Auto);
        memory.register(&registry, self.strategy)?;
        Ok(registry)
    }

    async fn attempt(self, machine: MemoryUpdate, messages: Vec<Message>) -> Attempt {
        let options = CallOptions {
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            ..self.call.clone()
        };
        let generated = async {
            let request = self.provider.request(messages, options)?;
            self.provider.generate(request).await
        };
        let reply = match generated.await {
            Ok(reply) => reply,
            Err(error) => {
                return Attempt {
                    usage: Usage::default(),
                    outcome: Err(Failure::Final(error.to_string())),
                };
            }
        };
        let outcome = match machine.read(&reply.content) {
            Ok(edits) => self.apply(&edits).await,
            Err(error) => Err(error),
        };
        Attempt {
            usage: reply.usage,
            outcome: outcome.map_err(|error| Failure::Reply {
                reply: reply.content,
                error,
            }),
        }
    }

    /// Makes all edits or none: first on a copy, then on the memory itself.
    async fn apply(&self, edits: &Edits) -> Result<(), String> {
        let copy = WorkingMemory::new(self.memory.text());
        for memory in [&copy, &self.memory] {
            let registry = self.registry(memory).map_err(|error| error.to_string())?;
            for edit in edits {
                let output = registry.run(edit, &self.context, Consent::NotAsked).await;
                if output.is_error() {
                    return Err(format!("`{}`: {}", edit.name, output.text));
                }
            }
        }
        Ok(())
    }
}
