//! What a gateway costs, measured beside a floor and beside others.
//!
//! `upstream PORT` answers like a model with fixed times. `floor PORT UPSTREAM` is the least a
//! gateway can be: a proxy that parses and prints each JSON body and each event of a stream.
//! `compare` reads from stdin which gateways run, loads each in turn and prints the table.
//! Every one is a process of its own, so that the system tells what each has cost.

mod compare;
mod cost;
mod floor;
mod http;
mod load;
mod upstream;

use std::process::ExitCode;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str =
    "usage: twopass-gateway-bench upstream PORT | floor PORT HOST:PORT | compare < SIDES.json";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(run(&arguments)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["upstream", port] => http::serve(port.parse()?, upstream::answer).await,
        ["floor", port, to] => {
            let floor = floor::Floor::new(to);
            http::serve(port.parse()?, move |request| floor.clone().answer(request)).await
        }
        ["compare"] => compare::run(&std::io::read_to_string(std::io::stdin())?).await,
        _ => Err(USAGE.into()),
    }
}
