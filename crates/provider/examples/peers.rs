//! A suite of turns against a running server: `peers SUITE.json`.
//!
//! `SUITE.json` holds `{peer, prompts, budgets, answer_tokens, entries: [{means, provider}],
//! embeddings}`. Each `provider` is an entry of the configuration, `means` what its two-pass
//! turns must report; with `reuses_prefix: true` their second pass must find the first one's
//! tokens in the cache (row M2); with `checks: "embeddings"` instead of `means`, vectors are
//! asked for. What is run is data: a new means is one more entry.
//!
//! Prints one line per check and two tables: what pass 2 found in the cache, and what two
//! passes cost beside one of as many tokens. Ends with 1 if a check failed.
#![expect(clippy::print_stdout, reason = "the report is this program's data")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value, json};
use twopass_core::chat::{DiagnosticKind, Event, Reply};
use twopass_provider::config::{Config, Environment, TwoPassMode};
use twopass_provider::plan::Thinking;
use twopass_provider::{
    CallOptions, Delivery, ErrorKind, Message, Provider, ProviderError, Role, ToolChoice, ToolSpec,
    TurnItem,
};

type Checked = Result<String, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: peers SUITE.json");
        return ExitCode::from(2);
    };
    match Suite::read(&path) {
        Ok(suite) => suite.run().await,
        Err(error) => {
            eprintln!("error: {path}: {error}");
            ExitCode::from(2)
        }
    }
}

struct Suite {
    peer: String,
    n_prompts: usize,
    budgets: Vec<u32>,
    answer_tokens: u32,
    entries: Vec<Entry>,
}

/// One way to ask the server.
struct Entry {
    /// `None`: no turns are asked for, but vectors.
    means: Option<String>,
    reuses_prefix: bool,
    provider: Provider,
}

impl Suite {
    fn read(path: &str) -> Result<Self, Box<dyn Error>> {
        let suite: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        let count = |key: &str| -> Result<u32, Box<dyn Error>> {
            let value = suite[key].as_u64().and_then(|n| u32::try_from(n).ok());
            value.ok_or_else(|| format!("`{key}` is no count").into())
        };
        let budgets = suite["budgets"].as_array().into_iter().flatten();
        let mut entries = Vec::new();
        for entry in suite["entries"].as_array().into_iter().flatten() {
            let mut config = json!({"providers": [entry["provider"]]});
            if suite["embeddings"].is_object() {
                config["embeddings"] = suite["embeddings"].clone();
            }
            let environment = Environment::of_pairs([]);
            let config = Config::parse(&config.to_string(), path, environment)?;
            entries.push(Entry {
                means: entry["means"].as_str().map(str::to_owned),
                reuses_prefix: entry["reuses_prefix"] == true,
                provider: Provider::from_entry(&config, None)?,
            });
        }
        Ok(Self {
            peer: suite["peer"].as_str().unwrap_or("the server").to_owned(),
            n_prompts: usize::try_from(count("prompts")?)?,
            budgets: budgets
                .filter_map(Value::as_u64)
                .map(u32::try_from)
                .collect::<Result<_, _>>()?,
            answer_tokens: count("answer_tokens")?,
            entries,
        })
    }

    async fn run(&self) -> ExitCode {
        let mut report = Report::default();
        for entry in &self.entries {
            let Some(means) = &entry.means else {
                println!("{}, vectors", self.peer);
                report.note("embeddings", entry.embeddings().await);
                continue;
            };
            println!("{}, {means}", self.peer);
            report.note("one pass", entry.one_pass().await);
            report.note("a stream is its whole", entry.stream_is_whole().await);
            report.note("tools", entry.tools().await);
            report.note("a dropped stream", entry.dropped_stream().await);
            report.note("a prompt too long", entry.too_long().await);
            for budget in &self.budgets {
                let name = format!("a budget of {budget}");
                report.note(&name, self.budget(entry, *budget).await);
            }
            report.note("latency", self.latency(entry).await);
        }
        println!("{} passed, {} failed", report.n_passed, report.n_failed);
        ExitCode::from(u8::from(report.n_failed > 0))
    }

    /// Every turn keeps its budget and its cap, and comes about by the means that it reports.
    async fn budget(&self, entry: &Entry, budget: u32) -> Checked {
        let mut seen = Budgeted::default();
        for n in 0..self.n_prompts {
            let options = two_passes(budget, self.answer_tokens);
            let reply = entry.ask(&prompt(n), options).await?;
            seen.add(&reply, entry, budget, self.answer_tokens)
                .map_err(|why| format!("prompt {n}: {why}"))?;
        }
        if budget > 0 && entry.reuses_prefix && seen.n_cached == 0 {
            return Err("pass 2 found nothing of pass 1 in the cache".into());
        }
        Ok(format!(
            "{0} of {0} kept it, {1} cut, {2} without an answer; pass 2: {3} of {4} prompt tokens cached",
            self.n_prompts,
            seen.n_cut,
            seen.n_unanswered,
            seen.n_cached,
            seen.n_cached + seen.n_computed,
        ))
    }

    /// Medians of turns of equal token count.
    async fn latency(&self, entry: &Entry) -> Checked {
        const ROUNDS: usize = 5;
        const TOKENS: u32 = 32;
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for n in 0..ROUNDS {
            let ask = prompt(1000 + n);
            let options = CallOptions {
                max_response_tokens: Some(2 * TOKENS),
                ..single()
            };
            one.push(timed(entry.ask(&ask, options)).await?);
            let ask = prompt(2000 + n);
            two.push(timed(entry.ask(&ask, two_passes(TOKENS, TOKENS))).await?);
        }
        let row = |name: &str, runs: &[(f64, u64)]| {
            let ms = median(runs.iter().map(|(ms, _)| *ms).collect());
            let tokens = runs.iter().map(|(_, n)| n).sum::<u64>();
            #[expect(clippy::cast_precision_loss, reason = "a few hundred tokens")]
            let per_token = runs.iter().map(|(ms, _)| ms).sum::<f64>() / tokens.max(1) as f64;
            format!(
                "\n    {name:<10} {ms:>8.0} ms  {tokens:>5} tokens  {per_token:>6.1} ms a token"
            )
        };
        Ok(format!(
            "medians of {ROUNDS}{}{}",
            row("one pass", &one),
            row("two passes", &two)
        ))
    }
}

/// What the turns of one budget did.
#[derive(Default)]
struct Budgeted {
    n_cut: usize,
    n_unanswered: usize,
    n_cached: u64,
    n_computed: u64,
}

impl Budgeted {
    fn add(
        &mut self,
        reply: &Reply,
        entry: &Entry,
        budget: u32,
        answer_tokens: u32,
    ) -> Result<(), String> {
        let thought = reply.usage.thinking_tokens;
        if thought > u64::from(budget) {
            return Err(format!("{thought} tokens of thought"));
        }
        for pass in &reply.passes {
            let cap = match pass.name {
                "thinking" => budget,
                _ => answer_tokens,
            };
            if pass.decode_tokens > u64::from(cap) || pass.max_tokens.is_none_or(|max| max > cap) {
                return Err(format!("the {} pass: {pass:?}", pass.name));
            }
        }
        let answer = reply.passes.last().ok_or("there is no pass")?;
        // Without a budget there is nothing that a means would be needed for.
        let is_made =
            |means: &str| entry.means.as_deref() == Some(means) || budget == 0 && means == "single";
        if let Some(other) = reply.passes.iter().find(|pass| !is_made(pass.means)) {
            let notes: Vec<_> = reply.diagnostics.iter().map(|d| &d.message).collect();
            return Err(format!("made by `{}`: {notes:?}", other.means));
        }
        // In the middle of a sentence an opening tag is a mention, which small models echo.
        let opens = |line: &str| line.trim_start().starts_with("<think");
        if reply.content.contains("</think") || reply.content.lines().any(opens) {
            return Err(format!("a tag leaks: {}", reply.content));
        }
        self.n_cut += usize::from(reply.reasoning_truncated);
        self.n_unanswered += usize::from(reply.answer_missing());
        if budget > 0 {
            self.n_cached += answer.cached_tokens;
            self.n_computed += answer.prefill_tokens;
        }
        Ok(())
    }
}

impl Entry {
    async fn ask(&self, text: &str, options: CallOptions) -> Result<Reply, ProviderError> {
        let messages = vec![Message::text(Role::User, text)];
        let request = self.provider.request(messages, options)?;
        self.provider.generate(request).await
    }

    async fn one_pass(&self) -> Checked {
        let reply = self.ask(&prompt(1), single()).await?;
        let usage = reply.usage;
        if reply.answer_missing() || usage.prompt_tokens == 0 {
            return Err(format!("{reply:?}").into());
        }
        if usage.response_tokens > 24 || reply.passes.len() != 1 {
            return Err(format!("{:?}", reply.passes).into());
        }
        Ok(format!("{:?}", reply.content))
    }

    /// Greedy turns are the same whole and streamed, and the deltas are the answer.
    async fn stream_is_whole(&self) -> Checked {
        let whole = CallOptions {
            delivery: Delivery::Whole,
            ..single()
        };
        let whole = self.ask(&prompt(2), whole).await?;
        let messages = vec![Message::text(Role::User, prompt(2))];
        let request = self.provider.request(messages, single())?;
        let mut stream = self.provider.stream(request).await?;
        let (mut text, mut n_deltas) = (String::new(), 0);
        while let Some(item) = stream.next().await {
            match item? {
                TurnItem::Event(Event::TextDelta(delta)) => {
                    n_deltas += 1;
                    text.push_str(&delta);
                }
                TurnItem::Event(_) => {}
                TurnItem::Done(reply) if reply.content == text.trim() => {}
                TurnItem::Done(reply) => {
                    return Err(format!("{text:?} is not {:?}", reply.content).into());
                }
            }
        }
        if whole.content != text.trim() || n_deltas < 2 {
            return Err(format!("{n_deltas} deltas of {text:?}, whole {:?}", whole.content).into());
        }
        Ok(format!("{n_deltas} deltas"))
    }

    /// A demanded call is there and valid, or its absence is told; its result goes back.
    async fn tools(&self) -> Checked {
        let tool = ToolSpec {
            name: "get_weather".to_owned(),
            description: "Tells the weather of a city.".to_owned(),
            parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
        };
        let options = CallOptions {
            max_response_tokens: Some(64),
            ..single()
        };
        let choice = ToolChoice::Required;
        let client = self.provider.client().with_options(options);
        let client = client.bind_tools(vec![tool], choice);
        let mut messages = vec![Message::text(Role::User, "What is the weather in Oslo?")];
        let first = client.stream(messages.clone()).await?.collect().await?;
        let told = !first.invalid_tool_calls.is_empty()
            || first
                .diagnostics
                .iter()
                .any(|d| d.kind == DiagnosticKind::MissingToolCall);
        if first.tool_calls.is_empty() && !told {
            return Err(format!("no call and no word of it: {first:?}").into());
        }
        let n_valid = first.tool_calls.len();
        let n_invalid = first.invalid_tool_calls.len();
        messages.push(first.to_message());
        for call in &first.tool_calls {
            let mut result = Message::text(Role::Tool, "12 degrees");
            result.tool_call_id = Some(call.id.clone());
            messages.push(result);
        }
        messages.push(Message::text(Role::User, "Thank you. Say it in one word."));
        let client = client.bind_tools(Vec::new(), ToolChoice::Auto);
        client.stream(messages).await?.collect().await?;
        Ok(format!("{n_valid} valid, {n_invalid} invalid"))
    }

    /// A caller that goes away leaves a server that answers the next one.
    async fn dropped_stream(&self) -> Checked {
        let messages = vec![Message::text(Role::User, "Write a long story about rain.")];
        let options = CallOptions {
            max_response_tokens: Some(512),
            ..single()
        };
        let request = self.provider.request(messages, options)?;
        let mut stream = self.provider.stream(request).await?;
        stream.next().await.ok_or("the stream is empty")??;
        drop(stream);
        let (ms, _) = timed(self.ask(&prompt(3), single())).await?;
        Ok(format!("the next turn took {ms:.0} ms"))
    }

    async fn too_long(&self) -> Checked {
        let text = "rain and snow ".repeat(20_000);
        match self.ask(&text, single()).await {
            Err(error) if error.kind() == ErrorKind::ContextLength => Ok(error.to_string()),
            Err(error) => Err(format!("{}: {error}", error.kind().as_str()).into()),
            Ok(_) => Err("it was answered".into()),
        }
    }

    async fn embeddings(&self) -> Checked {
        let texts = ["rain".to_owned(), "snow".to_owned(), "rain".to_owned()];
        let made = self.provider.embed(&texts).await?;
        let [one, two, three] = made.vectors.as_slice() else {
            return Err("there are not three vectors".into());
        };
        if one == two || one != three {
            return Err("the vectors do not tell the texts apart".into());
        }
        Ok(format!(
            "{} of {} dimensions by {}",
            3,
            one.len(),
            made.model
        ))
    }
}

/// Counted checks.
#[derive(Default)]
struct Report {
    n_passed: usize,
    n_failed: usize,
}

impl Report {
    fn note(&mut self, name: &str, checked: Checked) {
        match checked {
            Ok(what) => {
                self.n_passed += 1;
                println!("  ok      {name}: {what}");
            }
            Err(why) => {
                self.n_failed += 1;
                println!("  FAILED  {name}: {why}");
            }
        }
    }
}

fn prompt(n: usize) -> String {
    let topics = [
        "rain", "copper", "owls", "bread", "the moon", "rivers", "chess",
    ];
    let topic = topics[n % topics.len()];
    format!("Question {n}: what is worth knowing about {topic}?")
}

fn single() -> CallOptions {
    let mut options = CallOptions {
        two_pass: Some(TwoPassMode::Off),
        max_response_tokens: Some(24),
        ..CallOptions::default()
    };
    options.sampling.temperature = Some(0.0);
    options
}

fn two_passes(budget: u32, answer: u32) -> CallOptions {
    CallOptions {
        thinking: Thinking::On,
        two_pass: Some(TwoPassMode::On),
        max_thinking_tokens: Some(budget),
        max_response_tokens: Some(answer),
        ..single()
    }
}

/// Milliseconds and tokens of a turn.
async fn timed(
    turn: impl Future<Output = Result<Reply, ProviderError>>,
) -> Result<(f64, u64), ProviderError> {
    let started = Instant::now();
    let usage = turn.await?.usage;
    let ms = started.elapsed().as_secs_f64() * 1000.0;
    Ok((ms, usage.thinking_tokens + usage.response_tokens))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
