//! What both drivers share: the conversation, its turn under way, its files.

use std::fs::File;
use std::future::pending;
use std::io::{self, Write};
use std::path::Path;

use futures_util::future::BoxFuture;
use twopass_agent::{AgentEvent, Conversation, Turn, trace};
use twopass_core::chat::{Message, Role};
use twopass_provider::{Provider, Thinking};
use twopass_tools::Policy;
use twopass_tools::memory::Memory;

use crate::command::ThinkingWish;
use crate::{About, Command, Effect, Happening, Session, SessionError, ToolLine};

/// Memories that `/memory` shows.
const N_MEMORIES: u32 = 10;

/// Makes the provider of another model; the error is for the person.
pub type Switch = Box<dyn Fn(String) -> BoxFuture<'static, Result<Provider, String>> + Send>;

/// What a chat is made of.
pub struct ChatParts {
    /// The agent.
    pub conversation: Conversation,
    /// Where it is kept.
    pub session: Session,
    /// What is remembered over conversations.
    pub memory: Option<Memory>,
    /// How another model is taken.
    pub switch: Switch,
    /// Tokens that the model may think per turn, if they are capped.
    pub max_thinking_tokens: Option<u32>,
}

/// A conversation with its turn under way. Dropping it cancels the turn.
pub struct Chat {
    parts: ChatParts,
    turn: Option<(Message, Turn)>,
    /// Another model, on its way.
    switching: Option<BoxFuture<'static, Result<Provider, String>>>,
    trace: Option<File>,
}

impl Chat {
    /// A chat at its beginning.
    #[must_use]
    pub fn new(parts: ChatParts) -> Self {
        Self {
            parts,
            turn: None,
            switching: None,
            trace: None,
        }
    }

    /// Goes on from what the session's file holds.
    ///
    /// # Errors
    /// The file cannot be read, or is no session.
    pub fn resume(&mut self) -> Result<Vec<Message>, SessionError> {
        let kept = self.parts.session.read()?;
        self.parts.conversation.resume(kept.messages.clone());
        if let (Some(memory), Some(text)) = (self.parts.conversation.memory(), kept.memory) {
            memory.restore(text);
        }
        Ok(kept.messages)
    }

    /// What the screen says of it.
    #[must_use]
    pub fn about(&self) -> About {
        let conversation = &self.parts.conversation;
        let agent = conversation.agent();
        let tools = agent.tools();
        let lines = tools.specs().into_iter().map(|spec| {
            let effect = tools.get(&spec.name).map(|tool| tool.effect().as_str());
            let first = spec.description.split(". ").next().unwrap_or_default();
            ToolLine {
                effect: effect.unwrap_or_default().to_owned(),
                summary: first.trim_end_matches('.').replace('\n', " "),
                name: spec.name,
            }
        });
        About {
            model: model_of(agent.provider()),
            kind: conversation.kind().as_str().to_owned(),
            workspace: agent.context().workspace.root().display().to_string(),
            max_thinking_tokens: self.parts.max_thinking_tokens,
            tools: lines.collect(),
        }
    }

    /// True while a turn is under way, or another model on its way.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.turn.is_some() || self.switching.is_some()
    }

    /// The next event of what is under way; waits for ever without. Cancel safe.
    pub async fn next(&mut self) -> Vec<Happening> {
        if let Some(switching) = &mut self.switching {
            let made = switching.await;
            self.switching = None;
            return vec![Happening::ModelChanged(self.switched(made))];
        }
        let Some((_, turn)) = &mut self.turn else {
            return pending().await;
        };
        let event = turn.next().await;
        let mut happenings = Vec::new();
        match event {
            Some(event) => {
                if let Some(line) = trace::event_line(&event) {
                    happenings.extend(self.write_trace(&line));
                }
                if let AgentEvent::Ended(outcome) = &event {
                    if let Some((message, _)) = self.turn.take() {
                        self.parts.conversation.keep(message, outcome);
                    }
                    happenings.push(Happening::Agent(event));
                    happenings.extend(self.save());
                } else {
                    happenings.push(Happening::Agent(event));
                }
            }
            None => self.turn = None,
        }
        happenings
    }

    /// Carries out an effect; gives what came of it. [`Effect::Quit`] only cancels: the driver
    /// ends.
    pub async fn perform(&mut self, effect: Effect) -> Vec<Happening> {
        match effect {
            Effect::Send(text) => {
                let line = trace::start_line(&self.parts.conversation, &text);
                let message = Message::text(Role::User, text);
                let turn = self.parts.conversation.begin(message.clone());
                self.turn = Some((message, turn));
                self.write_trace(&line).into_iter().collect()
            }
            Effect::Consent { call_id, consent } => {
                if let Some((_, turn)) = &mut self.turn {
                    turn.consent(&call_id, consent);
                }
                Vec::new()
            }
            Effect::Allow(tool) => {
                let tools = self.parts.conversation.agent().tools();
                tools.set_policy(&tool, Policy::Auto);
                Vec::new()
            }
            Effect::Cancel | Effect::Quit => {
                if self.switching.take().is_some() {
                    let stays = model_of(self.parts.conversation.agent().provider());
                    let why = format!("the model is {stays} still");
                    return vec![Happening::ModelChanged(Err(why))];
                }
                if let Some((_, turn)) = &mut self.turn {
                    turn.cancel();
                }
                Vec::new()
            }
            Effect::Run(command) => self.run(command).await,
        }
    }

    async fn run(&mut self, command: Command) -> Vec<Happening> {
        match command {
            Command::Model(Some(name)) => {
                self.switching = Some((self.parts.switch)(name));
                Vec::new()
            }
            Command::Thinking(wish) => self.set_thinking(wish),
            Command::Memory => vec![self.tell_memory().await],
            Command::Trace(path) => vec![self.set_trace(path.as_deref())],
            Command::Clear => {
                self.parts.conversation.resume(Vec::new());
                let mut happenings = vec![Happening::Restored(Vec::new())];
                happenings.extend(self.save());
                happenings
            }
            Command::Save(path) => vec![self.save_to(path.as_deref())],
            _ => Vec::new(),
        }
    }

    /// The model's name, if it could be taken.
    fn switched(&mut self, made: Result<Provider, String>) -> Result<String, String> {
        let provider = made?;
        let model = model_of(&provider);
        self.parts.conversation.set_provider(provider);
        Ok(model)
    }

    fn set_thinking(&mut self, wish: ThinkingWish) -> Vec<Happening> {
        let usual = self.parts.max_thinking_tokens;
        let call = self.parts.conversation.call_mut();
        let (thinking, budget, text) = match wish {
            ThinkingWish::On => (Thinking::On, usual, "it thinks".to_owned()),
            ThinkingWish::Off => (Thinking::Off, usual, "it does not think".to_owned()),
            ThinkingWish::Budget(budget) => (
                Thinking::On,
                Some(budget),
                format!("it thinks at most {budget} tokens"),
            ),
            _ => (
                Thinking::ByConfig,
                usual,
                "it thinks as configured".to_owned(),
            ),
        };
        call.thinking = thinking;
        call.max_thinking_tokens = budget;
        vec![Happening::BudgetChanged(budget), told(text, false)]
    }

    async fn tell_memory(&self) -> Happening {
        let mut text = String::new();
        if let Some(memory) = self.parts.conversation.memory() {
            text.push_str(&format!("working memory:\n{}\n", memory.text().trim_end()));
        }
        if let Some(memory) = &self.parts.memory {
            match memory.recent(N_MEMORIES).await {
                Ok(recent) if recent.is_empty() => text.push_str("nothing is stored yet"),
                Ok(recent) => {
                    text.push_str("stored last:");
                    for one in recent {
                        text.push_str(&format!("\n- {}", one.content));
                    }
                }
                Err(error) => return told(error.to_string(), true),
            }
        }
        match text.is_empty() {
            true => told("nothing is remembered here", false),
            false => told(text, false),
        }
    }

    fn set_trace(&mut self, path: Option<&Path>) -> Happening {
        let Some(path) = path else {
            return match self.trace.take() {
                Some(_) => told("the trace has ended", false),
                None => told("no trace is written; /trace FILE begins one", false),
            };
        };
        // Opening a pipe would wait for its other end.
        if path.metadata().is_ok_and(|facts| !facts.is_file()) {
            return told(format!("{} is no file", path.display()), true);
        }
        match File::options().create(true).append(true).open(path) {
            Ok(file) => {
                self.trace = Some(file);
                told(format!("runs are written to {}", path.display()), false)
            }
            Err(error) => told(format!("{}: {error}", path.display()), true),
        }
    }

    fn write_trace(&mut self, line: &str) -> Option<Happening> {
        let written = writeln!(self.trace.as_ref()?, "{line}");
        let error = written.err()?;
        self.trace = None;
        Some(told(format!("the trace has ended: {error}"), true))
    }

    /// Keeps the conversation; a failure is told.
    fn save(&mut self) -> Option<Happening> {
        let conversation = &self.parts.conversation;
        let memory = conversation.memory().map(|memory| memory.text());
        let saved = self
            .parts
            .session
            .write(conversation.history(), memory.as_deref());
        saved.err().map(|error| told(error.to_string(), true))
    }

    fn save_to(&mut self, path: Option<&Path>) -> Happening {
        if let Some(failed) = self.save() {
            return failed;
        }
        let kept = self.parts.session.path();
        let Some(path) = path else {
            return told(format!("it is kept in {}", kept.display()), false);
        };
        match copy(kept, path) {
            Ok(()) => told(format!("written to {}", path.display()), false),
            Err(error) => told(format!("{}: {error}", path.display()), true),
        }
    }
}

/// Copies a file over none that is there already.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::options().write(true).create_new(true).open(to)?;
    io::copy(&mut source, &mut target).map(|_| ())
}

fn model_of(provider: &Provider) -> String {
    let model = provider.model_name();
    // Of a file the folder says little.
    let file = Path::new(model).file_name().and_then(|name| name.to_str());
    let model = file.filter(|_| model.ends_with(".gguf")).unwrap_or(model);
    format!("{}/{model}", provider.name())
}

fn told(text: impl Into<String>, is_bad: bool) -> Happening {
    let text = text.into();
    Happening::Told { text, is_bad }
}
