//! The system's processes, as `/proc` tells. Where there is none, there are none.

use std::path::Path;

/// What is asked of one process.
pub(super) struct Process {
    id: i32,
    group: i32,
    pub(super) n_threads: usize,
    /// True for one that has ended and waits to be reaped.
    pub(super) is_dead: bool,
}

impl Process {
    /// Memory that it shares with others and that is no file's, in bytes: limits of a process
    /// do not count it.
    ///
    /// Source: proc_pid_status(5), `RssShmem`.
    pub(super) fn n_shared_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id));
        let status = status.unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssShmem:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

/// The processes of a group, read one by one: a fork bomb adds them faster than they are
/// read, so whoever asks should stop as soon as possible.
pub(super) fn of_group(group: i32) -> impl Iterator<Item = Process> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = all.filter_map(|entry| {
        let name = entry.file_name();
        let is_number = name
            .as_encoded_bytes()
            .first()
            .is_some_and(u8::is_ascii_digit);
        is_number.then(|| read_stat(&entry.path().join("stat")))?
    });
    processes.filter(move |process| process.group == group)
}

/// Threads of the whole system, from `/proc/loadavg` (`0.2 0.1 0.1 2/345 6789`).
pub(super) fn n_threads_of_system() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let (_, total) = text.split(' ').nth(3)?.split_once('/')?;
    total.parse().ok()
}

/// Source: proc_pid_stat(5): after the name in parentheses come state, parent and group, and
/// 14 fields later the number of threads.
fn read_stat(path: &Path) -> Option<Process> {
    let stat = std::fs::read_to_string(path).ok()?;
    // The name may hold anything, parentheses too.
    let (start, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    Some(Process {
        id: start.split(' ').next()?.parse().ok()?,
        group: fields.nth(1)?.parse().ok()?,
        n_threads: fields.nth(14)?.parse().ok()?,
        is_dead: matches!(state, "Z" | "X" | "x"),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let own = read_stat(Path::new("/proc/self/stat")).unwrap();
        assert!(own.n_threads >= 1 && !own.is_dead);
        // Threads come and go while other tests run.
        assert!(of_group(own.group).any(|process| process.n_threads >= 1 && !process.is_dead));
        assert!(n_threads_of_system().is_some_and(|n| n >= 1));
    }
}
