//! A tool server that is a program of this machine.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::lines::Lines;
use crate::sandbox::{Group, environment, inherit_streams_only};

/// How long a program may take to end once its input has.
const MAX_ENDING: Duration = Duration::from_secs(3);

/// A running program and the messages to and from it.
///
/// What it starts is in its process group, unless it leaves it; the group ends with it, with this
/// value and with this process.
pub(super) struct Program {
    messages: AsyncRwTransport<RoleClient, Lines<ChildStdout>, ChildStdin>,
    child: Child,
    /// `None` once everything is dead.
    group: Option<Group>,
}

impl Program {
    /// Starts it with the few environment variables that commands see, and those of these
    /// names.
    pub(super) fn start(
        program: &OsString,
        args: &[OsString],
        pass: &[String],
    ) -> io::Result<Self> {
        let group = Group::new()?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(environment::passed(pass))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(group.id());
        inherit_streams_only(command.as_std_mut());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no input or output"));
        };
        Ok(Self {
            messages: AsyncRwTransport::new(Lines::new(output), input),
            child,
            group: Some(group),
        })
    }
}

impl Program {
    fn ask_to_end(&self) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It is not reaped yet, so the number is still its own.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Transport<RoleClient> for Program {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.messages.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.messages.receive()
    }

    /// Ends its input, waits for it to end by itself, asks it to, and kills what is left.
    async fn close(&mut self) -> io::Result<()> {
        let closed = self.messages.close().await;
        let ending = tokio::time::timeout(MAX_ENDING, self.child.wait());
        if ending.await.is_err() {
            self.ask_to_end();
            // One that does not end now is killed.
            let _ = tokio::time::timeout(MAX_ENDING, self.child.wait()).await;
        }
        if let Some(group) = self.group.take() {
            // It waits for the dead.
            let _ = tokio::task::spawn_blocking(move || drop(group)).await;
        }
        closed
    }
}
