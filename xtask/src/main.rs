//! `cargo xtask COMMAND`: set-up, demo, tests, checks and measurements.
//!
//! Everything that a fresh machine needs is set up by the command that needs it. What cannot be
//! set up is said in one line. Data goes to stdout, messages to stderr; exit codes are 0 for
//! done, 1 for a check that failed, 2 for an error.
#![expect(clippy::print_stdout, reason = "a command line tool prints its data")]

mod files;
mod workspace;

mod client;
mod fixtures;
mod mcp;
mod package;
mod postgres;
mod pytest;
mod python;
mod server;
mod setup;

mod bench;
mod bench_calls;
mod bench_gateway;
mod ci;
mod clients;
mod demo;
mod install;
mod peers;
mod rows;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  demo              set up, build, run a budgeted turn and a tool call on a real model
  test [ARGUMENTS]  set up, then run every test (or what the arguments of `cargo test` select)
  ci                format, clippy, docs, tidy, tests
  install [--portable]
                    the program, optimized, with all instructions that this processor has
  bench-engine      speed beside llama.cpp's own server, on the same file, and the memory's limit
  bench-calls       function calling beside it, on the tasks of a public leaderboard (BFCL)
  bench-gateway     what the server costs beside a bare proxy and other gateways
  soak [--minutes 10]
                    mixed traffic with faults: no leak, every request accounted for
  test-peers        turns against llama.cpp's server and vLLM, which it installs
  bench-python      what a stream costs through the Python package, beside the Rust client
  wheel [--release] the Python package as a wheel, tried in a fresh virtual environment
  tidy              the rules of the source tree that no compiler checks
  rows [--missing]  the rows of the specification that tests name
  fixtures          download or make the test models, print their paths
";

/// What a command found out: the exit code's meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let workspace = Workspace::find()?;
    let Some((command, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return Ok(Outcome::Failed);
    };
    match command.as_str() {
        "bench-engine" => bench::run(&workspace, rest),
        "bench-calls" => bench_calls::run(&workspace, rest),
        "bench-gateway" => bench_gateway::run(&workspace, rest),
        "bench-python" => package::bench(&workspace, rest),
        "demo" => demo::run(&workspace, rest),
        "install" => install::run(&workspace, rest),
        "soak" => soak::run(&workspace, rest),
        "test" => test::run(&workspace, rest),
        "ci" => ci::run(&workspace, rest),
        "test-peers" => peers::run(&workspace, rest),
        "wheel" => package::wheel(&workspace, rest),
        "tidy" => tidy::run(&workspace, rest),
        "rows" => rows::run(&workspace, rest),
        "fixtures" => fixtures::run(&workspace, rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(Outcome::Done)
        }
        other => anyhow::bail!("unknown command `{other}`\n\n{USAGE}"),
    }
}

/// The arguments of a command line.
#[cfg(test)]
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
