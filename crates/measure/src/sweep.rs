//! One set of questions, asked at several thinking budgets.
//!
//! Every question is asked at every budget with the same seed, so that budgets are compared
//! on the same luck. Budgets take turns in going first: what a machine does meanwhile, and a
//! prompt that is still cached, then helps none of them. Every turn is capped in two passes, on chat
//! services too, where the budget would otherwise be advice.

use std::collections::HashSet;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use twopass_core::chat::{Event, Reply, Sampling, StopReason};
use twopass_provider::config::TwoPassMode;
use twopass_provider::{
    CallOptions, ErrorKind, Planned, Provider, ProviderError, Thinking, TurnItem,
};

use crate::dataset::{Dataset, Item};

/// The most characters of an answer that a record keeps.
const KEPT_CHARACTERS: usize = 2000;
/// So many failures without a success between them end the run.
const FAILURES_IN_A_ROW: usize = 10;

/// What must be equal for records to belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The dataset's checksum.
    pub dataset_sha256: String,
    /// The name of the entry that is asked.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// The seed of the first repeat; each further one has the next.
    pub seed: u64,
    /// `None` = the entry's.
    pub temperature: Option<f32>,
    /// `None` = the entry's.
    pub max_response_tokens: Option<u32>,
    /// Turns at a time. More of them make each slower.
    pub concurrency: usize,
}

/// What is to be asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How.
    pub settings: Settings,
    /// The caps on the thought, in tokens.
    pub budgets: Vec<u32>,
    /// How often each question is asked at each budget.
    pub repeats: u32,
}

/// One turn, as it was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Which question.
    pub item: String,
    /// The cap on its thought, in tokens.
    pub budget: u32,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Whether the answer is right.
    pub correct: bool,
    /// Tokens of the thought.
    pub thinking_tokens: u64,
    /// Tokens of the answer.
    pub response_tokens: u64,
    /// From the request to the end of the answer.
    pub latency_ms: f64,
    /// From the request to the first text of the answer.
    pub first_text_ms: Option<f64>,
    /// The budget ended the thought.
    pub thought_cut: bool,
    /// The cap of the answer ended it.
    pub answer_cut: bool,
    /// By what means the budget was kept.
    pub means: Option<String>,
    /// The answer, shortened. The thought is not kept.
    pub response: String,
}

/// What came of a turn.
#[derive(Debug)]
pub enum Outcome {
    /// It was answered.
    Answered(Record),
    /// It failed, as others may not.
    Failed(ProviderError),
}

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Sweep<'a> {
    /// Who is asked.
    pub provider: &'a Provider,
    /// The questions.
    pub dataset: &'a Dataset,
    /// How, and at which budgets.
    pub plan: &'a Plan,
}

/// One turn to come.
#[derive(Debug, Clone, Copy)]
struct Ask<'a> {
    item: &'a Item,
    budget: u32,
    repeat: u32,
}

impl Sweep<'_> {
    /// Turns in all.
    #[must_use]
    pub fn n_turns(&self) -> usize {
        self.dataset.items.len() * self.plan.budgets.len() * self.plan.repeats as usize
    }

    /// Checks every question at every budget without asking anything.
    ///
    /// # Errors
    /// Names the question that the provider's entry cannot carry out, or the parameter.
    pub fn check(&self) -> Result<(), ProviderError> {
        for ask in self.asks() {
            self.request(ask)?;
        }
        Ok(())
    }

    /// Asks all that `done` does not answer yet, and hands over each outcome as it comes.
    ///
    /// Dropping the future cancels the turns under way.
    ///
    /// # Errors
    /// The model cannot be loaded; a turn failed in a way that all would (a wrong key, a wrong
    /// request); ten turns failed in a row; or `handle` fails.
    pub async fn run(
        &self,
        done: &[Record],
        mut handle: impl FnMut(Outcome) -> Result<(), ProviderError>,
    ) -> Result<(), ProviderError> {
        let known: HashSet<_> = done.iter().map(key).collect();
        let asks = self.asks();
        let open: Vec<_> = asks
            .into_iter()
            .filter(|ask| !known.contains(&(ask.item.id.as_str(), ask.budget, ask.repeat)))
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        // Loading is no part of the first turn.
        self.provider.prepare().await?;
        let turns = stream::iter(open).map(|ask| self.ask(ask));
        let mut turns = std::pin::pin!(turns.buffer_unordered(self.plan.settings.concurrency));
        let mut n_failures = 0;
        while let Some(turn) = turns.next().await {
            match turn {
                Ok(record) => {
                    n_failures = 0;
                    handle(Outcome::Answered(record))?;
                }
                Err(error) => {
                    n_failures += 1;
                    if n_failures == FAILURES_IN_A_ROW || !concerns_one_turn(error.kind()) {
                        return Err(error);
                    }
                    handle(Outcome::Failed(error))?;
                }
            }
        }
        Ok(())
    }

    /// All turns in the order they are asked in.
    fn asks(&self) -> Vec<Ask<'_>> {
        let budgets = &self.plan.budgets;
        let mut asks = Vec::with_capacity(self.n_turns());
        for repeat in 0..self.plan.repeats {
            for (item_idx, item) in self.dataset.items.iter().enumerate() {
                for place in 0..budgets.len() {
                    let budget = budgets[(place + item_idx + repeat as usize) % budgets.len()];
                    asks.push(Ask {
                        item,
                        budget,
                        repeat,
                    });
                }
            }
        }
        asks
    }

    fn request(&self, ask: Ask<'_>) -> Result<Planned, ProviderError> {
        let settings = &self.plan.settings;
        let options = CallOptions {
            thinking: Thinking::On,
            two_pass: Some(TwoPassMode::On),
            max_thinking_tokens: Some(ask.budget),
            max_response_tokens: settings.max_response_tokens,
            sampling: Sampling {
                temperature: settings.temperature,
                seed: Some(settings.seed.wrapping_add(u64::from(ask.repeat))),
                ..Sampling::default()
            },
            ..CallOptions::default()
        };
        let planned = self.provider.request(ask.item.messages.clone(), options);
        planned.map_err(|fault| {
            let message = format!("question `{}`: {fault}", ask.item.id);
            ProviderError::new(ErrorKind::BadRequest, message).with_param(fault.param)
        })
    }

    async fn ask(&self, ask: Ask<'_>) -> Result<Record, ProviderError> {
        let request = self.request(ask)?;
        let started = Instant::now();
        let elapsed_ms = || started.elapsed().as_secs_f64() * 1000.0;
        let mut turn = self.provider.stream(request).await?;
        let mut first_text_ms = None;
        while let Some(item) = turn.next().await {
            match item.map_err(|error| error.with_provider(self.provider.name()))? {
                TurnItem::Event(Event::TextDelta(_)) if first_text_ms.is_none() => {
                    first_text_ms = Some(elapsed_ms());
                }
                // That text was part of the thought.
                TurnItem::Event(Event::Reclassified) => first_text_ms = None,
                TurnItem::Event(_) => {}
                TurnItem::Done(reply) => {
                    return Ok(record(ask, &reply, (elapsed_ms(), first_text_ms)));
                }
            }
        }
        let message = "the turn ended without its end";
        Err(ProviderError::new(ErrorKind::StreamTruncated, message))
    }
}

fn record(ask: Ask<'_>, reply: &Reply, times_ms: (f64, Option<f64>)) -> Record {
    Record {
        item: ask.item.id.clone(),
        budget: ask.budget,
        repeat: ask.repeat,
        correct: ask.item.expected.fits(&reply.content),
        thinking_tokens: reply.usage.thinking_tokens,
        response_tokens: reply.usage.response_tokens,
        latency_ms: times_ms.0,
        first_text_ms: times_ms.1,
        thought_cut: reply.reasoning_truncated,
        answer_cut: reply.stop_reason == StopReason::Length,
        means: reply.passes.last().map(|pass| pass.means.to_owned()),
        response: reply.content.chars().take(KEPT_CHARACTERS).collect(),
    }
}

/// What tells a turn apart: question, budget, repeat.
pub(crate) fn key(record: &Record) -> (&str, u32, u32) {
    (record.item.as_str(), record.budget, record.repeat)
}

/// Whether other turns may do better.
fn concerns_one_turn(kind: ErrorKind) -> bool {
    kind.is_transient()
        || matches!(
            kind,
            ErrorKind::ContextLength
                | ErrorKind::TimeoutTotal
                | ErrorKind::InvalidResponse
                | ErrorKind::EventTooLarge
        )
}
