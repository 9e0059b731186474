//! The driver for a terminal: keys in, screens out. The only place that touches it.

use std::collections::VecDeque;
use std::io::{self, Stdout};
use std::time::{Duration, Instant};

use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event as TerminalEvent, EventStream,
};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use futures_util::StreamExt;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use crate::{App, Chat, Effect, Happening, draw, update};

/// How often a screen that moves is drawn at least.
const FRAME: Duration = Duration::from_millis(100);
/// The shortest time between two screens: a fast stream is drawn in larger pieces.
const LEAST_FRAME: Duration = Duration::from_millis(30);

/// Runs the app on the terminal until the person leaves. Cancel points: every await; the turn
/// under way ends with it.
///
/// # Errors
/// The terminal cannot be read or written.
pub async fn run_screen(mut chat: Chat, mut app: App) -> io::Result<Chat> {
    let mut screen = Screen::open()?;
    let mut events = EventStream::new();
    let began = Instant::now();
    let mut drawn: Option<Instant> = None;
    let mut is_stale = true;
    loop {
        if is_stale && drawn.is_none_or(|drawn| drawn.elapsed() >= LEAST_FRAME) {
            screen.terminal.draw(|frame| draw(frame, &app))?;
            drawn = Some(Instant::now());
            is_stale = false;
        }
        let pause = if is_stale { LEAST_FRAME } else { FRAME };
        let happenings = tokio::select! {
            biased;
            event = events.next() => match event {
                // What a person does shows at once.
                Some(event) => {
                    drawn = None;
                    happening(event?).into_iter().collect()
                }
                None => return Ok(chat),
            },
            happenings = chat.next() => happenings,
            () = tokio::time::sleep(pause), if is_stale || app.is_moving() => {
                vec![Happening::Tick]
            }
        };
        is_stale |= !happenings.is_empty();
        let now_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if handle(&mut chat, &mut app, happenings, now_ms).await {
            return Ok(chat);
        }
    }
}

/// Carries out what happens and what follows from it; true if the app is to end.
pub(crate) async fn handle(
    chat: &mut Chat,
    app: &mut App,
    happenings: Vec<Happening>,
    now_ms: u64,
) -> bool {
    let mut queue: VecDeque<Happening> = happenings.into();
    while let Some(happening) = queue.pop_front() {
        for effect in update(app, happening, now_ms) {
            let ends = effect == Effect::Quit;
            queue.extend(chat.perform(effect).await);
            if ends {
                return true;
            }
        }
    }
    false
}

fn happening(event: TerminalEvent) -> Option<Happening> {
    match event {
        TerminalEvent::Key(key) => Some(Happening::Key(key)),
        TerminalEvent::Paste(text) => Some(Happening::Paste(text)),
        TerminalEvent::Resize(..) => Some(Happening::Tick),
        _ => None,
    }
}

/// The terminal, as it was before once this is dropped, also after a panic.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        let opened = execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match opened {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                close();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        close();
    }
}

fn close() {
    let _ = execute!(io::stdout(), DisableBracketedPaste, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
