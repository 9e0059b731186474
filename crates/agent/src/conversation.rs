//! Kinds of agents: how each user's message becomes an answer, and what is kept of it for the
//! next one (row L4).

use std::sync::Arc;

use twopass_core::chat::{Message, Role};
use twopass_core::control::ReplayPolicy;
use twopass_provider::{CallOptions, Provider, Thinking};
use twopass_tools::working_memory::{Strategy, WorkingMemory};
use twopass_tools::{ErrorKind, ToolContext, ToolError, ToolRegistry};

use crate::turn::{Turn, Updater};
use crate::{Agent, AgentOptions, Instructions, Outcome};

/// How a conversation works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The model and its tools; the whole history is kept.
    Vanilla,
    /// The model keeps a working memory, which it edits by tools while it works. Of earlier
    /// messages only the user's and the answers are kept.
    React(Strategy),
    /// The model answers with the working memory before it, then a second request decides how
    /// the memory changes.
    Workflow(Strategy),
    /// The model thinks before each answer, and sees what it thought before its past answers;
    /// the user never does. Needs `reasoning_replay: full`.
    PrivateCot,
}

impl Kind {
    /// The name in configuration and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::React(_) => "react",
            Self::Workflow(_) => "workflow",
            Self::PrivateCot => "private-cot",
        }
    }

    fn strategy(self) -> Option<Strategy> {
        match self {
            Self::React(strategy) | Self::Workflow(strategy) => Some(strategy),
            Self::Vanilla | Self::PrivateCot => None,
        }
    }

    /// What the model is told if nobody says otherwise.
    fn usual_instructions(self) -> &'static str {
        match self {
            Self::Vanilla | Self::PrivateCot => {
                "You are a careful assistant. Use the tools where they help, check what they \
                 give, and answer in plain words."
            }
            Self::React(_) => {
                "You are a careful assistant. Use the tools where they help, check what they \
                 give, and answer in plain words. You forget everything but the user's \
                 messages, your answers and your working memory: write down there, with the \
                 memory tools, what you will need later.\n\n# Working memory\n\n{working_memory}"
            }
            Self::Workflow(_) => {
                "You are a careful assistant. Use the tools where they help, check what they \
                 give, and answer in plain words. What you know from before is in your working \
                 memory.\n\n# Working memory\n\n{working_memory}"
            }
        }
    }
}

/// Several messages of a user and their answers.
#[derive(Debug)]
pub struct Conversation {
    kind: Kind,
    agent: Agent,
    /// What earlier turns left, without instructions.
    history: Vec<Message>,
    instructions: Instructions,
}

/// What a conversation is made of.
pub struct Parts {
    /// The model.
    pub provider: Provider,
    /// The tools. Those of the working memory are added, if the kind has one.
    pub tools: Arc<ToolRegistry>,
    /// Where they run.
    pub context: ToolContext,
    /// How the loop goes.
    pub options: AgentOptions,
}

impl Conversation {
    /// A conversation at its beginning. Instructions in the options replace the usual ones;
    /// `{working_memory}` stands in them for the memory.
    ///
    /// # Errors
    /// Kind `bad_name`: a tool of the working memory is registered already. Kind
    /// `unavailable`: private chains of thought with a provider that does not send reasoning
    /// back.
    pub fn new(kind: Kind, mut parts: Parts) -> Result<Self, ToolError> {
        let policy = parts.provider.config().replay_policy();
        if kind == Kind::PrivateCot && policy != ReplayPolicy::Full {
            let message = "private-cot needs a provider with `reasoning_replay: full`";
            return Err(ToolError::new(ErrorKind::Unavailable, message));
        }
        if kind == Kind::PrivateCot {
            parts.options.call.thinking = Thinking::On;
        }
        let given = parts.options.instructions.take();
        let given = given.unwrap_or_else(|| Instructions::new(kind.usual_instructions()));
        let instructions = match kind.strategy() {
            Some(_) => given.or_memory(WorkingMemory::default()),
            None => given,
        };
        if let (Kind::React(strategy), Some(memory)) = (kind, instructions.memory()) {
            memory.register(&parts.tools, strategy)?;
        }
        parts.options.instructions = Some(instructions.clone());
        Ok(Self {
            kind,
            agent: Agent::new(parts.provider, parts.tools, parts.context, parts.options),
            history: Vec::new(),
            instructions,
        })
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The working memory, if the kind has one.
    #[must_use]
    pub fn memory(&self) -> Option<&WorkingMemory> {
        self.instructions.memory()
    }

    /// What is kept of earlier turns.
    #[must_use]
    pub fn history(&self) -> &[Message] {
        &self.history
    }

    /// Goes on from a history that was kept elsewhere.
    pub fn resume(&mut self, history: Vec<Message>) {
        self.history = history;
    }

    /// Lets another model answer from the next message on.
    pub fn set_provider(&mut self, provider: Provider) {
        self.agent.set_provider(provider);
    }

    /// What every request says from the next message on.
    pub fn call_mut(&mut self) -> &mut CallOptions {
        self.agent.call_mut()
    }

    /// Begins to answer a message. When it has ended, [`Conversation::keep`] takes its
    /// outcome.
    #[must_use]
    pub fn begin(&self, message: Message) -> Turn {
        let question = message.content_text();
        let mut messages = self.history.clone();
        messages.push(message);
        let update = match (self.kind, self.memory()) {
            (Kind::Workflow(strategy), Some(memory)) => Some(Updater {
                provider: self.agent.provider().clone(),
                context: self.agent.context().clone(),
                call: self.agent.options().call.clone(),
                memory: memory.clone(),
                strategy,
            }),
            _ => None,
        };
        Turn::new(self.agent.start(messages), update, question)
    }

    /// Takes over what the answering of this message came to. A react agent keeps the message
    /// and the answer, the others everything.
    pub fn keep(&mut self, message: Message, outcome: &Outcome) {
        if let Kind::React(_) = self.kind {
            self.history.push(message);
            if !outcome.answer.is_empty() {
                let answer = Message::text(Role::Assistant, outcome.answer.clone());
                self.history.push(answer);
            }
            return;
        }
        let messages = outcome.messages.iter();
        let kept = messages.filter(|message| message.role != Role::System);
        self.history = kept.cloned().collect();
    }
}
