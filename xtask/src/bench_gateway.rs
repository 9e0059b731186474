//! `cargo xtask bench-gateway`: what the server costs as a gateway, beside a floor and others.
//!
//! All of them run at once in front of the same mock upstream and are loaded in turn. The
//! measuring program (`benches/gateway`) is built in release mode, and so is the server.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::python::{self, Dependencies, python};
use crate::server::{Server, free_port};
use crate::workspace::Workspace;
use crate::{Outcome, setup};

struct Options {
    rounds: usize,
    peers: Vec<String>,
}

impl Options {
    const USAGE: &str = "bench-gateway [--rounds 3] [--peers smg,vllm-router,litellm | none]";

    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            rounds: 3,
            peers: PEERS.iter().map(|peer| peer.name.to_owned()).collect(),
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let usage = || format!("usage: {}", Self::USAGE);
            let value = rest.next().with_context(usage)?;
            match name.as_str() {
                "--rounds" => options.rounds = value.parse().with_context(usage)?,
                "--peers" if value == "none" => options.peers.clear(),
                "--peers" => options.peers = value.split(',').map(str::to_owned).collect(),
                _ => bail!("unknown option `{name}`; usage: {}", Self::USAGE),
            }
        }
        if options.rounds == 0 {
            bail!("rounds must be at least 1");
        }
        Ok(options)
    }
}

/// Another gateway, from the Python registry.
struct Peer {
    name: &'static str,
    package: &'static str,
    version: &'static str,
    /// The part of the requests that it gets; slow ones would take all day.
    share: f64,
    command: fn(site: &Path, upstream: &str, port: u16, folder: &Path) -> anyhow::Result<Command>,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "smg",
        package: "smg",
        version: "1.13.0",
        share: 1.0,
        command: |_, upstream, port, _| {
            let mut command = python();
            command.args(["-m", "smg", "launch", "--host=127.0.0.1"]);
            command.args([format!("--port={port}"), "--worker-urls".to_owned()]);
            command.arg(format!("http://{upstream}"));
            Ok(command)
        },
    },
    Peer {
        name: "vllm-router",
        package: "vllm-router",
        version: "0.1.17",
        share: 1.0,
        command: |_, upstream, port, _| {
            let mut command = python();
            command.args(["-m", "vllm_router.launch_router", "--host=127.0.0.1"]);
            command.args([format!("--port={port}"), "--worker-urls".to_owned()]);
            command.arg(format!("http://{upstream}"));
            command.arg(format!("--prometheus-port={}", free_port()?));
            Ok(command)
        },
    },
    Peer {
        name: "litellm",
        package: "litellm[proxy]",
        version: "1.108.7",
        share: 0.05,
        command: |site, upstream, port, folder| {
            let config = folder.join("litellm.yaml");
            let model = json!({
                "model_name": "m",
                "litellm_params": {
                    "model": "openai/m", "api_base": format!("http://{upstream}/v1"), "api_key": "sk-none",
                },
            });
            std::fs::write(&config, json!({"model_list": [model]}).to_string())?;
            let mut command = python();
            command
                .arg(site.join("bin/litellm"))
                .arg("--config")
                .arg(config);
            command.args(["--host=127.0.0.1".to_owned(), format!("--port={port}")]);
            // It listens on this machine only, and asks for no key.
            command.env(
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY",
                "true",
            );
            Ok(command)
        },
    },
];

/// `cargo xtask bench-gateway`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let options = Options::parse(arguments)?;
    for name in &options.peers {
        if !PEERS.iter().any(|peer| peer.name == name) {
            bail!("unknown peer `{name}`; usage: {}", Options::USAGE);
        }
    }
    setup::require_build()?;
    let words = ["--package=twopass-cli", "--bin=twopass", "--release"];
    let twopass = workspace.build(&words, "twopass")?;
    let manifest = workspace.root.join("benches/Cargo.toml");
    let manifest = format!("--manifest-path={}", manifest.display());
    let words = [&manifest, "--package=twopass-gateway-bench", "--release"];
    let tool = workspace.build(&words, "twopass-gateway-bench")?;
    let scratch = workspace.scratch("bench-gateway")?;
    let folder = scratch.path();

    let start = |arguments: &[&str], name: &str| {
        let mut command = Command::new(&tool);
        command.args(arguments);
        Server::start(command, &folder.join(format!("{name}.log")))
    };
    let upstream = start(&["upstream", "0"], "upstream")?;
    let floor = start(&["floor", "0", &upstream.address], "floor")?;
    let ours = start_ours(&twopass, &upstream.address, folder)?;
    let mut gateways = vec![side("twopass", &ours, 1.0)];
    let mut running = Vec::new();
    for peer in PEERS
        .iter()
        .filter(|peer| options.peers.iter().any(|name| name == peer.name))
    {
        match start_peer(workspace, peer, &upstream.address, folder) {
            Ok(server) => {
                gateways.push(side(peer.name, &server, peer.share));
                running.push(server);
            }
            // The comparison is worth having without one of them.
            Err(error) => eprintln!("without {}: {error:#}", peer.name),
        }
    }
    let setup = json!({
        "rounds": options.rounds,
        "direct": side("the upstream alone", &upstream, 1.0),
        "floor": side("floor", &floor, 1.0),
        "gateways": gateways,
    });
    compare(&tool, &setup)
}

fn compare(tool: &Path, setup: &Value) -> anyhow::Result<Outcome> {
    let mut compare = Command::new(tool)
        .arg("compare")
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = compare.stdin.take() {
        stdin.write_all(setup.to_string().as_bytes())?;
    }
    Ok(if compare.wait()?.success() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

fn side(name: &str, server: &Server, share: f64) -> Value {
    json!({
        "name": name, "address": server.address, "model": "m", "pid": server.pid(), "share": share,
    })
}

fn start_ours(twopass: &Path, upstream: &str, folder: &Path) -> anyhow::Result<Server> {
    let provider = json!({
        "name": "m",
        "provider_backend": "openai",
        "model_name": "m",
        "api_config": {"base_url": format!("http://{upstream}/v1")},
    });
    let config = folder.join("twopass.yaml");
    std::fs::write(&config, json!({"providers": [provider]}).to_string())?;
    let mut command = Command::new(twopass);
    command
        .args(["serve", "--host=127.0.0.1", "--config"])
        .arg(config);
    command.arg(format!("--port={}", free_port()?));
    Server::start(command, &folder.join("twopass.log"))
}

fn start_peer(
    workspace: &Workspace,
    peer: &Peer,
    upstream: &str,
    folder: &Path,
) -> anyhow::Result<Server> {
    let site = python::installed(workspace, peer.package, peer.version, Dependencies::With)?;
    let port = free_port()?;
    let mut command = (peer.command)(&site, upstream, port, folder)?;
    command.env("PYTHONPATH", &site).current_dir(folder);
    let log = folder.join(format!("{}.log", peer.name));
    Server::start_at(command, &format!("127.0.0.1:{port}"), &log)
}
