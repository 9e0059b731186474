//! Starts a command, watches it, ends it.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::capture::Capture;
use super::confine::{Enforced, Places, confined, inherit_streams_only};
use super::group::Group;
use super::{FileAccess, Sandbox, Script, environment, processes, temporary};
use crate::blocking::Cancelled;
use crate::{ErrorKind, ToolError};

/// How often a running command is looked at.
const TICK: Duration = Duration::from_millis(10);

/// How often the memory of its processes is looked at, each of which takes some time.
const MEMORY_TICK: Duration = Duration::from_millis(500);

/// Most bytes that are read in one look, so that a flood cannot hide the clock.
const MAX_READ_BYTES: usize = 1 << 20;

/// Sets the limits, then becomes the shell that runs the command. Limits that the system does
/// not know are left out.
const PRELUDE: &str = "ulimit -c 0; ulimit -f \"$1\"; ulimit -d \"$2\"; ulimit -t \"$3\"; \
                       exec \"$0\" -c -- \"$4\"";

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// Its time was over.
    TimedOut,
    /// It had too many threads.
    TooManyThreads,
    /// One of its processes shared too much memory.
    TooMuchMemory,
    /// Nobody waited any more.
    Cancelled,
}

/// What a command left.
pub(crate) struct Finished {
    pub(crate) ended: Ended,
    /// Standard output and error as they came, head and tail.
    pub(crate) text: String,
    pub(crate) truncated: bool,
}

/// Runs a command to its end. When this returns nothing of it runs any more.
///
/// # Errors
/// Kind [`ErrorKind::Refused`]: read-only was asked for and cannot be held here. Kind
/// [`ErrorKind::Unavailable`]: there is no shell, or the system has no process left.
pub(crate) fn run(
    script: &Script<'_>,
    sandbox: &Sandbox,
    workspace: &Path,
    cancelled: &Cancelled,
) -> Result<Finished, ToolError> {
    let temporary = temporary::folder().map_err(unavailable)?;
    let group = Group::new().map_err(unavailable)?;
    let places = Places {
        workspace,
        temporary: temporary.path(),
        group: group.id(),
    };
    let (child, output) = start(script, sandbox, places)?;
    let mut watch = Watch {
        child,
        output,
        capture: Capture::new(script.max_output_bytes),
        max_threads: sandbox.max_threads,
        max_memory_bytes: sandbox.max_memory_bytes,
        memory_seen: Instant::now(),
        is_closed: false,
    };
    let ended = watch.until_end(&group, Instant::now() + script.timeout, cancelled);
    drop(group);
    // The last that was written before everything was dead.
    watch.take_output();
    let (text, truncated) = watch.capture.into_text();
    Ok(Finished {
        ended,
        text,
        truncated,
    })
}

/// Starts the shell inside the sandbox; its output and errors come from one pipe.
fn start(
    script: &Script<'_>,
    sandbox: &Sandbox,
    places: Places<'_>,
) -> Result<(Child, io::PipeReader), ToolError> {
    let (output, input) = io::pipe().map_err(unavailable)?;
    rustix::io::ioctl_fionbio(&output, true).map_err(|error| unavailable(error.into()))?;
    let mut command = shell(script, sandbox)?;
    command
        .current_dir(places.workspace)
        .env_clear()
        .envs(environment::variables(&sandbox.pass_env, places.temporary))
        .stdin(Stdio::null())
        .stdout(input.try_clone().map_err(unavailable)?)
        .stderr(input)
        .process_group(places.group);
    inherit_streams_only(&mut command);
    let is_held = |enforced: Enforced| sandbox.files == FileAccess::Workspace || enforced.files;
    let started = confined(sandbox, places, |enforced| {
        // The command is dropped here and with it our copies of the pipe's end.
        is_held(enforced).then(|| { command }.spawn())
    });
    match started {
        Some(Some(Ok(child))) => Ok((child, output)),
        Some(Some(Err(error))) => Err(unavailable(error)),
        Some(None) => Err(ToolError::new(
            ErrorKind::Refused,
            "commands may only read here, and this kernel cannot hold them to that",
        )),
        None => Err(unavailable(io::Error::other("no thread can be started"))),
    }
}

fn unavailable(error: io::Error) -> ToolError {
    ToolError::new(
        ErrorKind::Unavailable,
        format!("no command can be run: {error}"),
    )
}

/// The shell with the limits of the sandbox.
fn shell(script: &Script<'_>, sandbox: &Sandbox) -> Result<Command, ToolError> {
    let shells = [
        "/bin/bash",
        "/usr/bin/bash",
        "/usr/local/bin/bash",
        "/bin/sh",
    ];
    let shell = shells.into_iter().find(|shell| Path::new(shell).exists());
    let shell = shell.ok_or_else(|| {
        ToolError::new(
            ErrorKind::Unavailable,
            "no command can be run: there is no shell",
        )
    })?;
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut command = Command::new(shell);
    command.args(["-c", PRELUDE, shell]);
    // Blocks of 1024 bytes, kilobytes, seconds of processor time.
    command.arg((sandbox.max_file_bytes / 1024).to_string());
    command.arg((sandbox.max_memory_bytes / 1024).to_string());
    command.arg((script.timeout.as_secs().max(1) * n_cores + 10).to_string());
    command.arg(script.text);
    Ok(command)
}

struct Watch {
    child: Child,
    output: io::PipeReader,
    capture: Capture,
    max_threads: usize,
    max_memory_bytes: u64,
    /// When the memory was last looked at.
    memory_seen: Instant,
    /// True once nobody can write any more.
    is_closed: bool,
}

impl Watch {
    fn until_end(&mut self, group: &Group, deadline: Instant, cancelled: &Cancelled) -> Ended {
        let mut n_before = processes::n_threads_of_system();
        let stopped = loop {
            self.wait_for_output();
            if self.has_exited() {
                break None;
            }
            if cancelled.is_set() {
                break Some(Ended::Cancelled);
            }
            if Instant::now() >= deadline {
                break Some(Ended::TimedOut);
            }
            if self.shares_too_much(group) {
                break Some(Ended::TooMuchMemory);
            }
            // The whole system is one short file; the group is many.
            let may_be_over = match (n_before, processes::n_threads_of_system()) {
                (Some(before), Some(now)) => now.saturating_sub(before) > self.max_threads,
                _ => true,
            };
            if may_be_over {
                // Held still, a fork bomb leaves us the time to count it.
                group.hold();
                if has_more_threads(group.id(), self.max_threads) {
                    break Some(Ended::TooManyThreads);
                }
                group.resume();
                n_before = processes::n_threads_of_system();
            }
        };
        // What runs on in the background ends with the command.
        group.kill();
        let status = self.child.wait();
        stopped.unwrap_or_else(|| status.map_or(Ended::Exited(-1), how_it_ended))
    }

    /// True if a process has more memory that its own limit does not count.
    fn shares_too_much(&mut self, group: &Group) -> bool {
        if self.memory_seen.elapsed() < MEMORY_TICK {
            return false;
        }
        self.memory_seen = Instant::now();
        processes::of_group(group.id())
            .any(|process| process.n_shared_bytes() > self.max_memory_bytes)
    }

    /// Waits a moment, for output at most.
    fn wait_for_output(&mut self) {
        let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: TICK.as_nanos() as i64,
        };
        if self.is_closed {
            // It would be ready at once, again and again.
            std::thread::sleep(TICK);
        } else if poll(&mut ready, Some(&tick)).is_ok_and(|n| n > 0) {
            self.take_output();
        }
    }

    /// Takes what has been written, up to a limit.
    fn take_output(&mut self) {
        let mut buffer = [0; 16 * 1024];
        let mut n_read = 0;
        while n_read < MAX_READ_BYTES {
            match self.output.read(&mut buffer) {
                Ok(0) => {
                    self.is_closed = true;
                    return;
                }
                Ok(n) => {
                    self.capture.push(&buffer[..n]);
                    n_read += n;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Empty for now.
                Err(_) => return,
            }
        }
    }

    /// True once the shell has ended. It stays a zombie, so that its number stays taken.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }
}

fn how_it_ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signalled(signal.unwrap_or(-1)),
    }
}

fn has_more_threads(group: i32, max_threads: usize) -> bool {
    let mut n_threads = 0;
    processes::of_group(group).any(|process| {
        n_threads += process.n_threads;
        n_threads > max_threads
    })
}
