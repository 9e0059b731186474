//! Loads each gateway in turn and prints what it costs, beside the floor.
//!
//! The sides are loaded in turn within each round, so that what else the machine does hits all
//! of them; medians over the rounds are printed. Absolute figures of a shared machine mean
//! little: the ratios to the floor of the same run are what counts.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::json;

use crate::cost::{self, Cost};
use crate::load::{self, Shape, Target, Times};
use crate::{Failure, upstream};

/// What a busy moment took is given back by then, where it is given back at all.
const SETTLE: Duration = Duration::from_secs(5);

/// What runs, on stdin.
#[derive(Deserialize)]
struct Setup {
    rounds: usize,
    /// The upstream alone.
    direct: Side,
    floor: Side,
    gateways: Vec<Side>,
}

#[derive(Deserialize, Clone)]
struct Side {
    name: String,
    address: String,
    model: String,
    pid: u32,
    /// Slow sides get a part of the requests.
    #[serde(default = "all")]
    share: f64,
}

fn all() -> f64 {
    1.0
}

const SHAPES: &[Shape] = &[
    shape("small, whole, 1 at once", 200, 16, false, 1, 400),
    shape("small, whole, 32 at once", 200, 16, false, 32, 4000),
    shape(
        "200 KB prompt, whole, 4 at once",
        200_000,
        16,
        false,
        4,
        240,
    ),
    shape("stream of 100 tokens, 1 at once", 200, 100, true, 1, 24),
    shape("stream of 100 tokens, 32 at once", 200, 100, true, 32, 192),
    shape(
        "stream of 100 tokens, 256 at once",
        200,
        100,
        true,
        256,
        768,
    ),
];

const fn shape(
    name: &'static str,
    prompt_bytes: usize,
    tokens: usize,
    streamed: bool,
    at_once: usize,
    requests: usize,
) -> Shape {
    Shape {
        name,
        prompt_bytes,
        tokens,
        streamed,
        at_once,
        requests,
    }
}

/// One round of one side.
struct Round {
    times: Times,
    cpu: Duration,
    requests: usize,
}

/// # Errors
/// The setup cannot be read, or a side failed under load.
pub(crate) async fn run(setup: &str) -> Result<(), Failure> {
    let setup: Setup = serde_json::from_str(setup)?;
    let sides: Vec<&Side> = [&setup.direct, &setup.floor]
        .into_iter()
        .chain(&setup.gateways)
        .collect();
    for &shape in SHAPES {
        println!("\n{}", shape.name);
        println!(
            "  {:<22} {:>9} {:>9} {:>9} {:>12} {:>9}",
            "",
            "p50 ms",
            "p99 ms",
            "req/s",
            cpu_unit(shape),
            "to floor"
        );
        let mut rounds: Vec<Vec<Round>> = sides.iter().map(|_| Vec::new()).collect();
        for _ in 0..setup.rounds {
            for (side, done) in sides.iter().zip(&mut rounds) {
                match one(side, shape).await {
                    Ok(round) => done.push(round),
                    Err(error) => println!("  {:<22} failed: {error}", side.name),
                }
            }
        }
        let floor = cpu_of(&rounds[1], shape);
        for (idx, (side, done)) in sides.iter().zip(&rounds).enumerate() {
            if !done.is_empty() {
                print_row(side, done, shape, (idx > 0).then_some(floor));
            }
        }
    }
    println!("\nmemory {} s after the load", SETTLE.as_secs());
    tokio::time::sleep(SETTLE).await;
    for side in &sides {
        let Cost { resident, .. } = cost::of_tree(side.pid)?;
        println!(
            "  {:<22} {:>9.1} MiB",
            side.name,
            resident as f64 / f64::from(1 << 20)
        );
    }
    println!(
        "\nan upstream that says 429 with Retry-After {}, and one that cuts its stream",
        upstream::RETRY_AFTER
    );
    for side in &sides {
        println!("  {:<22} {}", side.name, faults(side).await?);
    }
    Ok(())
}

async fn one(side: &Side, shape: Shape) -> Result<Round, Failure> {
    let requests = ((shape.requests as f64 * side.share) as usize).max(shape.at_once.min(4));
    let shape = Shape { requests, ..shape };
    let target = target(side);
    // Connections and caches are warm before anything counts.
    load::run(
        &target,
        Shape {
            requests: 2,
            at_once: 1,
            ..shape
        },
    )
    .await?;
    let before = cost::of_tree(side.pid)?;
    let times = load::run(&target, shape).await?;
    let after = cost::of_tree(side.pid)?;
    Ok(Round {
        times,
        cpu: after.cpu.saturating_sub(before.cpu),
        requests,
    })
}

fn target(side: &Side) -> Target {
    Target {
        address: side.address.clone(),
        model: side.model.clone(),
    }
}

fn cpu_unit(shape: Shape) -> &'static str {
    if shape.streamed {
        "CPU us/token"
    } else {
        "CPU us/req"
    }
}

/// Processor time per request, or per token of streams: median of the rounds, in microseconds.
fn cpu_of(rounds: &[Round], shape: Shape) -> f64 {
    median(rounds.iter().map(|round| {
        let n_units = if shape.streamed {
            round.times.tokens
        } else {
            round.requests
        };
        round.cpu.as_secs_f64() * 1e6 / n_units.max(1) as f64
    }))
}

fn print_row(side: &Side, rounds: &[Round], shape: Shape, floor: Option<f64>) {
    let millis = |share| {
        median(
            rounds
                .iter()
                .map(|r| r.times.quantile(share).as_secs_f64() * 1e3),
        )
    };
    let rate = median(
        rounds
            .iter()
            .map(|r| r.requests as f64 / r.times.wall.as_secs_f64()),
    );
    let cpu = cpu_of(rounds, shape);
    let ratio = floor.map_or_else(String::new, |floor| format!("{:.2}", cpu / floor));
    println!(
        "  {:<22} {:>9.2} {:>9.2} {:>9.1} {:>12.1} {:>9}",
        side.name,
        millis(0.5),
        millis(0.99),
        rate,
        cpu,
        ratio
    );
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What a client sees of an upstream's faults.
async fn faults(side: &Side) -> Result<String, Failure> {
    let ask = |user: &str, stream: bool| {
        let body = json!({
            "model": side.model, "user": user, "stream": stream,
            "messages": [{"role": "user", "content": "hi"}],
        });
        Bytes::from(body.to_string())
    };
    let mut sender = load::connect(&side.address).await?;
    let limited = load::send(&mut sender, &side.address, ask("limit", false)).await?;
    let wait = limited.headers().get("retry-after").cloned();
    let wait = wait
        .as_ref()
        .map_or("no Retry-After", |v| v.to_str().unwrap_or("?"));
    let status = limited.status().as_u16();
    let mut sender = load::connect(&side.address).await?;
    let mut body = load::send(&mut sender, &side.address, ask("cut", true))
        .await?
        .into_body();
    let mut text = Vec::new();
    let end = loop {
        match body.frame().await {
            None => break "clean end",
            Some(Err(_)) => break "connection cut",
            Some(Ok(frame)) => text.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d)),
        }
    };
    let text = String::from_utf8_lossy(&text);
    let said = match (text.contains("\"error\""), text.contains("[DONE]")) {
        (true, _) => "an error event",
        (false, true) => "[DONE] as if it were whole",
        (false, false) => "nothing said",
    };
    Ok(format!("{status}, {wait}; cut stream: {said}, {end}"))
}
