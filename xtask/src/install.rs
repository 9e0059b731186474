//! `cargo xtask install`: the program, optimized, with the instructions of this processor.
//!
//! What cargo builds by itself runs on every x86 processor with AVX2. llama.cpp's build has a
//! variable per further set of instructions; cargo does not see when they change, so a build
//! with other ones lies in a folder of its own.

use std::path::PathBuf;
use std::process::Command;

use crate::workspace::{Workspace, run as run_command};
use crate::{Outcome, setup};

/// The flag for a build that runs on every processor that the engine supports.
pub(crate) const PORTABLE: &str = "--portable";

const USAGE: &str = "usage: cargo xtask install [--portable] [ARGUMENTS OF cargo install]";

/// A set of instructions that not every processor has.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Instructions {
    /// Part of the folder's name.
    name: &'static str,
    /// Source: the options of ggml's `CMakeLists.txt`.
    variable: &'static str,
}

/// `cargo xtask install`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    if matches!(arguments, [only] if only == "--help" || only == "-h") {
        eprintln!("{USAGE}");
        return Ok(Outcome::Done);
    }
    setup::require_build()?;
    let mut command = workspace.cargo(&["install", "--locked", "--path", "crates/cli"]);
    command.args(arguments.iter().filter(|word| *word != PORTABLE));
    // Who names a target or a folder knows what is to be built there.
    let decides = |word: &String| word == PORTABLE || word.starts_with("--target");
    if !arguments.iter().any(decides) {
        use_all_instructions(&mut command, workspace);
    }
    run_command(&mut command)?;
    Ok(Outcome::Done)
}

/// Has a command of cargo build llama.cpp with all that this processor has and the environment
/// does not decide.
pub(crate) fn use_all_instructions(command: &mut Command, workspace: &Workspace) {
    let mut found = found();
    found.retain(|set| std::env::var_os(set.variable).is_none());
    if found.is_empty() {
        return;
    }
    let names: Vec<&str> = found.iter().map(|set| set.name).collect();
    eprintln!("building for this processor: {}", names.join(", "));
    command.envs(found.iter().map(|set| (set.variable, "ON")));
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.root.join("target"), PathBuf::from);
    command.env("CARGO_TARGET_DIR", target.join(names.join("-")));
}

/// AMX is not among them: some virtual machines show it and cannot run it.
#[cfg(target_arch = "x86_64")]
fn found() -> Vec<Instructions> {
    use std::is_x86_feature_detected as has;

    // ggml's AVX-512 means these five.
    let avx512 = has!("avx512f")
        && has!("avx512cd")
        && has!("avx512vl")
        && has!("avx512dq")
        && has!("avx512bw");
    let sets = [
        ("avxvnni", "GGML_AVX_VNNI", has!("avxvnni")),
        ("avx512", "GGML_AVX512", avx512),
        ("vbmi", "GGML_AVX512_VBMI", avx512 && has!("avx512vbmi")),
        ("vnni", "GGML_AVX512_VNNI", avx512 && has!("avx512vnni")),
        ("bf16", "GGML_AVX512_BF16", avx512 && has!("avx512bf16")),
    ];
    let found = sets.into_iter().filter(|(_, _, has)| *has);
    found
        .map(|(name, variable, _)| Instructions { name, variable })
        .collect()
}

/// Nothing is known of other processors.
#[cfg(not(target_arch = "x86_64"))]
fn found() -> Vec<Instructions> {
    Vec::new()
}
