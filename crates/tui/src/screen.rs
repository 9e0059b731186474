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
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{App, Chat, Effect, Happening, draw, update};

/// How often a screen that moves is drawn at least.
const FRAME: Duration = Duration::from_millis(100);
/// The shortest time between two screens: a fast stream is drawn in larger pieces.
const LEAST_FRAME: Duration = Duration::from_millis(30);

/// How long a turn may take to end once the app is to end.
const LAST_TURN: Duration = Duration::from_secs(3);

/// Runs the app on the terminal until the person leaves or the process is told to end; the
/// turn under way is ended and kept. Cancel points: every await.
///
/// # Errors
/// The terminal cannot be read or written.
pub async fn run_screen(mut chat: Chat, mut app: App) -> io::Result<Chat> {
    let left = until_left(&mut chat, &mut app).await;
    chat.perform(Effect::Quit).await;
    let _ = tokio::time::timeout(LAST_TURN, last_turn(&mut chat)).await;
    left.map(|()| chat)
}

async fn until_left(chat: &mut Chat, app: &mut App) -> io::Result<()> {
    let mut screen = Screen::open()?;
    let mut events = EventStream::new();
    let mut signals = Signals::new()?;
    let began = Instant::now();
    let mut drawn: Option<Instant> = None;
    let mut is_stale = true;
    loop {
        if is_stale && drawn.is_none_or(|drawn| drawn.elapsed() >= LEAST_FRAME) {
            screen.terminal.draw(|frame| draw(frame, app))?;
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
                None => vec![Happening::Terminated],
            },
            happening = signals.next() => vec![happening],
            happenings = chat.next() => happenings,
            () = tokio::time::sleep(pause), if is_stale || app.is_moving() => {
                vec![Happening::Tick]
            }
        };
        is_stale |= !happenings.is_empty();
        let now_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if handle(chat, app, happenings, now_ms).await {
            return Ok(());
        }
    }
}

/// Waits until the turn that was cancelled has ended and is kept.
async fn last_turn(chat: &mut Chat) {
    while chat.is_working() {
        chat.next().await;
    }
}

/// What others tell the process.
#[cfg(unix)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Happening {
        tokio::select! {
            _ = self.interrupt.recv() => Happening::Interrupt,
            _ = self.terminate.recv() => Happening::Terminated,
            _ = self.hang_up.recv() => Happening::Terminated,
        }
    }
}

/// Nothing is told but by keys.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Happening {
        std::future::pending().await
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
