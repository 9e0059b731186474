//! `cargo xtask bench-calls`: function calling beside llama.cpp's own server, with the same
//! model, on tasks and by checks that others wrote: the Berkeley Function-Calling Leaderboard
//! (BFCL), as the Python package bfcl-eval carries it.
//!
//! Every task demands a call (`tool_choice: required`), greedily. Both servers run at once, on
//! as many threads each, and go through the same tasks, the categories in turn; ours at each
//! thinking budget. `--minutes` ends it earlier: then those count that all of them did.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::client;
use crate::peers::LlamaServer;
use crate::python::{self, Dependencies, python};
use crate::server::{Server, free_port};
use crate::workspace::{Workspace, run_quiet};
use crate::{Outcome, setup};

const BFCL_VERSION: &str = "2026.3.23";
/// Reads the schemas for the count of valid calls.
const JSONSCHEMA: &str = "jsonschema==4.26.0";
/// Room for the offered functions and the calls.
const CONTEXT_TOKENS: u32 = 8192;
/// Enough for the longest right answer, which has 1,112 characters.
const ANSWER_TOKENS: u32 = 384;

struct Options {
    sample: usize,
    categories: Vec<String>,
    budgets: Vec<u32>,
    model: String,
    threads: u32,
    program: Option<PathBuf>,
    minutes: Option<u64>,
}

impl Options {
    const USAGE: &str = "bench-calls [--sample 50] [--categories simple,multiple,parallel] \
                         [--budgets 0,64] [--model qwen2.5-coder-0.5b] [--threads 1] \
                         [--program TWOPASS] [--minutes N]";

    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            sample: 50,
            categories: ["simple", "multiple", "parallel"].map(str::to_owned).into(),
            budgets: vec![0, 64],
            model: "qwen2.5-coder-0.5b".to_owned(),
            threads: 1,
            program: None,
            minutes: None,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let usage = || format!("usage: {}", Self::USAGE);
            let value = rest.next().with_context(usage)?;
            let list = value.split(',');
            match name.as_str() {
                "--sample" => options.sample = value.parse().with_context(usage)?,
                "--categories" => options.categories = list.map(str::to_owned).collect(),
                "--budgets" => {
                    let budgets = list.map(str::parse).collect::<Result<_, _>>();
                    options.budgets = budgets.with_context(usage)?;
                }
                "--model" => options.model.clone_from(value),
                "--threads" => options.threads = value.parse().with_context(usage)?,
                "--minutes" => options.minutes = Some(value.parse().with_context(usage)?),
                "--program" => options.program = Some(PathBuf::from(value)),
                _ => bail!("unknown option `{name}`; usage: {}", Self::USAGE),
            }
        }
        if options.sample == 0 || options.threads == 0 {
            bail!("sample and threads must be at least 1");
        }
        Ok(options)
    }
}

/// `cargo xtask bench-calls`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let options = Options::parse(arguments)?;
    setup::require_build()?;
    let bfcl = Bfcl::install(workspace)?;
    let twopass = match &options.program {
        Some(path) => path.clone(),
        None => workspace.build(&["--package=twopass-cli", "--bin=twopass"], "twopass")?,
    };
    let model = model_file(&twopass, &options.model)?;
    let tasks = bfcl.tasks(&options)?;
    let scratch = workspace.scratch("bench-calls")?;
    let ours = start_ours(&twopass, &model, (&options, scratch.path()))?;
    let peer = LlamaServer {
        threads: options.threads,
        streams: 1,
        tokens_per_stream: CONTEXT_TOKENS,
        embeddings: false,
    }
    .start(workspace, &model, &scratch.path().join("llama-server.log"))?;
    let mut askers: Vec<Asker> = options
        .budgets
        .iter()
        .map(|budget| Asker {
            name: format!("twopass, budget {budget}"),
            address: &ours.address,
            budget: Some(*budget),
            answers: Vec::new(),
        })
        .collect();
    let mut peers = vec![Asker {
        name: "llama-server".to_owned(),
        address: &peer.address,
        budget: None,
        answers: Vec::new(),
    }];
    let minutes = options.minutes.map(|n| Duration::from_secs(60 * n));
    let end = minutes.and_then(|minutes| Instant::now().checked_add(minutes));
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| ask_all(&mut peers, (&tasks, end)));
        ask_all(&mut askers, (&tasks, end))?;
        beside.join().unwrap_or_else(|_| bail!("a side panicked"))
    })?;
    askers.append(&mut peers);
    let n_done = askers.iter().map(|asker| asker.answers.len()).min();
    let n_done = n_done.unwrap_or(0);
    for asker in &mut askers {
        asker.answers.truncate(n_done);
    }
    println!(
        "BFCL {BFCL_VERSION}, {n_done} of {} tasks, {}, {} thread(s) each",
        tasks.len(),
        options.model,
        options.threads
    );
    report(&bfcl, &askers, &options.categories)?;
    Ok(Outcome::Done)
}

/// The path of a GGUF file, or of a model of our catalogue, fetched if need be.
fn model_file(twopass: &Path, model: &str) -> anyhow::Result<PathBuf> {
    if Path::new(model).is_file() {
        return Ok(Path::new(model).canonicalize()?);
    }
    let mut command = Command::new(twopass);
    let pulled = run_quiet(command.args(["models", "pull", model]))?;
    let path = pulled.lines().last().unwrap_or_default().trim();
    Ok(PathBuf::from(path))
}

fn start_ours(
    twopass: &Path,
    model: &Path,
    (options, folder): (&Options, &Path),
) -> anyhow::Result<Server> {
    let provider = json!({
        "name": "local",
        "provider_backend": "embedded",
        "model_name": model,
        "engine_config": {
            "threads": options.threads,
            "context_tokens": CONTEXT_TOKENS,
            "max_streams": 1,
        },
    });
    let config = folder.join("twopass.yaml");
    let text = json!({"default_provider": "local", "providers": [provider]});
    std::fs::write(&config, text.to_string())?;
    let mut command = Command::new(twopass);
    command.args(["serve", "--host=127.0.0.1", "--config"]);
    command.arg(config).arg(format!("--port={}", free_port()?));
    Server::start(command, &folder.join("twopass.log"))
}

/// Data and checks of the leaderboard.
struct Bfcl {
    script: PathBuf,
    /// Folders of packages.
    python_path: std::ffi::OsString,
}

impl Bfcl {
    /// Without what it depends on: fifty packages of client libraries that no check needs.
    fn install(workspace: &Workspace) -> anyhow::Result<Self> {
        setup::require_pip()?;
        let bfcl = python::installed(workspace, "bfcl-eval", BFCL_VERSION, Dependencies::Without)?;
        let schemas = python::installed_all(workspace, "bench-calls", &[JSONSCHEMA])?;
        Ok(Self {
            script: workspace.root.join("xtask/python/bfcl.py"),
            python_path: std::env::join_paths([bfcl, schemas])?,
        })
    }

    fn command(&self) -> Command {
        let mut command = python();
        command
            .arg(&self.script)
            .env("PYTHONPATH", &self.python_path);
        command
    }

    fn tasks(&self, options: &Options) -> anyhow::Result<Vec<Value>> {
        let mut tasks: Vec<(usize, Value)> = Vec::new();
        for category in &options.categories {
            let mut command = self.command();
            command.args(["tasks", category, &options.sample.to_string()]);
            for (idx, line) in run_quiet(&mut command)?.lines().enumerate() {
                tasks.push((idx, serde_json::from_str(line)?));
            }
        }
        // The first of each category, then the second.
        tasks.sort_by_key(|(idx, _)| *idx);
        Ok(tasks.into_iter().map(|(_, task)| task).collect())
    }

    /// Scores lines of `{id, category, calls}`, in their order.
    fn score(&self, answers: &[Value]) -> anyhow::Result<Vec<Value>> {
        let mut child = self
            .command()
            .arg("score")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start python3")?;
        let mut stdin = child.stdin.take().context("no pipe to the checks")?;
        let lines: String = answers.iter().map(|answer| format!("{answer}\n")).collect();
        // The checks answer while they read: a pipe that nobody empties would stop both.
        let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
        let output = child.wait_with_output()?;
        if writer.join().is_err() || !output.status.success() {
            bail!("the checks ended with {}", output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let scores = text.lines().map(serde_json::from_str);
        Ok(scores.collect::<Result<_, _>>()?)
    }
}

/// One column of the table, and what it was answered.
struct Asker<'a> {
    name: String,
    address: &'a str,
    /// `None`: the server knows no budget.
    budget: Option<u32>,
    answers: Vec<Answer>,
}

struct Answer {
    /// `{id, category, calls}`.
    calls: Value,
    seconds: f64,
}

/// Asks each of them each task, in turn, until the end.
fn ask_all(
    askers: &mut [Asker<'_>],
    (tasks, end): (&[Value], Option<Instant>),
) -> anyhow::Result<()> {
    for (number, task) in (1..).zip(tasks) {
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
        for asker in &mut *askers {
            let answer = asker.ask(task)?;
            asker.answers.push(answer);
            if number % 10 == 0 {
                eprintln!("{}: {number} of {}", asker.name, tasks.len());
            }
        }
    }
    Ok(())
}

impl Asker<'_> {
    fn ask(&self, task: &Value) -> anyhow::Result<Answer> {
        let is_parallel = task["category"]
            .as_str()
            .is_some_and(|category| category.contains("parallel"));
        let mut body = json!({
            "model": "local",
            "messages": task["messages"],
            "tools": task["tools"],
            "tool_choice": "required",
            "parallel_tool_calls": is_parallel,
            "temperature": 0, "seed": 7,
        });
        match self.budget {
            Some(budget) => {
                body["max_thinking_tokens"] = json!(budget);
                body["max_response_tokens"] = json!(ANSWER_TOKENS);
            }
            None => body["max_tokens"] = json!(ANSWER_TOKENS),
        }
        let started = Instant::now();
        let answer = client::post_whole(self.address, "/v1/chat/completions", &body);
        let seconds = started.elapsed().as_secs_f64();
        // A server that refuses a task has no call to show for it.
        let answer = answer.unwrap_or_else(|error| {
            eprintln!("{}, {}: {error:#}", self.name, task["id"]);
            Value::Null
        });
        let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
        let calls: Vec<Value> = calls
            .into_iter()
            .flatten()
            .map(|call| call["function"].clone())
            .collect();
        let calls = json!({"id": task["id"], "category": task["category"], "calls": calls});
        Ok(Answer { calls, seconds })
    }
}

/// What one asker's answers to one category were worth.
#[derive(Default)]
struct Tally {
    n_tasks: usize,
    n_correct: usize,
    n_valid: usize,
    seconds: Vec<f64>,
    /// Whether each task was solved, in order.
    solved: Vec<bool>,
    errors: BTreeMap<String, usize>,
}

fn tally(bfcl: &Bfcl, asker: &Asker<'_>) -> anyhow::Result<BTreeMap<String, Tally>> {
    let calls: Vec<Value> = asker
        .answers
        .iter()
        .map(|answer| answer.calls.clone())
        .collect();
    let scores = bfcl.score(&calls)?;
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for (answer, score) in asker.answers.iter().zip(&scores) {
        let category = answer.calls["category"].as_str().unwrap_or_default();
        let tally = tallies.entry(category.to_owned()).or_default();
        let is_correct = score["correct"] == true;
        tally.n_tasks += 1;
        tally.n_correct += usize::from(is_correct);
        tally.n_valid += usize::from(score["valid"] == true);
        tally.seconds.push(answer.seconds);
        tally.solved.push(is_correct);
        if let Some(error) = score["error"].as_str() {
            *tally.errors.entry(error.to_owned()).or_default() += 1;
        }
    }
    Ok(tallies)
}

fn report(bfcl: &Bfcl, askers: &[Asker<'_>], categories: &[String]) -> anyhow::Result<()> {
    let tallies = askers
        .iter()
        .map(|asker| tally(bfcl, asker))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let Some(peer) = tallies.last() else {
        return Ok(());
    };
    println!(
        "category   asked                 correct        valid  seconds  only it / only llama-server"
    );
    for category in categories {
        for (asker, tallies) in askers.iter().zip(&tallies) {
            let (Some(own), Some(peer)) = (tallies.get(category), peer.get(category)) else {
                continue;
            };
            let pairs = || own.solved.iter().zip(&peer.solved);
            println!(
                "{category:<10} {:<20} {:>3} {:>5.1}% {:>10.1}% {:>8.1}  {} / {}",
                asker.name,
                own.n_correct,
                percent(own.n_correct, own.n_tasks),
                percent(own.n_valid, own.n_tasks),
                own.seconds.iter().sum::<f64>() / own.n_tasks as f64,
                pairs().filter(|(own, peer)| **own && !**peer).count(),
                pairs().filter(|(own, peer)| !**own && **peer).count(),
            );
        }
    }
    println!("\nseconds: mean per task; what was wrong, most frequent first:");
    for (asker, tallies) in askers.iter().zip(&tallies) {
        for (category, tally) in tallies {
            let mut errors: Vec<_> = tally.errors.iter().collect();
            errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let shown: Vec<_> = errors
                .iter()
                .take(3)
                .map(|(error, count)| format!("{count} {error}"))
                .collect();
            if !shown.is_empty() {
                println!("  {}, {category}: {}", asker.name, shown.join("; "));
            }
        }
    }
    Ok(())
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[test]
    fn options_are_checked() {
        let options = Options::parse(&words("--sample 9 --budgets 0,8 --categories simple"));
        let options = options.unwrap();
        assert_eq!((options.sample, options.budgets), (9, vec![0, 8]));
        assert_eq!(options.categories, ["simple"]);
        for bad in ["--sample", "--sample 0", "--budgets x", "--unknown 3"] {
            assert!(Options::parse(&words(bad)).is_err(), "{bad}");
        }
    }
}
