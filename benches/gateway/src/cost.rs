//! What a process and its children have used, as Linux tells it.

use std::time::Duration;

use crate::Failure;

/// Used by a process and everything that it started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
}

/// Linux counts processor time in these.
const TICKS_PER_SECOND: u32 = 100;
const KIB: u64 = 1024;

/// # Errors
/// There is no such process, or this system has no `/proc`.
pub(crate) fn of_tree(root: u32) -> Result<Cost, Failure> {
    let mut total = of_one(root)
        .ok_or_else(|| format!("process {root} has ended"))?
        .1;
    let mut family = vec![root];
    let mut others: Vec<(u32, u32, Cost)> = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| of_one(pid).map(|(parent, cost)| (pid, parent, cost)))
        .collect();
    loop {
        let (children, rest): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|(pid, parent, _)| family.contains(parent) && !family.contains(pid));
        if children.is_empty() {
            return Ok(total);
        }
        for (pid, _, cost) in children {
            family.push(pid);
            total.cpu += cost.cpu;
            total.resident += cost.resident;
        }
        others = rest;
    }
}

/// The parent of a process and what it has used itself; `None` if it is gone.
fn of_one(pid: u32) -> Option<(u32, Cost)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; the fields after it are numbers.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks: u32 = fields.get(11)?.parse::<u32>().ok()? + fields.get(12)?.parse::<u32>().ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        })
        .unwrap_or(0);
    let ticked = Duration::from_secs(1) * ticks / TICKS_PER_SECOND;
    let cost = Cost {
        cpu: ticked.max(of_threads(pid)),
        resident: resident * KIB,
    };
    Some((parent, cost))
}

/// The time of the threads that live, in nanoseconds: finer than ticks.
fn of_threads(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let nanos = threads.into_iter().flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
