//! What the app knows, and what can happen to it.

use std::collections::VecDeque;

use crossterm::event::KeyEvent;
use twopass_agent::AgentEvent;
use twopass_core::chat::{Message, Role, ToolCall};
use twopass_tools::{Consent, ToolOutput};

use crate::input::Input;
use crate::{Command, Theme};

/// Facts that the screen shows and that hardly change.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The model's name, with its provider's.
    pub model: String,
    /// The kind of agent.
    pub kind: String,
    /// The folder that the tools work in.
    pub workspace: String,
    /// Tokens that the model may think per turn, if they are capped.
    pub max_thinking_tokens: Option<u32>,
    /// The tools.
    pub tools: Vec<ToolLine>,
}

impl About {
    /// The tools as a table for people.
    pub(crate) fn tool_table(&self) -> String {
        let longest = |of: fn(&ToolLine) -> &str| {
            let widths = self.tools.iter().map(|tool| of(tool).len());
            widths.max().unwrap_or(0)
        };
        let (name, effect) = (longest(|tool| &tool.name), longest(|tool| &tool.effect));
        let lines = self.tools.iter().map(|tool| {
            let summary = &tool.summary;
            format!("{:name$}  {:effect$}  {summary}", tool.name, tool.effect)
        });
        let lines: Vec<String> = lines.collect();
        match lines.is_empty() {
            true => "there are no tools".to_owned(),
            false => lines.join("\n"),
        }
    }
}

/// A tool as `/tools` lists it.
#[derive(Debug, Clone, Default)]
pub struct ToolLine {
    /// Its name.
    pub name: String,
    /// What it does to the world.
    pub effect: String,
    /// Its description's first sentence.
    pub summary: String,
}

/// The state of the app. [`crate::update`] changes it, [`crate::draw`] shows it.
#[derive(Debug, Clone)]
pub struct App {
    pub(crate) about: About,
    pub(crate) theme: Theme,
    pub(crate) items: Vec<Item>,
    /// The first item of the model's turn.
    pub(crate) turn_start: usize,
    pub(crate) input: Input,
    pub(crate) phase: Phase,
    /// Calls that wait for an answer, the first one is shown.
    pub(crate) asking: VecDeque<ToolCall>,
    /// Reasoning is shown whole, not as one line.
    pub(crate) is_unfolded: bool,
    /// Arguments and results are shown whole.
    pub(crate) shows_details: bool,
    /// Lines between the end of the transcript and the bottom of the screen.
    pub(crate) scroll: usize,
    /// When a key went to the input last, or a question came up: keys answer only after a pause.
    pub(crate) busy_hands_ms: u64,
    /// When an interrupt while idle was seen last.
    pub(crate) quit_asked_ms: Option<u64>,
    /// Of all turns, in tokens: prompts, thoughts, answers.
    pub(crate) n_tokens: [u64; 3],
    /// How full the model's context is, in per cent, once it is half full.
    pub(crate) context_percent: Option<u8>,
}

/// What the app is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for the person.
    Idle,
    /// The agent works, since this moment.
    Working {
        since_ms: u64,
        now_ms: u64,
        is_ending: bool,
    },
}

/// One thing of the transcript.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    User(String),
    Reasoning(Reasoning),
    Answer(String),
    Call(CallCard),
    Note { text: String, is_bad: bool },
}

/// A private trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reasoning {
    pub(crate) text: String,
    /// Tokens so far, about; exact when the turn is done.
    pub(crate) n_tokens: u64,
    pub(crate) is_done: bool,
}

/// A call and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct CallCard {
    pub(crate) call: ToolCall,
    pub(crate) state: CallState,
}

#[derive(Debug, Clone)]
pub(crate) enum CallState {
    Asking,
    Running,
    Done(ToolOutput),
}

/// Everything that can happen.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Happening {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The person interrupts from outside the terminal's keys.
    Interrupt,
    /// Time passes, or the screen has another size.
    Tick,
    /// The agent goes on.
    Agent(AgentEvent),
    /// Something to be told.
    Told {
        /// The text; several lines are fine.
        text: String,
        /// It went wrong.
        is_bad: bool,
    },
    /// The model is another one now, or why it is not.
    ModelChanged(Result<String, String>),
    /// The process is to end.
    Terminated,
    /// The most tokens to think changed.
    BudgetChanged(Option<u32>),
    /// The conversation is another one now: an earlier one, or empty.
    Restored(Vec<Message>),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The agent is to answer this.
    Send(String),
    /// A call may run or may not.
    Consent {
        /// The call's id.
        call_id: String,
        /// What the person said.
        consent: Consent,
    },
    /// Calls of this tool need no further consent.
    Allow(String),
    /// The turn is to end.
    Cancel,
    /// A command that only a driver can carry out.
    Run(Command),
    /// The app is to end.
    Quit,
}

impl App {
    /// An app at its beginning.
    #[must_use]
    pub fn new(about: About, theme: Theme) -> Self {
        Self {
            about,
            theme,
            items: Vec::new(),
            turn_start: 0,
            input: Input::default(),
            phase: Phase::Idle,
            asking: VecDeque::new(),
            is_unfolded: false,
            shows_details: false,
            scroll: 0,
            busy_hands_ms: 0,
            quit_asked_ms: None,
            n_tokens: [0; 3],
            context_percent: None,
        }
    }

    /// The same, with a conversation that was kept.
    #[must_use]
    pub fn resumed(about: About, theme: Theme, messages: &[Message]) -> Self {
        let mut app = Self::new(about, theme);
        app.restore(messages);
        app
    }

    /// True while something on the screen changes by itself.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.phase != Phase::Idle || self.quit_asked_ms.is_some()
    }

    pub(crate) fn note(&mut self, text: impl Into<String>, is_bad: bool) {
        let text = text.into();
        self.items.push(Item::Note { text, is_bad });
    }

    /// Shows a conversation that was kept.
    pub(crate) fn restore(&mut self, messages: &[Message]) {
        self.items.clear();
        self.turn_start = 0;
        self.scroll = 0;
        for message in messages {
            let text = message.content_text();
            match message.role {
                Role::User => self.items.push(Item::User(text)),
                Role::Assistant => self.restore_turn(message, text),
                Role::Tool => self.restore_result(message, text),
                Role::System | Role::Developer => {}
            }
        }
    }

    fn restore_turn(&mut self, message: &Message, text: String) {
        if let Some(reasoning) = &message.reasoning {
            self.items.push(Item::Reasoning(Reasoning {
                text: reasoning.clone(),
                n_tokens: 0,
                is_done: true,
            }));
        }
        if !text.trim().is_empty() {
            self.items.push(Item::Answer(text));
        }
        let cards = message.tool_calls.iter().map(|call| {
            Item::Call(CallCard {
                call: call.clone(),
                state: CallState::Running,
            })
        });
        self.items.extend(cards);
    }

    fn restore_result(&mut self, message: &Message, text: String) {
        let output = match message.is_error {
            true => twopass_tools::ToolError::failed(text).into(),
            false => ToolOutput::text(text),
        };
        if let Some(card) = self.card(message.tool_call_id.as_deref().unwrap_or_default()) {
            card.state = CallState::Done(output);
        }
    }

    /// What the model wrote last in its turn; notes do not count.
    pub(crate) fn last_written(&mut self) -> Option<&mut Item> {
        let turn = self.items.get_mut(self.turn_start..)?;
        let mut latest = turn.iter_mut().rev();
        latest.find(|item| !matches!(item, Item::Note { .. }))
    }

    /// The newest card of this call.
    pub(crate) fn card(&mut self, call_id: &str) -> Option<&mut CallCard> {
        self.items.iter_mut().rev().find_map(|item| match item {
            Item::Call(card) if card.call.id == call_id => Some(card),
            _ => None,
        })
    }
}
