//! Mixed traffic through every face for a while: no leak, no stuck request, and every request
//! that was sent is counted with what became of it.
//!
//! A tenth of the clients leave before their answer's end, a tenth of the upstream's answers are
//! broken. Runs for 20 seconds, or as long as `TWOPASS_SOAK_SECONDS` says (`cargo xtask soak`).

mod clients;
mod upstream;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::run::Place;
use crate::serving::Serving;
use clients::{CLIENTS, Client, Ended, WATCH};

const SECONDS: &str = "TWOPASS_SOAK_SECONDS";
const KEYS_FILE: &str = "keys.yaml";
/// Time for the last requests to end once nobody sends any more.
const SETTLED: Duration = Duration::from_secs(30);
/// Resident memory at the end may be so many times that after warming up.
const GROWTH: f64 = 1.25;

/// What became of requests, by key.
type Tally = BTreeMap<(&'static str, Ended), u64>;

#[test]
#[cfg(target_os = "linux")]
fn every_request_is_accounted_for_and_nothing_grows() {
    let seconds = std::env::var(SECONDS).map_or(20, |seconds| seconds.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(soak(Duration::from_secs(seconds)));
}

async fn soak(time: Duration) {
    let upstream = upstream::start().await;
    let place = Place::new();
    place.write("twopass.yaml", config(&upstream));
    let keys = make_keys(&place);
    let serving = Serving::start_with(&place, &["--keys-file", KEYS_FILE]);
    let pid = serving.child.id();

    let (tally, began) = (Arc::new(Mutex::new(Tally::new())), Instant::now());
    let clients: Vec<_> = (1..)
        .zip(CLIENTS)
        .map(|(seed, face)| {
            let client = Client::new((&serving.address, &keys), face, seed, Arc::clone(&tally));
            tokio::spawn(client.run(began + time))
        })
        .collect();
    let mut resident = Vec::new();
    while began.elapsed() < time {
        resident.push(resident_kib(pid));
        sleep(Duration::from_millis(250)).await;
    }
    for client in clients {
        client.await.unwrap();
    }
    let (numbers, settled) = settle(&serving.address, &keys[WATCH]).await;
    let tally = tally.lock().unwrap().clone();
    let (table, faults) = compare(&tally, &numbers);
    let (growth, memory) = grown(&resident);
    let settled_ms = settled.map(|time| time.as_millis());
    let left = settled_ms.map_or("some".to_owned(), |ms| format!("none, after {ms} ms"));
    report(&format!(
        "{table}{memory}\nrequests left at the end: {left}"
    ));
    assert!(faults.is_empty(), "{faults:?}\n{numbers}");
    assert!(settled.is_some(), "requests are stuck\n{numbers}");
    assert!(growth <= GROWTH, "memory grew to {growth:.2} times");
}

#[expect(clippy::print_stdout, reason = "the table is what a soak is for")]
fn report(text: &str) {
    println!("{text}");
}

fn config(upstream: &str) -> String {
    let far = json!({
        "name": "far", "provider_backend": "openai", "model_name": "m",
        "api_config": {
            "base_url": upstream, "max_retries": 1,
            "timeout_s": {"connect": 5, "first_token": 2, "idle": 2, "total": 20},
        },
    });
    let near = std::env::var("TWOPASS_TEST_MODEL").expect("`cargo xtask test` sets it");
    let near = json!({"name": "near", "provider_backend": "embedded", "model_name": near});
    json!({
        "default_provider": "far",
        "providers": [far, near],
        "embeddings": {"provider": "far", "model": "vectors"},
        "server": {"store": "responses.db"},
    })
    .to_string()
}

/// A key for each face, one for those that leave and one for the numbers, all with limits that
/// are never reached.
fn make_keys(place: &Place) -> HashMap<String, String> {
    let mut names: Vec<_> = CLIENTS.iter().map(|face| face.name).collect();
    names.extend([clients::LEFT, WATCH]);
    names.sort_unstable();
    names.dedup();
    let make = |name: &str| {
        let made = place.run(&[
            "keys",
            "new",
            "--keys-file",
            KEYS_FILE,
            "--name",
            name,
            "--scopes",
            "chat,embeddings,metrics",
            "--requests-per-minute",
            "1000000",
            "--tokens-per-day",
            "1000000000000",
        ]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        (name.to_owned(), made.stdout.trim().to_owned())
    };
    names.into_iter().map(make).collect()
}

/// The numbers once only the request for them runs, and how long that took.
async fn settle(address: &str, key: &str) -> (String, Option<Duration>) {
    let began = Instant::now();
    loop {
        let numbers = clients::numbers(address, key).await;
        if numbers.contains("\ntwopass_requests_active 1\n") {
            return (numbers, Some(began.elapsed()));
        }
        if began.elapsed() > SETTLED {
            return (numbers, None);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// A table of what was sent and what was counted, and where they differ.
fn compare(tally: &Tally, numbers: &str) -> (String, Vec<String>) {
    let mut counted = BTreeMap::<(String, String), u64>::new();
    for line in numbers.lines() {
        let Some(rest) = line.strip_prefix("twopass_key_requests_total{key=\"") else {
            continue;
        };
        let mut parts = rest.split('"');
        let (key, outcome) = (parts.next().unwrap(), parts.nth(1).unwrap());
        let number = line.rsplit(' ').next().unwrap().parse().unwrap();
        counted.insert((key.to_owned(), outcome.to_owned()), number);
    }
    let sum = |key: &str, of: &dyn Fn(&str) -> bool| -> u64 {
        let mine = counted
            .iter()
            .filter(|((name, outcome), _)| name == key && of(outcome));
        mine.map(|(_, number)| number).sum()
    };
    let mut faults = Vec::new();
    let mut table = format!(
        "{:<14}{:>9}{:>9}{:>9}{:>9}{:>11}{:>9}\n",
        "key", "sent", "ok", "failed", "left", "counted", "ok"
    );
    let mut keys: Vec<_> = tally.keys().map(|(key, _)| *key).collect();
    keys.dedup();
    for key in keys {
        let sent = |of: &dyn Fn(&Ended) -> bool| -> u64 {
            let mine = tally
                .iter()
                .filter(|((name, ended), _)| *name == key && of(ended));
            mine.map(|(_, number)| number).sum()
        };
        let (all, ok) = (sent(&|_| true), sent(&|ended| *ended == Ended::Ok));
        let unanswered = sent(&|ended| *ended == Ended::LeftUnanswered);
        let left = unanswered + sent(&|ended| *ended == Ended::Left);
        let (counted_all, counted_ok) = (sum(key, &|_| true), sum(key, &|outcome| outcome == "ok"));
        writeln!(
            table,
            "{key:<14}{all:>9}{ok:>9}{:>9}{left:>9}{counted_all:>11}{counted_ok:>9}",
            all - ok - left
        )
        .unwrap();
        let mut same = |what: &str, sent: u64, counted: u64| {
            if sent != counted {
                faults.push(format!("{key}: {what}: {sent} sent, {counted} counted"));
            }
        };
        let unseen = all.saturating_sub(counted_all).min(unanswered);
        same("requests", all - unseen, counted_all);
        if left > 0 {
            continue;
        }
        same("ok", ok, counted_ok);
        // A kind that had no name in some of the answers was counted more often.
        let is_named = sent(&|ended| *ended == Ended::Failed(None)) == 0;
        for ((_, ended), number) in tally.iter().filter(|((name, _), _)| *name == key) {
            if let Ended::Failed(Some(kind)) = ended {
                let counted = sum(key, &|outcome| outcome == kind);
                let named = if is_named {
                    counted
                } else {
                    counted.min(*number)
                };
                same(kind, *number, named);
            }
        }
    }
    let broken = tally.keys().filter(|(_, ended)| *ended == Ended::Broken);
    faults.extend(broken.map(|(key, _)| format!("{key}: an answer without an end")));
    (table, faults)
}

/// How many times the memory after warming up (a fifth of the time) that at the end is.
fn grown(resident: &[u64]) -> (f64, String) {
    let tenth = (resident.len() / 10).max(1);
    let median = |samples: &[u64]| {
        let mut samples = samples.to_vec();
        samples.sort_unstable();
        samples[samples.len() / 2]
    };
    let warm = median(&resident[2 * tenth..3 * tenth]);
    let end = median(&resident[resident.len() - tenth..]);
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 KiB")]
    let growth = end as f64 / warm as f64;
    let mib = |kib: u64| kib / 1024;
    let text = format!(
        "resident memory: {} MiB after warming up, {} MiB at the end, {growth:.2} times (at most {GROWTH})",
        mib(warm),
        mib(end)
    );
    (growth, text)
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
