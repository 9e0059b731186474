//! A process group that outlives its members and never outlives us.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::processes;

/// How long killed processes may take to die: many at once take turns.
const MAX_DYING: Duration = Duration::from_secs(5);

/// A process group, led by a process that does nothing but wait for the end of its input.
///
/// As long as the leader is not reaped, the group's number belongs to nobody else. If this
/// process dies, however it dies, the input ends and the leader kills the group.
pub(crate) struct Group {
    leader: Child,
    pid: Pid,
}

impl Group {
    pub(crate) fn new() -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r line; kill -KILL 0"]);
        command.env_clear().current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut leader = command.process_group(0).spawn()?;
        let pid = i32::try_from(leader.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            leader.kill()?;
            return Err(io::Error::other("the system gave a process no number"));
        };
        Ok(Self { leader, pid })
    }

    /// The group's number.
    pub(crate) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Stops every member where it is, until [`Group::resume`].
    pub(super) fn hold(&self) {
        let _ = kill_process_group(self.pid, Signal::STOP);
    }

    /// Lets members go on.
    pub(super) fn resume(&self) {
        let _ = kill_process_group(self.pid, Signal::CONT);
    }

    /// Kills every member. Members cannot escape by forking: the kernel holds them still.
    pub(super) fn kill(&self) {
        // It fails only if there is nobody left to kill.
        let _ = kill_process_group(self.pid, Signal::KILL);
    }
}

impl Drop for Group {
    /// Kills the members and waits until they are dead.
    fn drop(&mut self) {
        self.kill();
        let _ = self.leader.wait();
        let deadline = Instant::now() + MAX_DYING;
        // Those that were reaped are gone at once; others may have yet to run to their end.
        while test_kill_process_group(self.pid).is_ok()
            && processes::of_group(self.id()).any(|process| !process.is_dead)
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
