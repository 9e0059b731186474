//! Fuzz targets: every dialect of tool calls, the JSON readers and the stream decoders.
//!
//! Texts are made of the format's own pieces, whole and cut, and of what real calls look like
//! when they are written; then they are damaged. A guided fuzzer would need a nightly
//! compiler; random pieces of the right grammar reach the depths that coverage would lead to.
//! A finding is printed with its seed and its input, to become a case.

mod decoders;
mod json;
mod random;
mod turns;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use random::Random;

/// One thing to feed.
trait Target {
    /// Its name on the command line.
    fn name(&self) -> String;

    /// A random input.
    fn input(&self, random: &mut Random) -> Vec<u8>;

    /// Checks every property on this input; `Err` says which one is broken.
    fn check(&self, input: &[u8], random: &mut Random) -> Result<(), String>;
}

const USAGE: &str =
    "usage: twopass-fuzz TARGET|all [--seconds N] [--seed N]\n       twopass-fuzz list";

#[expect(clippy::print_stdout, reason = "a program for people")]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let Some(wanted) = args.first().filter(|arg| !arg.starts_with('-')) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let all = targets();
    if wanted == "list" {
        for target in &all {
            println!("{}", target.name());
        }
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<_> = all
        .iter()
        .filter(|target| wanted == "all" || target.name() == *wanted)
        .collect();
    if chosen.is_empty() {
        eprintln!("unknown target `{wanted}`, `twopass-fuzz list` names them");
        return ExitCode::from(2);
    }
    // Of all targets each gets its part of the time.
    let n_chosen = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
    let budget = Duration::from_secs(number("--seconds").unwrap_or(10)) / n_chosen;
    let seed = number("--seed").unwrap_or(1);
    std::panic::set_hook(Box::new(|_| {}));
    let mut n_findings = 0;
    for target in chosen {
        let (n_inputs, finding) = run(target.as_ref(), seed, budget);
        let verdict = if finding.is_some() { "FAILED" } else { "ok" };
        println!("{:<28} {n_inputs:>9} inputs  {verdict}", target.name());
        if let Some(finding) = finding {
            n_findings += 1;
            println!("{finding}");
        }
    }
    if n_findings == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn targets() -> Vec<Box<dyn Target>> {
    let mut all = turns::targets();
    all.push(Box::new(json::Json));
    all.push(Box::new(decoders::Sse));
    all.push(Box::new(decoders::Ndjson));
    all
}

/// Feeds inputs until the time is over or a property breaks.
fn run(target: &dyn Target, seed: u64, budget: Duration) -> (u64, Option<String>) {
    let started = Instant::now();
    let mut n_inputs = 0;
    loop {
        let mut random = Random::new(seed.wrapping_add(n_inputs << 20));
        let input = target.input(&mut random);
        n_inputs += 1;
        if let Some(why) = failure(target, &input, &mut random) {
            let (small, small_why) = shrink(target, input);
            let why = small_why.unwrap_or(why);
            let text = String::from_utf8_lossy(&small);
            return (n_inputs, Some(format!("  {why}\n  input {text:?}")));
        }
        if started.elapsed() >= budget {
            return (n_inputs, None);
        }
    }
}

/// The broken property of this input; a panic is one.
fn failure(target: &dyn Target, input: &[u8], random: &mut Random) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| target.check(input, random))) {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// Takes pieces away as long as something stays broken, and says what that is in the end.
fn shrink(target: &dyn Target, mut input: Vec<u8>) -> (Vec<u8>, Option<String>) {
    const SETTINGS: u64 = 32;
    let with = |seed, input: &[u8]| failure(target, input, &mut Random::new(seed));
    let Some(seed) = (0..SETTINGS).find(|&seed| with(seed, &input).is_some()) else {
        return (input, None);
    };
    let broken = |input: &[u8]| with(seed, input);
    let mut why = broken(&input);
    let mut len = input.len() / 2;
    while len > 0 {
        let mut at = 0;
        while at + len <= input.len() {
            let mut less = input.clone();
            less.drain(at..at + len);
            // Half a character is another kind of input.
            let is_text =
                std::str::from_utf8(&less).is_ok() || std::str::from_utf8(&input).is_err();
            match is_text.then(|| broken(&less)).flatten() {
                Some(still) => {
                    why = Some(still);
                    input = less;
                }
                None => at += len,
            }
        }
        len /= 2;
    }
    (input, why)
}
