//! Measures the engine in this process:
//! `engine_bench MODEL.gguf [THREADS [speeds [STREAMS..]|gaps|passes [PROMPT_TOKENS..]|masks|ahead [DRAFT.gguf]]]`.
//!
//! Prints prefill and decode speed of 1 and 8 streams; the gaps between tokens of 4 running
//! streams while a long prompt arrives; and what two passes cost against one pass of the same
//! tokens and against two requests; and what share of the decodes' time
//! grammars take. `ahead`: what guesses win, by prompt lookup and by a draft model, on answers
//! that repeat their prompt and on others. Every figure is the median of several runs, taken in
//! turn, since other work on the machine hits all of them.
#![expect(
    clippy::print_stdout,
    reason = "a measuring program prints its figures"
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use twopass_core::chat::ThinkTag;
use twopass_core::chat_template::{Prompt, Segment};
use twopass_core::control::ThinkingRule;
use twopass_engine::{
    Engine, EngineOptions, Error, GenerateRequest, Generation, Grammar, Outcome, Output,
};

const CLOSE: &str = "\n</think>\n\n";
const ROUNDS: usize = 3;
const THINKING_TOKENS: u32 = 48;
const ANSWER_TOKENS: u32 = 48;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: engine_bench MODEL.gguf \
                 [THREADS [speeds [STREAMS..]|gaps|masks|passes [PROMPT_TOKENS..]|ahead [DRAFT.gguf]]]";
    let path = PathBuf::from(arguments.next().ok_or(usage)?);
    let threads = match arguments.next() {
        Some(text) => Some(text.parse().map_err(|_| usage)?),
        None => None,
    };
    let mut options = EngineOptions::new(&path);
    options.threads = threads;
    // Nothing is reused: every run computes what it says.
    options.cached_sequences = 0;
    let what = arguments.next();
    let numbers = match what.as_deref() {
        Some("speeds" | "passes") => arguments.by_ref().map(|text| text.parse()).collect(),
        _ => Ok(Vec::new()),
    };
    let numbers: Vec<usize> = numbers.map_err(|_| usage)?;
    let given = |usual: &[usize]| match numbers.as_slice() {
        [] => usual.to_vec(),
        given => given.to_vec(),
    };
    if what.as_deref() == Some("speeds") {
        for &n_streams in &numbers {
            options.max_streams = options.max_streams.max(n_streams as u32);
        }
        options.context_tokens = options.max_streams * TOKENS_PER_STREAM;
    }
    let engine = Engine::load(options.clone())?;
    let info = engine.info();
    println!(
        "{} ({}), {} threads",
        info.name, info.architecture, info.threads
    );
    let mut bench = Bench { engine, salt: 0 };
    match what.as_deref() {
        None => {
            bench.speeds(&STREAMS)?;
            bench.gaps()?;
            bench.masks()?;
            bench.passes(&PROMPTS)?;
        }
        Some("speeds") => bench.speeds(&given(&STREAMS))?,
        Some("gaps") => bench.gaps()?,
        Some("masks") => bench.masks()?,
        Some("ahead") => ahead(options, bench, arguments.next().map(PathBuf::from))?,
        Some("passes") => bench.passes(&given(&PROMPTS))?,
        Some(_) => return Err(usage.into()),
    }
    Ok(())
}

/// A text to repeat with a small change, and one to write freely.
const TASKS: [(&str, &str); 2] = [
    (
        "repeats",
        "Repeat this list of fruit three times, word for word: apple, banana, cherry, date, \
         elderberry, fig, grape, lemon, mango, orange, papaya, quince.",
    ),
    (
        "writes",
        "Write a short story about a river that forgets its way.",
    ),
];

/// What guesses win: the same greedy answers with and without them.
fn ahead(mut options: EngineOptions, plain: Bench, draft: Option<PathBuf>) -> Result<(), Error> {
    println!("\nguesses, greedy answers of 96 tokens (medians of {ROUNDS} rounds)");
    println!(
        "{:>14} {:>8} {:>12} {:>8} {:>8} {:>8}",
        "guesses", "task", "tokens/s", "steps", "guessed", "met"
    );
    tasks("none", &plain.engine)?;
    drop(plain);
    options.prompt_lookup_tokens = 8;
    tasks("prompt lookup", &Engine::load(options.clone())?)?;
    if draft.is_some() {
        options.prompt_lookup_tokens = 0;
        options.draft_model = draft;
        tasks("draft model", &Engine::load(options)?)?;
    }
    Ok(())
}

fn tasks(guesses: &str, engine: &Engine) -> Result<(), Error> {
    for (name, text) in TASKS {
        let mut speeds = Vec::new();
        let before = engine.stats();
        for _ in 0..ROUNDS {
            let prompt = format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
            let segments = vec![Segment::Markup(prompt)];
            let mut request = turn(Prompt { segments }, 96);
            request.sampling.temperature = Some(0.0);
            let timed = read(engine.generate(request)?);
            let (Some(first), Some(last)) = (timed.arrivals.first(), timed.arrivals.last()) else {
                continue;
            };
            let n_tokens: u32 = timed.arrivals.iter().skip(1).map(|a| a.1).sum();
            speeds.push(f64::from(n_tokens) / (last.0 - first.0).as_secs_f64());
        }
        let after = engine.stats();
        println!(
            "{guesses:>14} {name:>8} {:>12.1} {:>8} {:>8} {:>8}",
            median(speeds),
            (after.steps - before.steps) / ROUNDS as u64,
            (after.drafted_tokens - before.drafted_tokens) / ROUNDS as u64,
            (after.accepted_tokens - before.accepted_tokens) / ROUNDS as u64,
        );
    }
    Ok(())
}

/// What the calls of the grammar's table are bound to.
const CALL_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "customer": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 24},
                "mail": {"type": "string", "format": "email", "maxLength": 32},
                "age": {"type": "integer", "minimum": 18, "maximum": 120}
            },
            "required": ["name", "mail", "age"],
            "additionalProperties": false
        },
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
                    "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
                    "price": {"type": "number", "minimum": 0.01, "maximum": 9999.99},
                    "size": {"anyOf": [{"enum": ["s", "m", "l"]}, {"type": "null"}]}
                },
                "required": ["sku", "quantity", "price", "size"],
                "additionalProperties": false
            },
            "minItems": 2,
            "maxItems": 4
        },
        "express": {"type": "boolean"}
    },
    "required": ["customer", "lines", "express"],
    "additionalProperties": false
}"#;

/// Prompt lengths of the latency table, in tokens.
const PROMPTS: [usize; 3] = [100, 1000, 3000];
const STREAMS: [usize; 2] = [1, 8];
/// Room for one stream, where their number is given.
const TOKENS_PER_STREAM: u32 = 1024;

struct Bench {
    engine: Engine,
    salt: u32,
}

/// A turn with the times at which its reader got something.
struct Timed {
    outcome: Outcome,
    arrivals: Vec<(Instant, u32)>,
}

impl Bench {
    fn speeds(&mut self, streams: &[usize]) -> Result<(), Error> {
        println!("\nspeed, tokens per second of wall time and of processor time");
        println!("(prompt 256, 64 generated; of several streams decode is their sum)");
        println!(
            "{:>8} {:>10} {:>10} {:>14}",
            "streams", "prefill", "decode", "all, per cpu s"
        );
        for &n_streams in streams {
            let (mut prefill, mut decode) = (Vec::new(), Vec::new());
            let mut per_cpu = Vec::new();
            for _ in 0..ROUNDS {
                let start = Instant::now();
                let cpu = cpu_seconds();
                let turns = (0..n_streams)
                    .map(|_| {
                        let prompt = self.prompt(256);
                        self.engine.generate(turn(prompt, 64))
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let timed = read_all(turns);
                let n_prompt: u64 = timed.iter().map(|t| t.outcome.usage.prompt_tokens).sum();
                let firsts = timed.iter().filter_map(|t| t.arrivals.first().map(|a| a.0));
                let begun = firsts.max().unwrap_or(start);
                prefill.push(n_prompt as f64 / (begun - start).as_secs_f64());
                // Only what came after the last stream's prompt was computed.
                let later = timed.iter().flat_map(|t| &t.arrivals);
                let later = later.filter(|a| a.0 > begun);
                let n_tokens: u32 = later.clone().map(|a| a.1).sum();
                let end = later.map(|a| a.0).max().unwrap_or(begun);
                decode.push(f64::from(n_tokens) / (end - begun).as_secs_f64());
                let n_answer: u64 = timed.iter().map(|t| t.outcome.usage.response_tokens).sum();
                per_cpu.push((n_prompt + n_answer) as f64 / (cpu_seconds() - cpu));
            }
            let [prefill, decode, per_cpu] = [prefill, decode, per_cpu].map(median);
            println!("{n_streams:>8} {prefill:>10.1} {decode:>10.1} {per_cpu:>14.1}");
        }
        Ok(())
    }

    fn gaps(&mut self) -> Result<(), Error> {
        let talkers = (0..4)
            .map(|_| {
                let mut talker = turn(self.prompt(32), 700);
                talker.recite = Some("word ".repeat(700));
                self.engine.generate(talker)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let talkers: Vec<_> = talkers
            .into_iter()
            .map(|turn| std::thread::spawn(move || read(turn)))
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        let prompt = self.prompt(4000);
        let arrived = Instant::now();
        let long = read(self.engine.generate(turn(prompt, 1))?);
        let computed = Instant::now();
        let timed: Vec<Timed> = talkers.into_iter().filter_map(|t| t.join().ok()).collect();
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for pair in timed.iter().flat_map(|t| t.arrivals.windows(2)) {
            let gap = (pair[1].0 - pair[0].0).as_secs_f64() * 1000.0;
            if pair[1].0 < arrived {
                alone.push(gap);
            } else if pair[0].0 > arrived && pair[1].0 < computed {
                beside.push(gap);
            }
        }
        let most = |gaps: &[f64]| gaps.iter().copied().fold(0.0, f64::max);
        println!("\ngap between tokens of 4 streams, ms (median, most)");
        println!(
            "  alone              {:>8.1} {:>8.1}",
            median(alone.clone()),
            most(&alone)
        );
        println!(
            "  beside a prompt    {:>8.1} {:>8.1}",
            median(beside.clone()),
            most(&beside)
        );
        println!(
            "  the prompt of {} tokens took {:.1} s",
            long.outcome.usage.prompt_tokens,
            (computed - arrived).as_secs_f64()
        );
        Ok(())
    }

    /// Turns of calls that a grammar binds, sampled at temperature 1.
    fn masks(&mut self) -> Result<(), Error> {
        println!("\ngrammar, share of the decodes' time (medians of {ROUNDS} rounds)");
        println!(
            "{:>8} {:>10} {:>14} {:>14} {:>8}",
            "streams", "tokens", "decode, ms", "grammar, ms", "share"
        );
        for n_streams in [1, 8] {
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let turns: Vec<_> = (0..n_streams).map(|n| self.bound_turn(n)).collect();
                // The prompts are computed before the grammar works: they are kept short.
                let before = self.engine.stats();
                let turns: Result<Vec<_>, Error> = turns
                    .into_iter()
                    .map(|turn| self.engine.generate(turn))
                    .collect();
                read_all(turns?);
                let after = self.engine.stats();
                let n_tokens = after.decode_tokens - before.decode_tokens;
                let decode = after.decode_seconds - before.decode_seconds;
                let grammar = after.grammar_seconds - before.grammar_seconds;
                rounds.push((grammar / decode, n_tokens, decode, grammar));
            }
            rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (share, n_tokens, decode, grammar) = rounds[ROUNDS / 2];
            println!(
                "{n_streams:>8} {n_tokens:>10} {:>14.1} {:>14.1} {:>7.2}%",
                decode * 1000.0,
                grammar * 1000.0,
                share * 100.0
            );
        }
        Ok(())
    }

    /// A turn of a call with nested objects, lists, choices and bounds.
    fn bound_turn(&mut self, seed: u64) -> GenerateRequest {
        let mut request = turn(self.prompt(16), 256);
        request.sampling.seed = Some(seed);
        request.sampling.temperature = Some(1.0);
        request.grammar = Some(Grammar::whole(format!("start: %json {CALL_SCHEMA}")));
        request
    }

    fn passes(&mut self, prompts: &[usize]) -> Result<(), Error> {
        println!(
            "\nlatency, ms: {THINKING_TOKENS} thinking and {ANSWER_TOKENS} answer tokens \
             (medians of {ROUNDS} rounds; two pass / one pass in processor time, each round)"
        );
        println!(
            "{:>8} {:>10} {:>10} {:>13} {:>24}",
            "prompt", "one pass", "two pass", "two requests", "two / one, cpu"
        );
        for &n_prompt in prompts {
            let mut rows: [Vec<f64>; 3] = Default::default();
            let mut ratios = Vec::new();
            for round in 0..ROUNDS {
                // The order changes, so that no way always comes first.
                let mut times = [0.0; 3];
                for way in (0..3).map(|k| (k + round) % 3) {
                    let cpu = cpu_seconds();
                    rows[way].push(self.one_way(way, n_prompt)?);
                    times[way] = cpu_seconds() - cpu;
                }
                ratios.push(format!("{:.3}", times[1] / times[0]));
            }
            let [one, two, apart] = rows.map(median);
            println!(
                "{n_prompt:>8} {one:>10.0} {two:>10.0} {apart:>13.0} {:>24}",
                ratios.join(" ")
            );
        }
        Ok(())
    }

    fn one_way(&mut self, way: usize, n_prompt: usize) -> Result<f64, Error> {
        let words = |n: u32| " word".repeat(n as usize);
        let mut request = turn(self.prompt(n_prompt), ANSWER_TOKENS);
        let start = Instant::now();
        match way {
            0 => {
                request.max_tokens = Some(THINKING_TOKENS + ANSWER_TOKENS);
                request.recite = Some(words(THINKING_TOKENS + ANSWER_TOKENS));
                read(self.engine.generate(request)?);
            }
            1 => {
                request.thinking = Some(ThinkingRule {
                    tag: ThinkTag::Think,
                    budget_tokens: THINKING_TOKENS,
                    close_text: CLOSE.to_owned(),
                    call_open: None,
                    call_close: None,
                });
                request.recite = Some(words(THINKING_TOKENS + ANSWER_TOKENS));
                read(self.engine.generate(request)?);
            }
            _ => {
                let mut first = request.clone();
                first.max_tokens = Some(THINKING_TOKENS);
                first.recite = Some(words(THINKING_TOKENS));
                read(self.engine.generate(first)?);
                let thought = format!("{}{CLOSE}", words(THINKING_TOKENS));
                request.prompt.segments.push(Segment::Markup(thought));
                request.recite = Some(words(ANSWER_TOKENS));
                read(self.engine.generate(request)?);
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1000.0)
    }

    /// A prompt of exactly this many tokens that was never seen.
    fn prompt(&mut self, n_tokens: usize) -> Prompt {
        self.salt += 1;
        let mut text = format!("Story {}:", self.salt);
        let words = [" river", " stone", " cloud", " green", " paper", " music"];
        let segment = |text: &str| Prompt {
            segments: vec![Segment::Markup(text.to_owned())],
        };
        let have = self.engine.tokenize(&segment(&text)).map_or(0, |t| t.len());
        for n in 0..n_tokens.saturating_sub(have) {
            text.push_str(words[(n * 7 + n / 5) % words.len()]);
        }
        segment(&text)
    }
}

fn turn(prompt: Prompt, max_tokens: u32) -> GenerateRequest {
    let mut request = GenerateRequest::new(prompt);
    request.max_tokens = Some(max_tokens);
    request.sampling.seed = Some(1);
    request
}

fn read_all(turns: Vec<Generation>) -> Vec<Timed> {
    let readers: Vec<_> = turns
        .into_iter()
        .map(|turn| std::thread::spawn(move || read(turn)))
        .collect();
    readers.into_iter().filter_map(|r| r.join().ok()).collect()
}

fn read(mut turn: Generation) -> Timed {
    let mut arrivals = Vec::new();
    loop {
        match turn.blocking_next() {
            Some(Output::Text { n_tokens, .. }) => arrivals.push((Instant::now(), n_tokens)),
            Some(Output::Done(outcome)) => {
                return Timed {
                    outcome: *outcome,
                    arrivals,
                };
            }
            None => std::process::abort(),
        }
    }
}

/// Processor time of this process so far; not a number where the system does not tell.
fn cpu_seconds() -> f64 {
    let ticks = std::fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|text| {
            let (_, rest) = text.rsplit_once(") ")?;
            let mut fields = rest.split(' ').skip(11);
            let user: f64 = fields.next()?.parse().ok()?;
            let system: f64 = fields.next()?.parse().ok()?;
            Some(user + system)
        });
    // Linux counts a hundred ticks a second.
    ticks.map_or(f64::NAN, |ticks| ticks / 100.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
