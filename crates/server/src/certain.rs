//! Text that may be shown for good.
//!
//! Most formats have no way to take text back, but a service may turn out to have written its
//! thought as plain text: a closing tag comes whose opening nobody had announced (row C6).
//! Private thought must not stand in an answer, so text is held back as long as that may
//! happen. It cannot where we render the prompt ourselves, nor with services that are known to mark
//! their thoughts; another one is judged by what it did before:
//!
//! ```text
//!  Unknown   no whole answer yet          text waits for reasoning, or for the end
//!  Plain     text was text                text passes at once
//!  Orphans   text was thought             text waits likewise
//! ```
//! A service of habit `Plain` that takes text back after all ends its stream with an error.
//! Each way of asking it to think has a habit of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{BoxStream, StreamExt, unfold};
use twopass_core::chat::{CallErrorKind, DiagnosticKind, Event, Reply, Request, StopReason};
use twopass_provider::config::{BackendKind, ParsingFormat, ProviderConfig};
use twopass_provider::{Provider, TurnItem, TurnStream};

use crate::api_error::{ApiError, ApiErrorKind};
use crate::enforce::invalid_call;

/// The most habits that are remembered; beyond them all are forgotten.
const MAX_HABITS: usize = 4096;

/// How services were seen to write their thoughts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Habits(Arc<Mutex<HashMap<String, Habit>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Plain,
    Orphans,
}

impl Habits {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Habit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, key: &str, habit: Habit) {
        let mut known = self.known();
        if known.get(key) == Some(&habit) {
            return;
        }
        if known.len() >= MAX_HABITS {
            known.clear();
        }
        known.insert(key.to_owned(), habit);
    }
}

/// A service that is asked in one way, and what is known of its habit then.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    name: String,
    habits: Habits,
    /// What its habit is known by; `None` if its text is text for sure.
    key: Option<String>,
    /// Text of one of its fallbacks may be a thought.
    fallbacks_doubtful: bool,
}

impl Service {
    /// The service behind a provider, asked like this.
    pub(crate) fn new(provider: &Provider, request: &Request, habits: &Habits) -> Self {
        let key = || {
            let mut key = format!("{} {:?}", provider.name(), request.thinking);
            for (name, value) in &request.template_kwargs {
                key.push_str(&format!(" {name}={value}"));
            }
            key
        };
        Self {
            name: provider.name().to_owned(),
            habits: habits.clone(),
            key: (!is_sure(provider.config())).then(key),
            fallbacks_doubtful: provider
                .fallbacks()
                .iter()
                .any(|fallback| !is_sure(fallback.config())),
        }
    }

    /// True if its text may yet turn out to be a thought.
    fn is_doubtful(&self) -> bool {
        let key = self.key.as_ref();
        key.is_some_and(|key| self.habits.known().get(key) != Some(&Habit::Plain))
    }

    fn learn(&self, habit: Habit) {
        if let Some(key) = &self.key {
            self.habits.learn(key, habit);
        }
    }
}

/// True if the entry's text is text for good.
fn is_sure(config: &ProviderConfig) -> bool {
    let renders_prompt = matches!(
        config.backend,
        BackendKind::Embedded | BackendKind::Completions
    );
    config.parsing_format == ParsingFormat::DirectResponse
        || config.preset().marks_thoughts
        || renders_prompt
}

/// The turn's items, text only when it is there to stay. What was announced as a call and then
/// refused ends the turn with an error, since a call cannot be taken back either.
pub(crate) fn certain(
    turn: TurnStream,
    service: Service,
) -> BoxStream<'static, Result<TurnItem, ApiError>> {
    // In a box: each item moves the state into a future and back.
    let state = Box::new(Certain {
        holds: service.is_doubtful(),
        service,
        turn,
        waiting: VecDeque::new(),
        ready: VecDeque::new(),
        shown: Shown::default(),
        was_reclassified: false,
        is_over: false,
    });
    unfold(state, |mut state| async move {
        let item = state.next().await?;
        state.is_over |= !matches!(item, Ok(TurnItem::Event(_)));
        Some((item, state))
    })
    .boxed()
}

struct Certain {
    turn: TurnStream,
    service: Service,
    /// Text waits.
    holds: bool,
    /// Events from the first held text on.
    waiting: VecDeque<Event>,
    ready: VecDeque<TurnItem>,
    shown: Shown,
    was_reclassified: bool,
    is_over: bool,
}

/// What cannot be taken back any more.
#[derive(Default)]
struct Shown {
    text: bool,
    calls: Vec<usize>,
}

impl Certain {
    async fn next(&mut self) -> Option<Result<TurnItem, ApiError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(self.show(item));
            }
            if self.is_over {
                return None;
            }
            match self.turn.next().await? {
                Err(error) => {
                    return Some(Err(error.with_provider(&self.service.name).into()));
                }
                Ok(TurnItem::Event(event)) => {
                    if let Err(error) = self.take(event) {
                        return Some(Err(error));
                    }
                }
                Ok(TurnItem::Done(reply)) => {
                    self.learn(&reply);
                    self.release();
                    self.ready.push_back(TurnItem::Done(reply));
                }
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), ApiError> {
        match event {
            Event::Reclassified if self.shown.text => {
                self.service.learn(Habit::Orphans);
                Err(ApiError::new(
                    ApiErrorKind::Reclassified,
                    "the text so far was the model's reasoning and no answer: it is void",
                ))
            }
            Event::Reclassified => {
                self.was_reclassified = true;
                // Calls so far were drafts in the thought.
                let waiting = std::mem::take(&mut self.waiting).into_iter();
                let thought = waiting.filter_map(|event| match event {
                    Event::TextDelta(text) => Some(Event::ReasoningDelta(text)),
                    Event::ReasoningDelta(_) | Event::ProviderItem(_) | Event::Diagnostic(_) => {
                        Some(event)
                    }
                    _ => None,
                });
                self.ready.extend(thought.map(TurnItem::Event));
                self.ready
                    .push_back(TurnItem::Event(Event::ReasoningBlockEnd));
                self.holds = false;
                Ok(())
            }
            Event::ReasoningDelta(_) => {
                // A service that tells reasoning apart does so all the time.
                self.release();
                self.holds = false;
                self.ready.push_back(TurnItem::Event(event));
                Ok(())
            }
            // Nothing is known of who answers instead, and nothing learnt of who was asked.
            Event::Diagnostic(note) if note.kind == DiagnosticKind::Fallback => {
                self.holds |= self.service.fallbacks_doubtful;
                self.service.key = None;
                self.ready
                    .push_back(TurnItem::Event(Event::Diagnostic(note)));
                Ok(())
            }
            event => {
                let is_text = matches!(event, Event::TextDelta(_) | Event::Logprobs(_));
                let waits = self.holds && (!self.waiting.is_empty() || is_text);
                if waits {
                    self.waiting.push_back(event);
                } else {
                    self.ready.push_back(TurnItem::Event(event));
                }
                Ok(())
            }
        }
    }

    fn release(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.ready.extend(waiting.into_iter().map(TurnItem::Event));
    }

    fn learn(&self, reply: &Reply) {
        if self.was_reclassified {
            self.service.learn(Habit::Orphans);
        } else if reply.stop_reason != StopReason::Length {
            // Of a cut answer it is not known whether a closing tag would have come.
            self.service.learn(Habit::Plain);
        }
    }

    fn show(&mut self, item: TurnItem) -> Result<TurnItem, ApiError> {
        match &item {
            TurnItem::Event(Event::TextDelta(_)) => self.shown.text = true,
            TurnItem::Event(Event::CallStarted { call_idx, .. }) => {
                self.shown.calls.push(*call_idx);
            }
            TurnItem::Event(Event::CallRejected { call_idx, call })
                // A call that the cap cut ends a turn that says so.
                if self.shown.calls.contains(call_idx)
                    && call.kind != CallErrorKind::TruncatedToolCall =>
            {
                self.is_over = true;
                let kind = ApiErrorKind::InvalidToolCall;
                return Err(ApiError::new(kind, invalid_call(call)));
            }
            _ => {}
        }
        Ok(item)
    }
}
