//! A turn over an engine that takes text or tokens: the two-pass machine asks, the engine
//! answers. The same for the engine in this process and for one behind HTTP.

use std::future::Future;
use std::time::{SystemTime, UNIX_EPOCH};

use twopass_core::chat::{Diagnostic, Event, Reply, TokenLogprob};
use twopass_core::control::{PassEnd, PassRequest, PlannedTurn, Step, TurnPlan, TwoPass};

use super::unread::UnreadCalls;
use super::{TurnItem, TurnSource, TurnStream};
use crate::ProviderError;

/// One engine's side of one turn. What it is told and says is text after the prompt, which
/// is its own matter.
pub trait TextEngine: Send {
    /// Begins a pass.
    fn open(&mut self, pass: PassRequest)
    -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// What the open pass does next. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Result<PassStep, ProviderError>> + Send;
}

/// A step of a pass.
#[derive(Debug)]
pub enum PassStep {
    /// Text of the model.
    Text {
        /// The text.
        text: String,
        /// The tokens that were drawn for it, if they were asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// The end, and what there is to say about it.
    End(Box<PassEnd>, Vec<Diagnostic>),
}

impl PassStep {
    /// Text whose tokens nobody asked for.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            logprobs: Vec::new(),
        }
    }
}

/// Runs a planned turn over an engine: thought, answer, calls, whatever the plan says.
///
/// # Errors
/// The first pass cannot be opened.
pub async fn run_text_turn<E: TextEngine + 'static>(
    planned: PlannedTurn,
    engine: E,
) -> Result<TurnStream, ProviderError> {
    let mut turn = TextTurn::new(planned.plan, engine);
    if let Some(pass) = turn.first_pass(planned.diagnostics) {
        turn.engine.open(pass).await?;
    }
    Ok(TurnStream::of(turn))
}

/// Runs one pass without reading anything into its text.
///
/// # Errors
/// The pass cannot be opened.
pub async fn run_raw<E: TextEngine + 'static>(
    pass: PassRequest,
    mut engine: E,
) -> Result<TurnStream, ProviderError> {
    engine.open(pass).await?;
    let raw = RawTurn {
        engine,
        reply: Reply::default(),
        waiting: None,
    };
    Ok(TurnStream::of(raw))
}

/// One pass under way whose text is handed on as it is.
struct RawTurn<E> {
    engine: E,
    /// What came so far.
    reply: Reply,
    /// Text whose tokens were told just now.
    waiting: Option<String>,
}

impl<E: TextEngine + 'static> TurnSource for RawTurn<E> {
    async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        Some(self.advance().await)
    }
}

impl<E: TextEngine> RawTurn<E> {
    async fn advance(&mut self) -> Result<TurnItem, ProviderError> {
        loop {
            if let Some(text) = self.waiting.take() {
                return Ok(TurnItem::Event(Event::TextDelta(text)));
            }
            match self.engine.next().await? {
                PassStep::Text { text, .. } if text.is_empty() => {}
                PassStep::Text { text, logprobs } => {
                    self.reply.content.push_str(&text);
                    if logprobs.is_empty() {
                        return Ok(TurnItem::Event(Event::TextDelta(text)));
                    }
                    self.reply.logprobs.extend_from_slice(&logprobs);
                    self.waiting = Some(text);
                    return Ok(TurnItem::Event(Event::Logprobs(logprobs)));
                }
                PassStep::End(end, notes) => {
                    let reply = Reply {
                        stop_reason: end.stop_reason,
                        usage: end.usage,
                        passes: end.reports,
                        diagnostics: notes,
                        ..std::mem::take(&mut self.reply)
                    };
                    return Ok(TurnItem::Done(Box::new(reply)));
                }
            }
        }
    }
}

/// A turn under way.
pub(super) struct TextTurn<E> {
    pub(super) engine: E,
    machine: TwoPass,
    unread: UnreadCalls,
    /// A step that was polled and not taken yet.
    pending: Option<Step>,
    n_passes: u32,
}

impl<E: TextEngine + 'static> TextTurn<E> {
    /// A turn at its start.
    pub(super) fn new(plan: TurnPlan, engine: E) -> Self {
        Self {
            engine,
            unread: UnreadCalls::of(&plan.parser),
            machine: TwoPass::new(plan),
            pending: None,
            n_passes: 0,
        }
    }

    /// The first pass, for the caller to open, so that what stops it is an error before any
    /// event; `None` if there is something to say before it.
    pub(super) fn first_pass(&mut self, notes: Vec<Diagnostic>) -> Option<PassRequest> {
        let first = match self.machine.poll() {
            Step::Send(pass) => {
                self.n_passes = 1;
                Some(pass)
            }
            other => {
                self.pending = Some(other);
                None
            }
        };
        for note in notes {
            self.machine.handle_note(note);
        }
        first
    }

    async fn advance(&mut self) -> Result<TurnItem, ProviderError> {
        loop {
            let done = match self.pending.take().unwrap_or_else(|| self.machine.poll()) {
                Step::Emit(event) => return Ok(TurnItem::Event(event)),
                Step::Done(reply) => return Ok(self.end(reply)),
                Step::Send(pass) => {
                    self.n_passes += 1;
                    self.engine.open(pass).await.map(|()| None)
                }
                Step::Read => self.engine.next().await.map(Some),
            };
            match done {
                Ok(None) => {}
                Ok(Some(PassStep::Text { text, logprobs })) => {
                    self.machine.handle_logprobs(logprobs);
                    self.machine.handle_text(&text);
                }
                Ok(Some(PassStep::End(end, notes))) => {
                    for note in notes {
                        self.machine.handle_note(note);
                    }
                    self.machine.handle_pass_end(*end);
                }
                // Row D14: a thought that is there is kept when the answer fails.
                Err(error) if self.n_passes > 1 => self.machine.handle_failure(error.message()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The end of the turn; before it, what there is left to say.
    fn end(&mut self, mut reply: Box<Reply>) -> TurnItem {
        let unread = std::mem::take(&mut self.unread);
        if let Some(note) = unread.note(&reply) {
            reply.diagnostics.push(note.clone());
            self.pending = Some(Step::Done(reply));
            return TurnItem::Event(Event::Diagnostic(note));
        }
        TurnItem::Done(reply)
    }
}

/// Cancel points: the waits for the engine.
impl<E: TextEngine + 'static> TurnSource for TextTurn<E> {
    async fn next(&mut self) -> Option<Result<TurnItem, ProviderError>> {
        Some(self.advance().await)
    }
}

/// The date for templates that print one.
pub(super) fn unix_now() -> Option<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(now.as_secs()).ok()
}
