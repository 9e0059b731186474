//! `cargo xtask bench-engine`: our server and others, side by side on the same model.
//!
//! All run at once, each on the same number of threads, and are asked in turn, so that what
//! else the machine does hits all of them. Medians and ratios of pairs are printed, of time
//! and of processor time: on a shared machine single figures mean little.

mod ask;
mod machine;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::peers::{LlamaServer, VllmServer};
use crate::server::{Server, free_port};
use crate::workspace::{Workspace, run as run_command};
use crate::{Outcome, fixtures, install, setup};

use ask::Side;

/// Room for a prompt and an answer, per stream.
const TOKENS_PER_STREAM: u32 = 4096;

struct Options {
    threads: u32,
    rounds: usize,
    streams: Vec<usize>,
    prompt_words: usize,
    long_words: usize,
    prefix_words: usize,
    tokens: u32,
    budgets: Vec<u32>,
    only: Vec<String>,
    peers: Vec<String>,
    model: Option<PathBuf>,
    program: Option<PathBuf>,
    release: bool,
    portable: bool,
}

impl Options {
    const USAGE: &str = "bench-engine [--threads 1] [--rounds 3] [--streams 1,2,4,8,16] \
         [--prompt-words 300] [--long-words 2000] [--prefix-words 1900] [--tokens 64] \
         [--budgets 0,64,256] [--only streams,long,prefix,grammar,budgets,alone] \
         [--peers llamacpp,vllm] [--model FILE.gguf] [--program TWOPASS] [--release [--portable]]\n\
         --release builds with all instructions of this processor, unless --portable is there";

    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            threads: 1,
            rounds: 3,
            streams: vec![1, 2, 4, 8, 16],
            prompt_words: 300,
            long_words: 2000,
            prefix_words: 1900,
            tokens: 64,
            budgets: vec![0, 64, 256],
            only: workloads::KINDS.map(str::to_owned).into(),
            peers: vec!["llamacpp".to_owned()],
            model: None,
            program: None,
            release: false,
            portable: false,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            if name == "--release" || name == install::PORTABLE {
                options.release |= name == "--release";
                options.portable |= name == install::PORTABLE;
                continue;
            }
            let value = rest
                .next()
                .with_context(|| format!("usage: {}", Self::USAGE))?;
            let wrong = || format!("`{value}` is no value of {name}; usage: {}", Self::USAGE);
            options.set(name, value).with_context(wrong)?;
        }
        options.check()?;
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        let list = value.split(',');
        match name {
            "--threads" => self.threads = value.parse()?,
            "--rounds" => self.rounds = value.parse()?,
            "--streams" => self.streams = list.map(str::parse).collect::<Result<_, _>>()?,
            "--prompt-words" => self.prompt_words = value.parse()?,
            "--long-words" => self.long_words = value.parse()?,
            "--prefix-words" => self.prefix_words = value.parse()?,
            "--tokens" => self.tokens = value.parse()?,
            "--budgets" => self.budgets = list.map(str::parse).collect::<Result<_, _>>()?,
            "--only" => self.only = list.map(str::to_owned).collect(),
            "--peers" => self.peers = list.map(str::to_owned).collect(),
            "--model" => self.model = Some(PathBuf::from(value)),
            "--program" => self.program = Some(PathBuf::from(value)),
            _ => bail!("unknown option"),
        }
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.threads == 0 || self.rounds == 0 || self.tokens < 2 || self.streams.contains(&0) {
            bail!("threads, rounds and streams must be at least 1, tokens at least 2");
        }
        let known = |kind: &String| workloads::KINDS.contains(&kind.as_str()) || kind == ALONE;
        if let Some(kind) = self.only.iter().find(|kind| !known(kind)) {
            bail!("unknown work `{kind}`; usage: {}", Self::USAGE);
        }
        let words = self.long_words.max(self.prefix_words);
        // Words of the prompts are one or two tokens each.
        if words * 2 > TOKENS_PER_STREAM as usize + 100 {
            bail!("at most {} words", TOKENS_PER_STREAM / 2);
        }
        Ok(())
    }

    /// The most streams that any of the work has.
    fn max_streams(&self) -> usize {
        let works = workloads::workloads(self).into_iter();
        works.map(|work| work.n_streams).max().unwrap_or(1)
    }
}

/// The work without a server: the engine alone.
const ALONE: &str = "alone";

/// `cargo xtask bench-engine`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let options = Options::parse(arguments)?;
    setup::require_build()?;
    let model = match &options.model {
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("cannot find the model {}", path.display()))?,
        None => fixtures::smollm2(workspace)?,
    };
    let build = |what: [&str; 2], name: &str| {
        let mut command = workspace.cargo(&["build"]);
        command.args(what);
        if options.release {
            command.arg("--release");
        }
        if options.release && !options.portable {
            install::use_all_instructions(&mut command, workspace);
        }
        Workspace::run_build(&mut command, name)
    };
    let bandwidth = machine::read_bandwidth(options.threads);
    if options.only.iter().any(|kind| kind != ALONE) {
        let twopass = match &options.program {
            Some(path) => path.clone(),
            None => build(["--package=twopass-cli", "--bin=twopass"], "twopass")?,
        };
        compare(workspace, (&twopass, &model, bandwidth), &options)?;
    }
    if options.only.iter().any(|kind| kind == ALONE) {
        let example = ["--package=twopass-engine", "--example=engine_bench"];
        let engine_bench = build(example, "engine_bench")?;
        println!("\nThe engine alone, in a process of its own:");
        let mut command = Command::new(engine_bench);
        command.arg(&model).arg(options.threads.to_string());
        run_command(&mut command)?;
    }
    Ok(Outcome::Done)
}

fn compare(
    workspace: &Workspace,
    (twopass, model, bandwidth): (&Path, &Path, f64),
    options: &Options,
) -> anyhow::Result<()> {
    let scratch = workspace.scratch("bench-engine")?;
    let folder = scratch.path();
    let mut sides = vec![ours(twopass, (model, options), folder)?];
    for name in &options.peers {
        sides.push(match name.as_str() {
            "llamacpp" => llama_server(workspace, (model, options), folder)?,
            "vllm" if options.model.is_none() => vllm(workspace, options, folder)?,
            "vllm" => bail!("vLLM is measured with the default model only"),
            other => bail!("unknown peer `{other}`; usage: {}", Options::USAGE),
        });
    }
    let measured = workloads::run(&sides, options)?;
    println!(
        "{}, {} thread(s) each, medians of {} rounds; ratios over 1 are in our favour",
        model.file_name().unwrap_or_default().display(),
        options.threads,
        options.rounds
    );
    for (number, peer) in sides.iter().enumerate().skip(1) {
        measured.print(&sides[0], (number, peer));
    }
    // Once more: other work may have slowed the first.
    let bandwidth = bandwidth.max(machine::read_bandwidth(options.threads));
    let n_bytes = std::fs::metadata(model)?.len() as f64;
    let limit = bandwidth / n_bytes;
    println!(
        "\nmemory: {:.1} GB/s read by {} thread(s); a token reads the {:.0} MB of the model once, \
         so one stream makes at most {limit:.0} tokens per second",
        bandwidth / 1e9,
        options.threads,
        n_bytes / 1e6
    );
    if let Some(speed) = measured.single_stream() {
        println!("one stream reaches {:.0} % of that", 100.0 * speed / limit);
    }
    Ok(())
}

fn ours(
    twopass: &Path,
    (model, options): (&Path, &Options),
    folder: &Path,
) -> anyhow::Result<Side> {
    let streams = options.max_streams();
    let provider = json!({
        "name": "local",
        "provider_backend": "embedded",
        "model_name": model,
        "generation_config": {"two_pass": false},
        "engine_config": {
            "threads": options.threads,
            "context_tokens": u64::from(TOKENS_PER_STREAM) * streams as u64,
            "max_streams": streams,
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
    Ok(Side {
        name: "twopass",
        server: Server::start(command, &folder.join("twopass.log"))?,
        is_ours: true,
        max_streams: streams,
        model: "local",
    })
}

fn llama_server(
    workspace: &Workspace,
    (model, options): (&Path, &Options),
    folder: &Path,
) -> anyhow::Result<Side> {
    let streams = options.max_streams();
    let server = LlamaServer {
        threads: options.threads,
        streams,
        tokens_per_stream: TOKENS_PER_STREAM,
        embeddings: false,
    };
    Ok(Side {
        name: "llama-server",
        server: server.start(workspace, model, &folder.join("llama-server.log"))?,
        is_ours: false,
        max_streams: streams,
        model: "local",
    })
}

fn vllm(workspace: &Workspace, options: &Options, folder: &Path) -> anyhow::Result<Side> {
    let max_streams = options.max_streams();
    let server = VllmServer {
        threads: options.threads,
        streams: max_streams,
        tokens_per_stream: TOKENS_PER_STREAM,
    };
    Ok(Side {
        name: "vLLM",
        server: server.start(workspace, &folder.join("vllm.log"))?,
        is_ours: false,
        max_streams,
        model: VllmServer::MODEL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[test]
    fn options_are_checked() {
        let options = Options::parse(&words("--threads 2 --release --streams 1,4 --only streams"));
        let options = options.unwrap();
        assert_eq!((options.threads, options.release), (2, true));
        assert_eq!(options.max_streams(), 4);
        for bad in [
            "--threads",
            "--threads x",
            "--rounds 0",
            "--tokens 1",
            "--streams 0",
            "--only everything",
            "--long-words 9000",
            "--unknown 3",
        ] {
            assert!(Options::parse(&words(bad)).is_err(), "{bad}");
        }
    }
}
