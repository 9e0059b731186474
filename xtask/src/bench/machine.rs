//! What the machine gives: memory bandwidth, and the processor time of a process.

use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Larger than any cache.
const BUFFER_WORDS: usize = 32 << 20;
const PASSES: usize = 5;
/// Linux counts processor time for users in hundredths of a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Bytes per second that so many threads read from memory, each of its own part: the best of
/// several passes, since other work only takes away.
pub(super) fn read_bandwidth(threads: u32) -> f64 {
    let buffer: Vec<u64> = (0..BUFFER_WORDS as u64).collect();
    let part = BUFFER_WORDS.div_ceil(threads.max(1) as usize);
    let mut best = Duration::MAX;
    for _ in 0..PASSES {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for part in buffer.chunks(part) {
                scope.spawn(|| std::hint::black_box(sum(part)));
            }
        });
        best = best.min(started.elapsed());
    }
    (BUFFER_WORDS * size_of::<u64>()) as f64 / best.as_secs_f64()
}

/// Eight sums side by side: one alone would wait for each addition.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 8];
    let (blocks, rest) = words.as_chunks::<8>();
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block) {
            *sum = sum.wrapping_add(*word);
        }
    }
    let sums = sums.iter().chain(rest);
    sums.fold(0, |all, word| all.wrapping_add(*word))
}

/// Processor seconds that a process and those that it started have used, with all their threads.
pub(super) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let entries = std::fs::read_dir("/proc").context("cannot read /proc")?;
    let stats: Vec<Stat> = entries
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter_map(|text| stat(&text))
        .collect();
    let own = stats.iter().find(|stat| stat.pid == pid);
    let mut open = vec![own.with_context(|| format!("process {pid} has ended"))?];
    let mut ticks = 0;
    while let Some(process) = open.pop() {
        ticks += process.ticks;
        open.extend(stats.iter().filter(|child| child.parent == process.pid));
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

struct Stat {
    pid: u32,
    parent: u32,
    ticks: u64,
}

/// A line of proc(5): process, parent, and processor time of user and system, fields 1, 4, 14
/// and 15. The second field is a name in brackets that may hold anything.
fn stat(text: &str) -> Option<Stat> {
    let (start, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        pid: start.split(' ').next()?.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        ticks: ticks(11)? + ticks(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_after_any_name() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 4 0 99";
        let read = stat(text).unwrap();
        assert_eq!((read.pid, read.parent, read.ticks), (7, 1, 281));
        assert!(stat("7 (a").is_none());
        assert!(cpu_seconds(std::process::id()).is_ok());
    }

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (1..=21).collect();
        assert_eq!(sum(&words), 231);
    }
}
