//! How fast a configured provider answers.
//!
//! Prompts are made of ordinary words that differ from turn to turn and, by the seed, from run
//! to run, so that nothing is cached unless it is to be. Figures are what a caller sees, with
//! queues and networks in them.

use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use twopass_core::chat::{Message, Reply, ResponseFormat, Role, Sampling};
use twopass_provider::config::TwoPassMode;
use twopass_provider::{CallOptions, ErrorKind, Provider, ProviderError, Thinking, TurnItem};

use crate::stats::{self, Estimate};

/// Words of the prompts of most work.
const PROMPT_WORDS: usize = 100;

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Turns at a time, one row each.
    pub concurrency: Vec<usize>,
    /// Turns of each row, and at least one per stream.
    pub requests: usize,
    /// Most tokens of an answer.
    pub tokens: u32,
    /// Words of the long prompt and of the shared beginning, one or two tokens each; 0 leaves
    /// both out.
    pub long_words: usize,
    /// Thinking budgets, one row each.
    pub budgets: Vec<u32>,
    /// Other prompts for another seed.
    pub seed: u64,
}

/// The turns of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What they were.
    pub work: String,
    /// Turns.
    pub n_turns: usize,
    /// From the request to the first token, be it of a thought; median.
    pub first_ms: Estimate,
    /// From the request to the end; median.
    pub total_ms: Estimate,
    /// Tokens per second of one turn after its first; median.
    pub each: Estimate,
    /// Tokens per second of all turns together.
    pub all: f64,
    /// Prompt tokens per second until the first token; median.
    pub prefill: Estimate,
    /// Prompt tokens that were computed, of all turns.
    pub prompt_tokens: u64,
    /// Tokens made, of all turns.
    pub tokens: u64,
    /// The most tokens that a thought had.
    pub longest_thought: u64,
}

/// One turn as it was seen.
#[derive(Debug, Clone, Copy)]
struct Timing {
    first_ms: f64,
    total_ms: f64,
    prompt_tokens: u64,
    thinking_tokens: u64,
    tokens: u64,
}

/// A turn to come.
struct Turn {
    messages: Vec<Message>,
    options: CallOptions,
}

/// Measures, and hands over each row as it is done.
///
/// Dropping the future cancels the turns under way.
///
/// # Errors
/// The first turn that fails, or `handle`.
pub async fn run<E: From<ProviderError>>(
    provider: &Provider,
    work: &Work,
    mut handle: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E> {
    provider.prepare().await?;
    let mut prompts = Prompts { state: work.seed };
    let bench = Bench { provider, work };
    // Not counted: connections, and files that are still on the disk.
    bench
        .row(String::new(), 1, vec![bench.plain(&mut prompts)])
        .await?;
    for n_streams in &work.concurrency {
        let turns = (0..work.requests.max(*n_streams)).map(|_| bench.plain(&mut prompts));
        let label = format!("{n_streams} at a time");
        handle(bench.row(label, *n_streams, turns.collect()).await?)?;
    }
    if work.long_words > 0 {
        let long = |prompts: &mut Prompts| bench.turn(prompts.text(work.long_words), None);
        let turns = (0..work.requests).map(|_| long(&mut prompts)).collect();
        handle(bench.row("long prompt".to_owned(), 1, turns).await?)?;
        let shared = prompts.text(work.long_words);
        let mut turn = || {
            let mut turn = bench.plain(&mut prompts);
            turn.messages
                .insert(0, Message::text(Role::System, &*shared));
            turn
        };
        handle(
            bench
                .row("shared beginning, cold".to_owned(), 1, vec![turn()])
                .await?,
        )?;
        let turns = (0..work.requests).map(|_| turn()).collect();
        handle(
            bench
                .row("shared beginning, warm".to_owned(), 1, turns)
                .await?,
        )?;
    }
    for (label, form) in [("free text", None), ("JSON by a schema", Some(form()))] {
        let turns = (0..work.requests).map(|_| {
            let mut turn = bench.plain(&mut prompts);
            turn.options.response_format = form.clone().unwrap_or_default();
            turn
        });
        handle(bench.row(label.to_owned(), 1, turns.collect()).await?)?;
    }
    for budget in &work.budgets {
        let turns = (0..work.requests)
            .map(|_| bench.turn(prompts.text(PROMPT_WORDS), Some(*budget)))
            .collect();
        handle(bench.row(format!("budget {budget}"), 1, turns).await?)?;
    }
    Ok(())
}

struct Bench<'a> {
    provider: &'a Provider,
    work: &'a Work,
}

impl Bench<'_> {
    fn plain(&self, prompts: &mut Prompts) -> Turn {
        self.turn(prompts.text(PROMPT_WORDS), None)
    }

    /// Without a budget: one pass, no thought.
    fn turn(&self, words: String, budget: Option<u32>) -> Turn {
        let (thinking, two_pass) = match budget {
            Some(_) => (Thinking::On, Some(TwoPassMode::On)),
            None => (Thinking::Off, None),
        };
        let prompt = format!("{words}. Write a very long story with all of these words.");
        Turn {
            messages: vec![Message::text(Role::User, prompt)],
            options: CallOptions {
                thinking,
                two_pass,
                max_thinking_tokens: budget,
                max_response_tokens: Some(self.work.tokens),
                sampling: Sampling {
                    seed: Some(self.work.seed),
                    ..Sampling::default()
                },
                ..CallOptions::default()
            },
        }
    }

    async fn row(
        &self,
        work: String,
        n_streams: usize,
        turns: Vec<Turn>,
    ) -> Result<Row, ProviderError> {
        let started = Instant::now();
        let running = stream::iter(turns).map(|turn| self.time(turn));
        let timings: Vec<Timing> = running.buffer_unordered(n_streams).try_collect().await?;
        let seconds = started.elapsed().as_secs_f64();
        let values = |get: fn(&Timing) -> f64| {
            let values = timings.iter().map(get).filter(|value| value.is_finite());
            stats::median(&values.collect::<Vec<_>>())
        };
        let tokens = timings.iter().map(|timing| timing.tokens).sum();
        Ok(Row {
            work,
            n_turns: timings.len(),
            first_ms: values(|timing| timing.first_ms),
            total_ms: values(|timing| timing.total_ms),
            each: values(|timing| {
                let after = (timing.total_ms - timing.first_ms) / 1000.0;
                timing.tokens.saturating_sub(1) as f64 / after
            }),
            all: tokens as f64 / seconds,
            prefill: values(|timing| timing.prompt_tokens as f64 * 1000.0 / timing.first_ms),
            prompt_tokens: timings.iter().map(|timing| timing.prompt_tokens).sum(),
            tokens,
            longest_thought: timings
                .iter()
                .map(|timing| timing.thinking_tokens)
                .max()
                .unwrap_or(0),
        })
    }

    async fn time(&self, turn: Turn) -> Result<Timing, ProviderError> {
        let request = self.provider.request(turn.messages, turn.options)?;
        let started = Instant::now();
        let elapsed_ms = || started.elapsed().as_secs_f64() * 1000.0;
        let mut turn = self.provider.stream(request).await?;
        let mut first_ms = None;
        while let Some(item) = turn.next().await {
            match item.map_err(|error| error.with_provider(self.provider.name()))? {
                TurnItem::Event(event) if event.is_output() => {
                    first_ms.get_or_insert_with(elapsed_ms);
                }
                TurnItem::Event(_) => {}
                TurnItem::Done(reply) => {
                    let total_ms = elapsed_ms();
                    return Ok(timing(&reply, (first_ms.unwrap_or(total_ms), total_ms)));
                }
            }
        }
        let message = "the turn ended without its end";
        Err(ProviderError::new(ErrorKind::StreamTruncated, message))
    }
}

fn timing(reply: &Reply, (first_ms, total_ms): (f64, f64)) -> Timing {
    let usage = reply.usage;
    Timing {
        first_ms,
        total_ms,
        prompt_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        thinking_tokens: usage.thinking_tokens,
        tokens: usage.thinking_tokens + usage.response_tokens,
    }
}

/// JSON that can go on as long as text can.
fn form() -> ResponseFormat {
    ResponseFormat::JsonSchema {
        name: "story".to_owned(),
        schema: json!({
            "type": "object", "required": ["chapters"], "additionalProperties": false,
            "properties": {"chapters": {"type": "array", "items": {"type": "string"}, "minItems": 100}},
        }),
        strict: true,
    }
}

/// Texts of ordinary words, each with a beginning of its own.
struct Prompts {
    state: u64,
}

impl Prompts {
    fn text(&mut self, n_words: usize) -> String {
        const WORDS: [&str; 16] = [
            "river", "stone", "morning", "letter", "garden", "winter", "market", "silver",
            "window", "forest", "captain", "bread", "island", "music", "shadow", "harvest",
        ];
        let mut next = || {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 33) as usize
        };
        let number = next();
        let words: Vec<_> = (0..n_words).map(|_| WORDS[next() % WORDS.len()]).collect();
        format!("{number}: {}", words.join(" "))
    }
}

/// Rows as columns of text, for people.
#[must_use]
pub fn table(rows: &[Row]) -> Vec<Vec<String>> {
    let head = [
        "work",
        "turns",
        "first ms",
        "each t/s",
        "all t/s",
        "prefill t/s",
        "tokens",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| {
        let shown = |value: f64| match value.is_nan() {
            true => "-".to_owned(),
            false => format!("{value:.1}"),
        };
        let range =
            |value: Estimate| format!("{:.0} [{:.0} {:.0}]", value.value, value.low, value.high);
        let thought = match row.longest_thought {
            0 => String::new(),
            longest => format!(", thoughts up to {longest}"),
        };
        vec![
            row.work.clone(),
            row.n_turns.to_string(),
            range(row.first_ms),
            shown(row.each.value),
            shown(row.all),
            shown(row.prefill.value),
            format!("{} in, {} out{thought}", row.prompt_tokens, row.tokens),
        ]
    }));
    table
}

/// A row for programs.
#[must_use]
pub fn to_json(row: &Row) -> Value {
    let estimate = |value: Estimate| match value.value.is_nan() {
        true => Value::Null,
        false => json!({"value": value.value, "low": value.low, "high": value.high}),
    };
    json!({
        "work": row.work,
        "turns": row.n_turns,
        "first_ms": estimate(row.first_ms),
        "total_ms": estimate(row.total_ms),
        "tokens_per_second_each": estimate(row.each),
        "tokens_per_second_all": row.all,
        "prefill_tokens_per_second": estimate(row.prefill),
        "prompt_tokens": row.prompt_tokens,
        "tokens": row.tokens,
        "longest_thought": row.longest_thought,
    })
}
