//! `cargo xtask test-peers`: the provider against real servers of others, on this machine.
//!
//! Each server is installed from the Python registry into the cache, started with the small
//! model on one thread, and asked by the example `peers` of the provider, which runs the
//! suite that is written here as data. Not part of the default tests: minutes of computing.

mod llamacpp;
mod vllm;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::server::Server;
use crate::workspace::Workspace;
use crate::{Outcome, setup};

pub(crate) use llamacpp::LlamaServer;
pub(crate) use vllm::VllmServer;

/// A server of others, running.
struct Peer {
    server: Server,
    /// What it is, for the report.
    title: String,
    /// How it is asked: `{means, provider}` or `{checks: "embeddings", provider}`.
    entries: Vec<Value>,
    /// The `embeddings` section of the configuration, if it makes vectors.
    embeddings: Option<Value>,
}

struct Options {
    prompts: usize,
    budgets: Vec<u32>,
    peers: Vec<String>,
}

impl Options {
    const USAGE: &str = "test-peers [--prompts 50] [--budgets 0,1,8,64] [--peers llamacpp,vllm]";

    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            prompts: 50,
            budgets: vec![0, 1, 8, 64],
            peers: vec!["llamacpp".to_owned(), "vllm".to_owned()],
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let usage = || format!("usage: {}", Self::USAGE);
            let value = rest.next().with_context(usage)?;
            match name.as_str() {
                "--prompts" => options.prompts = value.parse().with_context(usage)?,
                "--budgets" => {
                    let budgets = value.split(',').map(str::parse);
                    options.budgets = budgets.collect::<Result<_, _>>().with_context(usage)?;
                }
                "--peers" => options.peers = value.split(',').map(str::to_owned).collect(),
                _ => bail!("unknown option `{name}`; usage: {}", Self::USAGE),
            }
        }
        Ok(options)
    }
}

/// `cargo xtask test-peers`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let options = Options::parse(arguments)?;
    setup::require_build()?;
    let words = [
        "--package=twopass-provider",
        "--no-default-features",
        "--example=peers",
    ];
    let suite = workspace.build(&words, "peers")?;
    let scratch = workspace.scratch("peers")?;
    let mut outcome = Outcome::Done;
    for name in &options.peers {
        // One server at a time: they share the cores.
        for start in starters(name)? {
            let peer = start(workspace, scratch.path())
                .with_context(|| format!("cannot start the peer `{name}`"))?;
            if !passes(&suite, &peer, &options, scratch.path())? {
                outcome = Outcome::Failed;
            }
        }
    }
    Ok(outcome)
}

type Start = fn(&Workspace, &Path) -> anyhow::Result<Peer>;

fn starters(name: &str) -> anyhow::Result<&'static [Start]> {
    match name {
        "llamacpp" => Ok(&[llamacpp::turns, llamacpp::embeddings]),
        "vllm" => Ok(&[vllm::turns]),
        other => bail!("unknown peer `{other}`; usage: {}", Options::USAGE),
    }
}

/// Runs the suite against a peer; its report goes to stdout.
fn passes(suite: &Path, peer: &Peer, options: &Options, folder: &Path) -> anyhow::Result<bool> {
    let data = json!({
        "peer": peer.title,
        "prompts": options.prompts,
        "budgets": options.budgets,
        "answer_tokens": 16,
        "entries": peer.entries,
        "embeddings": peer.embeddings,
    });
    let file = folder.join("suite.json");
    std::fs::write(&file, data.to_string())?;
    let status = Command::new(suite)
        .arg(&file)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", suite.display()))?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("the suite ended with {status} ({})", peer.server.address),
    }
}

/// An entry of the configuration for the server at this address.
fn provider(address: &str, backend: &str, model: &str, keys: Value) -> Value {
    let mut entry = json!({
        "name": "peer",
        "provider_backend": backend,
        "model_name": model,
        "on_error": "raise",
        "api_config": {
            "base_url": format!("http://{address}/v1"),
            "timeout_s": {"first_token": 600, "idle": 120, "total": 600},
        },
    });
    if let (Some(entry), Value::Object(keys)) = (entry.as_object_mut(), keys) {
        entry.extend(keys);
    }
    entry
}
