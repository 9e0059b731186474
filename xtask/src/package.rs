//! The Python package: its tests, and its wheel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::pytest::{self, Suite};
use crate::python::{self, Dependencies};
use crate::test::Count;
use crate::workspace::{AS_TESTED, Workspace, run, run_quiet};
use crate::{Outcome, setup};

/// The folder of the package's sources and tests.
const FOLDER: &str = "python";
/// The native module, as the interpreter looks for it.
const NATIVE: &str = "_native.abi3.so";
/// The crate's library.
const LIBRARY: &str = "twopass_python";
const MATURIN: &str = "1.16.0";

/// Names the folder of the next.
const TEST_SUITE: &str = "package-tests";
/// What the tests need; the LangChain that users have.
const TEST_PACKAGES: &[&str] = &[
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "langchain==1.5.2",
    "langchain-core==1.8.3",
    "langchain-openai==1.7.4",
    "langchain-tests==1.1.9",
    "langgraph==1.2.24",
    "mypy==2.4.1",
    "pyright==1.1.414",
];

/// Parses and asks with what a wheel holds and nothing else: no LangChain, no server.
const SMOKE: &str = "
import importlib.util, sys, twopass
assert importlib.util.find_spec('langchain_core') is None
assert twopass.parse_response('<think>a</think>b') == {'response': 'b', 'thinking': 'a'}
config = {'providers': [{'name': 'a', 'provider_backend': 'embedded', 'model_name': sys.argv[1]}]}
turn = twopass.LLMProvider(config).invoke('Hi', max_response_tokens=2)
assert turn['response'], turn
print('twopass', twopass.__version__, turn)
";

/// The same with the extra for LangChain: a turn, a call that must come, and a stream.
const SMOKE_LANGCHAIN: &str = "
import sys
from twopass import ChatVllm

def get_forecast(city: str) -> str:
    'Get the forecast for a city.'
    return f'sun in {city}'

config = {'providers': [{'name': 'a', 'provider_backend': 'embedded', 'model_name': sys.argv[1]}]}
model = ChatVllm(config=config, temperature=0, max_response_tokens=64)
message = model.bind_tools([get_forecast], tool_choice='any').invoke('Will it rain in Rome?')
assert message.tool_calls[0]['name'] == 'get_forecast', message
assert ''.join(chunk.text for chunk in model.stream('Hi', max_response_tokens=2))
print('ChatVllm', message.tool_calls, message.usage_metadata)
";

/// Runs the package's tests on the workspace's own build of the native module.
pub(crate) fn test(workspace: &Workspace, model: &Path) -> anyhow::Result<(Count, bool)> {
    let library = workspace.build(&AS_TESTED, LIBRARY)?;
    let program = workspace.build(&AS_TESTED, "twopass")?;
    let staged = stage(workspace, &library)?;
    let suite = Suite {
        name: TEST_SUITE,
        packages: TEST_PACKAGES,
        folder: FOLDER,
        modules: vec![staged],
        environment: vec![
            ("TWOPASS_BIN", program),
            ("TWOPASS_TEST_MODEL", model.to_path_buf()),
        ],
    };
    pytest::run(workspace, &suite)
}

/// `cargo xtask bench-python [--release]`: what a stream costs through the package, beside the
/// Rust client, over the same server.
pub(crate) fn bench(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let profile: &[&str] = match arguments {
        [] => &[],
        [flag] if flag == "--release" => &["--release"],
        _ => bail!("`bench-python` takes `--release` or nothing"),
    };
    setup::require_build()?;
    let words = [&["--package=twopass-python"], profile].concat();
    let library = workspace.build(&words, LIBRARY)?;
    let words = [
        &["--package=twopass-provider", "--example=streams"],
        profile,
    ]
    .concat();
    let floor = workspace.build(&words, "streams")?;
    let script = workspace.root.join(FOLDER).join("benches/streams.py");
    let site = python::installed_all(workspace, TEST_SUITE, TEST_PACKAGES)?;
    let mut command = python::python();
    command.arg(script).arg(floor);
    command.env(
        "PYTHONPATH",
        std::env::join_paths([stage(workspace, &library)?, site])?,
    );
    run(&mut command)?;
    Ok(Outcome::Done)
}

/// The package with its native module, in a folder for `PYTHONPATH`.
fn stage(workspace: &Workspace, library: &Path) -> anyhow::Result<PathBuf> {
    let target = library.parent().context("a library has a folder")?;
    let staged = target.join("python-package");
    if staged.exists() {
        std::fs::remove_dir_all(&staged)?;
    }
    copy_sources(
        &workspace.root.join(FOLDER).join("twopass"),
        &staged.join("twopass"),
    )?;
    std::fs::copy(library, staged.join("twopass").join(NATIVE))?;
    Ok(staged)
}

fn copy_sources(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "__pycache__" {
                copy_sources(&path, &to.join(name))?;
            }
        } else if path.extension().is_none_or(|extension| extension != "so") {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// `cargo xtask wheel [--release]`: builds a wheel into `target/wheels` and tries it in a fresh
/// virtual environment, first alone, then with LangChain. Without `--release` with the profile
/// of the tests.
pub(crate) fn wheel(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    let profile = match arguments {
        [] => "dev",
        [flag] if flag == "--release" => "release",
        _ => bail!("`wheel` takes `--release` or nothing"),
    };
    setup::require_build()?;
    let model = crate::fixtures::models(workspace)?.smollm2;
    let started = Instant::now();
    let wheel = build(workspace, profile)?;
    let built = started.elapsed();
    let scratch = workspace.scratch("wheel")?;
    let python = python::virtual_environment(&scratch.path().join("venv"))?;
    let wheel_path = wheel.display();
    for (requirement, script) in [
        (wheel_path.to_string(), SMOKE),
        (format!("{wheel_path}[langchain]"), SMOKE_LANGCHAIN),
    ] {
        python::install_there(&python, &requirement)?;
        let mut command = Command::new(&python);
        // Away from the sources, which would be found first.
        command.current_dir(scratch.path()).args(["-c", script]);
        run(command.arg(&model))?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    let size = std::fs::metadata(&wheel)?.len() as f64 / 1e6;
    println!("{wheel_path}: {size:.1} MB, built in {} s", built.as_secs());
    Ok(Outcome::Done)
}

fn build(workspace: &Workspace, profile: &str) -> anyhow::Result<PathBuf> {
    let site = python::installed(workspace, "maturin", MATURIN, Dependencies::Without)?;
    let scratch = workspace.scratch("wheels")?;
    let mut maturin = Command::new(site.join("bin/maturin"));
    maturin.args(["build", "--profile", profile, "--interpreter", "python3"]);
    maturin.arg("--out").arg(scratch.path());
    workspace.prepare(&mut maturin);
    maturin.current_dir(workspace.root.join(FOLDER));
    eprintln!("building the wheel");
    run_quiet(&mut maturin)?;
    let folder = workspace.root.join("target/wheels");
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(scratch.path())? {
        let made = entry?.path();
        if let Some(name) = made
            .file_name()
            .filter(|_| made.extension().is_some_and(|e| e == "whl"))
        {
            let kept = folder.join(name);
            std::fs::copy(&made, &kept)?;
            return Ok(kept);
        }
    }
    bail!("maturin left no wheel")
}
