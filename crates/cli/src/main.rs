//! `twopass`: one turn, the server, local models and configuration from the command line.
//!
//! stdout is data, stderr is messages. Exit codes: 0 done, 1 negative result, 2 error; a
//! closed pipe is success.

mod agents;
mod args;
mod commands;
mod failure;
mod heap;
mod input;
mod models;
mod output;
mod setup;

use std::process::ExitCode;

use clap::Parser;
use twopass_provider::ErrorKind;

use crate::args::{Args, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return failure::usage(&error),
    };
    let as_json = args.shared.json;
    match run(args) {
        Ok(code) => code,
        Err(failure) => failure.report(as_json),
    }
}

/// Runs a command on a runtime of its own.
fn run(args: Args) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_park(heap::before_sleep)
        .build();
    let runtime = runtime.map_err(|error| {
        Failure::of(ErrorKind::Io, format!("the runtime cannot start: {error}"))
    })?;
    let shared = args.shared;
    let done = runtime.block_on(async {
        match args.command {
            Command::Invoke(args) => commands::invoke::run(&shared, args).await,
            Command::Serve(args) => commands::serve::run(&shared, args).await,
            Command::Parse(args) => commands::parse::run(&shared, &args),
            Command::Render(args) => commands::render::run(&shared, &args),
            Command::Chat(args) => commands::chat::run(&shared, args).await,
            Command::Agent(args) => commands::agent::run(&shared, args).await,
            Command::Tools(args) => commands::tools::run(&shared, args).await,
            Command::Bench(args) => commands::bench::run(&shared, args).await,
            Command::Sweep(args) => commands::sweep::run(&shared, args).await,
            Command::Embed(args) => commands::embed::run(&shared, args).await,
            Command::Keys(args) => commands::keys::run(&shared, args),
            Command::Models(args) => commands::models::run(&shared, args).await,
            Command::Config(args) => commands::config::run(&shared, args),
        }
    });
    // A read of stdin that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    done
}
