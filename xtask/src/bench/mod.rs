//! `cargo xtask bench`: our server and llama.cpp's own, side by side on the same file.
//!
//! Both run at once, each on the same number of threads, and are asked in turn, so that what
//! else the machine does hits both. Each run has a prompt that was never seen, so neither has
//! anything to reuse. Medians and ratios of pairs are printed: on a shared machine single
//! figures mean little.

mod client;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::peers::LlamaServer;
use crate::server::{Server, free_port};
use crate::workspace::{Workspace, run as run_command};
use crate::{Outcome, fixtures, setup};

use client::Event;

/// Streams of the concurrent workload.
const STREAMS: usize = 8;
/// Room for a prompt and an answer, per stream.
const TOKENS_PER_STREAM: u32 = 2048;

struct Options {
    threads: u32,
    rounds: usize,
    prompt_words: usize,
    tokens: u32,
    model: Option<PathBuf>,
    release: bool,
}

impl Options {
    const USAGE: &str = "bench [--threads 1] [--rounds 3] [--prompt-words 300] [--tokens 64] \
                         [--model FILE.gguf] [--release]";

    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            threads: 1,
            rounds: 3,
            prompt_words: 300,
            tokens: 64,
            model: None,
            release: false,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            if name == "--release" {
                options.release = true;
                continue;
            }
            let value = rest
                .next()
                .with_context(|| format!("usage: {}", Self::USAGE))?;
            let wrong = || format!("`{value}` is no value of {name}; usage: {}", Self::USAGE);
            match name.as_str() {
                "--threads" => options.threads = value.parse().with_context(wrong)?,
                "--rounds" => options.rounds = value.parse().with_context(wrong)?,
                "--prompt-words" => options.prompt_words = value.parse().with_context(wrong)?,
                "--tokens" => options.tokens = value.parse().with_context(wrong)?,
                "--model" => options.model = Some(PathBuf::from(value)),
                _ => bail!("unknown option `{name}`; usage: {}", Self::USAGE),
            }
        }
        if options.threads == 0 || options.rounds == 0 || options.tokens < 2 {
            bail!("threads and rounds must be at least 1, tokens at least 2");
        }
        Ok(options)
    }
}

/// `cargo xtask bench`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let options = Options::parse(arguments)?;
    setup::require_build()?;
    let model = match &options.model {
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("cannot find the model {}", path.display()))?,
        None => fixtures::smollm2(workspace)?,
    };
    let profile: &[&str] = if options.release { &["--release"] } else { &[] };
    let words = [&["--package=twopass-cli", "--bin=twopass"], profile].concat();
    let twopass = workspace.build(&words, "twopass")?;
    let example = [
        &["--package=twopass-engine", "--example=engine_bench"],
        profile,
    ]
    .concat();
    let engine_bench = workspace.build(&example, "engine_bench")?;
    let scratch = workspace.scratch("bench")?;
    {
        let ours = start_ours(&twopass, &model, &options, scratch.path())?;
        let peer = start_peer(workspace, &model, &options, scratch.path())?;
        let sides = [
            Side {
                address: ours.address.clone(),
                api: Api::Generate,
            },
            Side {
                address: peer.address.clone(),
                api: Api::Chat,
            },
        ];
        compare(&sides, &model, &options)?;
    }
    println!("\nThe engine alone, in this process:");
    let mut command = Command::new(engine_bench);
    command.arg(&model).arg(options.threads.to_string());
    run_command(&mut command)?;
    Ok(Outcome::Done)
}

fn start_ours(
    twopass: &Path,
    model: &Path,
    options: &Options,
    folder: &Path,
) -> anyhow::Result<Server> {
    let provider = json!({
        "name": "local",
        "provider_backend": "embedded",
        "model_name": model,
        "engine_config": {
            "threads": options.threads,
            "context_tokens": u64::from(TOKENS_PER_STREAM) * STREAMS as u64,
            "max_streams": STREAMS,
        },
    });
    let config = folder.join("twopass.yaml");
    let text = json!({"default_provider": "local", "providers": [provider]});
    std::fs::write(&config, text.to_string())?;
    let mut command = Command::new(twopass);
    command
        .args(["serve", "--host=127.0.0.1", "--config"])
        .arg(config);
    command.arg(format!("--port={}", free_port()?));
    Server::start(command, &folder.join("twopass.log"))
}

fn start_peer(
    workspace: &Workspace,
    model: &Path,
    options: &Options,
    folder: &Path,
) -> anyhow::Result<Server> {
    let server = LlamaServer {
        threads: options.threads,
        streams: STREAMS,
        tokens_per_stream: TOKENS_PER_STREAM,
        embeddings: false,
    };
    server.start(workspace, model, &folder.join("llama-server.log"))
}

/// Which request a server takes.
#[derive(Clone, Copy)]
enum Api {
    /// Our `/generate`, one pass.
    Generate,
    /// Chat Completions of llama.cpp's server.
    Chat,
}

/// One of the two servers.
struct Side {
    address: String,
    api: Api,
}

/// What one stream did.
struct Timing {
    started: Instant,
    first: Instant,
    ended: Instant,
    prompt_tokens: u64,
    tokens: u64,
}

/// Tokens per second.
#[derive(Clone, Copy)]
struct Rates {
    prefill: f64,
    generation: f64,
    prompt_tokens: u64,
    tokens: u64,
}

fn compare(sides: &[Side; 2], model: &Path, options: &Options) -> anyhow::Result<()> {
    let mut run = 0;
    let mut next_run = || {
        run += 1;
        run
    };
    for side in sides {
        // Page the file in and warm both up; not counted.
        measure(side, 1, next_run(), options)?;
    }
    let workloads = [1, STREAMS];
    let mut rates: [[Vec<Rates>; 2]; 2] = Default::default();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for (workload, n_streams) in workloads.into_iter().enumerate() {
            // The same prompt for both, the other order each round.
            let run = next_run();
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                let measured = measure(&sides[side], n_streams, run, options)?;
                rates[workload][side].push(measured);
            }
        }
    }
    let name = model.file_name().unwrap_or_default().display();
    println!(
        "{name}, {} thread(s) each, medians of {} rounds",
        options.threads, options.rounds
    );
    println!("tokens per second        twopass  llama-server   ratio  (each round)");
    for (workload, n_streams) in workloads.into_iter().enumerate() {
        let [ours, peer] = &rates[workload];
        let label = if n_streams == 1 {
            "1 stream"
        } else {
            "8 streams"
        };
        let generation = if n_streams == 1 { "decode" } else { "total" };
        print_row(label, "prefill", ours, peer, |rates| rates.prefill);
        print_row(label, generation, ours, peer, |rates| rates.generation);
        let tokens = |rates: &[Rates]| {
            let median = median(rates.iter().map(|rates| rates.tokens as f64).collect());
            format!(
                "{median:.0} of {}",
                u64::from(options.tokens) * n_streams as u64
            )
        };
        let prompt = |rates: &[Rates]| rates.first().map_or(0, |rates| rates.prompt_tokens);
        println!(
            "  prompt tokens computed {} and {}, generated {} and {}",
            prompt(ours),
            prompt(peer),
            tokens(ours),
            tokens(peer)
        );
    }
    Ok(())
}

fn print_row(label: &str, what: &str, ours: &[Rates], peer: &[Rates], rate: fn(&Rates) -> f64) {
    let pairs = || {
        ours.iter()
            .zip(peer)
            .map(|(ours, peer)| rate(ours) / rate(peer))
    };
    let each: Vec<String> = pairs().map(|ratio| format!("{ratio:.2}")).collect();
    println!(
        "{label:<11} {what:<10} {:>9.1} {:>13.1} {:>7.2}  ({})",
        median(ours.iter().map(rate).collect()),
        median(peer.iter().map(rate).collect()),
        median(pairs().collect()),
        each.join(" "),
    );
}

/// The middle value; the mean of both middle values of an even number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Asks one server with that many streams at once. Several streams share out the prompt words,
/// so that their total throughput is not all prefill.
fn measure(side: &Side, n_streams: usize, run: usize, options: &Options) -> anyhow::Result<Rates> {
    let n_words = options.prompt_words / n_streams;
    let timings: Vec<Timing> = std::thread::scope(|scope| {
        let streams: Vec<_> = (0..n_streams)
            .map(|stream| scope.spawn(move || ask(side, &prompt(run, stream, n_words), options)))
            .collect();
        streams
            .into_iter()
            .map(|stream| stream.join().unwrap_or_else(|_| bail!("a stream panicked")))
            .collect::<anyhow::Result<_>>()
    })?;
    rates(&timings).context("no stream was measured")
}

fn rates(timings: &[Timing]) -> Option<Rates> {
    let started = timings.iter().map(|timing| timing.started).min()?;
    let all_first = timings.iter().map(|timing| timing.first).max()?;
    let ended = timings.iter().map(|timing| timing.ended).max()?;
    let prompt_tokens: u64 = timings.iter().map(|timing| timing.prompt_tokens).sum();
    let tokens: u64 = timings.iter().map(|timing| timing.tokens).sum();
    let generation = match timings {
        // The first token belongs to the prefill.
        [one] => (one.tokens - 1) as f64 / (one.ended - one.first).as_secs_f64(),
        _ => tokens as f64 / (ended - started).as_secs_f64(),
    };
    let prefill = prompt_tokens as f64 / (all_first - started).as_secs_f64();
    Some(Rates {
        prefill,
        generation,
        prompt_tokens,
        tokens,
    })
}

/// A text of ordinary words that no other run or stream shares the beginning of.
fn prompt(run: usize, stream: usize, n_words: usize) -> String {
    const WORDS: [&str; 16] = [
        "river", "stone", "morning", "letter", "garden", "winter", "market", "silver", "window",
        "forest", "captain", "bread", "island", "music", "shadow", "harvest",
    ];
    // A fixed generator, so that every bench asks the same.
    let mut state = (run * 64 + stream) as u64 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        WORDS[(state >> 33) as usize % WORDS.len()]
    };
    let words: Vec<&str> = (0..n_words).map(|_| next()).collect();
    format!(
        "{run}.{stream}: {}. Write a very long story with all of these words, at least ten pages.",
        words.join(" ")
    )
}

fn ask(side: &Side, prompt: &str, options: &Options) -> anyhow::Result<Timing> {
    let mut body = json!({
        "messages": [{"role": "user", "content": prompt}],
        "stream": true,
        "max_tokens": options.tokens,
        "temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 7,
    });
    let path = match side.api {
        Api::Generate => {
            body["two_pass"] = json!(false);
            body["max_response_tokens"] = json!(options.tokens);
            "/generate"
        }
        Api::Chat => {
            body["cache_prompt"] = json!(false);
            body["ignore_eos"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            "/v1/chat/completions"
        }
    };
    let started = Instant::now();
    let (mut first, mut last, mut usage) = (None, started, None);
    client::post(&side.address, path, &body, |event| {
        if event.name == "error" || event.data.get("error").is_some() {
            bail!("the server reported {}", event.data);
        }
        if has_text(&event, side.api) {
            first.get_or_insert(event.at);
            last = event.at;
        }
        if event.data["usage"].is_object() {
            usage = Some(event.data["usage"].clone());
        }
        Ok(())
    })?;
    let usage = usage.context("the server reported no usage")?;
    let (prompt_tokens, tokens) = counts(&usage, side.api);
    let first = first.context("the server sent no text")?;
    if tokens < 2 {
        bail!("the server generated {tokens} token(s), too few to measure");
    }
    Ok(Timing {
        started,
        first,
        ended: last,
        prompt_tokens,
        tokens,
    })
}

fn has_text(event: &Event, api: Api) -> bool {
    match api {
        Api::Generate => event.name == "text",
        Api::Chat => event.data["choices"][0]["delta"]["content"].is_string(),
    }
}

/// Prompt tokens that were computed, and tokens generated.
fn counts(usage: &Value, api: Api) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let prompt = number(&usage["prompt_tokens"]);
    let (cached, tokens) = match api {
        Api::Generate => (&usage["cached_tokens"], &usage["response_tokens"]),
        Api::Chat => (
            &usage["prompt_tokens_details"]["cached_tokens"],
            &usage["completion_tokens"],
        ),
    };
    (prompt.saturating_sub(number(cached)), number(tokens))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn medians() {
        assert!(median(vec![]).is_nan());
        for (values, expect) in [(vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 2.5)] {
            assert!((median(values) - expect).abs() < 1e-9);
        }
    }

    #[test]
    fn rates_of_one_and_of_several_streams() {
        let started = Instant::now();
        let at = |seconds| started + Duration::from_secs(seconds);
        let timing = |first, ended| Timing {
            started,
            first: at(first),
            ended: at(ended),
            prompt_tokens: 100,
            tokens: 21,
        };
        let one = rates(&[timing(2, 12)]).unwrap();
        assert!((one.prefill - 50.0).abs() < 1e-9 && (one.generation - 2.0).abs() < 1e-9);
        let two = rates(&[timing(1, 6), timing(4, 12)]).unwrap();
        assert!((two.prefill - 50.0).abs() < 1e-9 && (two.generation - 3.5).abs() < 1e-9);
        assert!(rates(&[]).is_none());
    }

    #[test]
    fn prompts_share_no_beginning() {
        let first = prompt(1, 0, 50);
        assert_eq!(first, prompt(1, 0, 50));
        for other in [prompt(1, 1, 50), prompt(2, 0, 50)] {
            let shared = first
                .bytes()
                .zip(other.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            assert!(shared < 4, "{other}");
        }
    }

    #[test]
    fn options_are_checked() {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let options = Options::parse(&words("--threads 2 --release --rounds 5")).unwrap();
        assert_eq!(
            (options.threads, options.rounds, options.release),
            (2, 5, true)
        );
        for bad in [
            "--threads",
            "--threads x",
            "--rounds 0",
            "--tokens 1",
            "--unknown 3",
        ] {
            assert!(Options::parse(&words(bad)).is_err(), "{bad}");
        }
    }
}
