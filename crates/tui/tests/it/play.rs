//! Scripts: a line per happening.
//!
//! `type TEXT`, `key NAME`, `paste TEXT`, `interrupt`, `terminate`, `wait MS`, `step`, `think TEXT`, `say TEXT`,
//! `turn THINKING_TOKENS`, `ask NAME JSON`, `call NAME JSON`, `result TEXT`, `fail TEXT`,
//! `end REASON`. `\n` in a text is a line end.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use twopass_agent::{AgentEvent, EndReason, Outcome};
use twopass_core::chat::{Arguments, Event, Reply, ToolCall, Usage};
use twopass_tools::{ToolError, ToolOutput};
use twopass_tui::{About, App, Effect, Happening, Theme, ToolLine, draw, update};

pub(crate) struct Played {
    pub(crate) app: App,
    pub(crate) effects: Vec<Effect>,
    now_ms: u64,
    n_calls: usize,
}

/// An app after this script.
pub(crate) fn play(script: &str) -> Played {
    let mut played = Played {
        app: App::new(about(), Theme::PLAIN),
        effects: Vec::new(),
        now_ms: 0,
        n_calls: 0,
    };
    played.go_on(script);
    played
}

pub(crate) fn about() -> About {
    let tool = |name: &str, effect: &str, summary: &str| ToolLine {
        name: name.to_owned(),
        effect: effect.to_owned(),
        summary: summary.to_owned(),
    };
    About {
        model: "local/smollm2-135m".to_owned(),
        kind: "vanilla".to_owned(),
        workspace: "/home/ada/notes".to_owned(),
        max_thinking_tokens: Some(256),
        tools: vec![
            tool("read_file", "reads", "Read a text file of the workspace"),
            tool("execute_bash", "executes", "Run a command"),
        ],
    }
}

impl Played {
    pub(crate) fn go_on(&mut self, script: &str) {
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                // JSON has line ends of its own.
                "ask" | "call" => self.step(word, rest),
                _ => self.step(word, &rest.replace("\\n", "\n")),
            }
        }
    }

    fn step(&mut self, word: &str, rest: &str) {
        let happening = match word {
            "type" => {
                for one in rest.chars() {
                    self.happen(Happening::Key(KeyEvent::from(KeyCode::Char(one))));
                }
                return;
            }
            "key" => Happening::Key(key(rest)),
            "paste" => Happening::Paste(rest.to_owned()),
            "interrupt" => Happening::Interrupt,
            "terminate" => Happening::Terminated,
            "wait" => {
                self.now_ms += rest.parse::<u64>().unwrap();
                Happening::Tick
            }
            _ => Happening::Agent(self.event(word, rest)),
        };
        self.happen(happening);
    }

    fn event(&mut self, word: &str, rest: &str) -> AgentEvent {
        let (name, json) = rest.split_once(' ').unwrap_or((rest, "{}"));
        let call = |n_calls: usize, name: &str, json: &str| ToolCall {
            id: format!("call_{n_calls}"),
            name: name.to_owned(),
            arguments: Arguments::from_text(json).unwrap(),
        };
        match word {
            "step" => AgentEvent::StepStarted { step: 1 },
            "think" => AgentEvent::Delta(Event::ReasoningDelta(rest.to_owned())),
            "say" => AgentEvent::Delta(Event::TextDelta(rest.to_owned())),
            "reclassify" => AgentEvent::Delta(Event::Reclassified),
            "turn" => AgentEvent::StepFinished {
                step: 1,
                reply: Box::new(Reply {
                    usage: Usage {
                        prompt_tokens: 120,
                        thinking_tokens: rest.parse().unwrap(),
                        response_tokens: 34,
                        ..Usage::default()
                    },
                    ..Reply::default()
                }),
            },
            "ask" | "call" => {
                self.n_calls += 1;
                let call = call(self.n_calls, name, json);
                match word {
                    "ask" => AgentEvent::ConsentNeeded { call },
                    _ => AgentEvent::CallStarted { call },
                }
            }
            "result" | "fail" => {
                let mut output: ToolOutput = match word {
                    "fail" => ToolError::failed(rest).into(),
                    _ => ToolOutput::text(rest),
                };
                output.duration = Duration::from_millis(12);
                AgentEvent::CallFinished {
                    call: call(self.n_calls, "any", "{}"),
                    output,
                }
            }
            "end" => AgentEvent::Ended(Box::new(Outcome {
                end: match rest {
                    "answer" => EndReason::Answer,
                    "cancelled" => EndReason::Cancelled,
                    _ => EndReason::MaxSteps,
                },
                answer: String::new(),
                last: Reply::default(),
                messages: Vec::new(),
                n_steps: 1,
                usage: Usage::default(),
                error: None,
            })),
            other => panic!("no such step: {other}"),
        }
    }

    pub(crate) fn happen(&mut self, happening: Happening) {
        self.effects
            .extend(update(&mut self.app, happening, self.now_ms));
    }

    /// The screen of this size, with the cursor's place.
    pub(crate) fn screen(&self, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &self.app)).unwrap();
        terminal.backend().to_string()
    }
}

/// A key by its name: `enter`, `ctrl-c`, `alt-enter`, `x`.
fn key(name: &str) -> KeyEvent {
    let (modifiers, name) = match name.split_once('-') {
        Some(("ctrl", name)) => (KeyModifiers::CONTROL, name),
        Some(("alt", name)) => (KeyModifiers::ALT, name),
        _ => (KeyModifiers::NONE, name),
    };
    let code = match name {
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "home" => KeyCode::Home,
        "end" => KeyCode::End,
        "back" => KeyCode::Backspace,
        "delete" => KeyCode::Delete,
        "pageup" => KeyCode::PageUp,
        "pagedown" => KeyCode::PageDown,
        one => KeyCode::Char(one.chars().next().unwrap()),
    };
    KeyEvent::new(code, modifiers)
}
