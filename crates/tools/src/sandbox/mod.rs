//! Runs a shell command so that it can do little harm and leaves nothing behind.
//!
//! What holds, strongest first:
//! - Everything that the command starts is in one process group, which it cannot leave and
//!   which is killed when the command ends, its time is over, the call is dropped or this
//!   process dies.
//! - It sees an environment of a few harmless names, and cannot read that of other processes.
//! - It writes below the workspace and its own temporary folder only (or, read-only, below
//!   the latter only), and reads what programs need; the rest of the home folder is closed.
//! - Without network it opens no socket. It inherits no open file or socket of this process, and
//!   shares no memory, queues or semaphores (System V, message queues) with others.
//! - It changes limits, urgency and processors of its own processes only.
//! - Output, memory of a process, size of a file, number of threads and time have limits.
//!
//! The middle four need Landlock and seccomp, which Linux has; [`Sandbox::degradations`]
//! says what this machine lacks. What no kernel holds yet: a command may change the rights of
//! files outside that belong to the user (not when read-only), fill the disk with many files,
//! and memory with files in memory that it has not mapped.

mod capture;
mod confine;
mod denylist;
pub(crate) mod environment;
mod group;
#[cfg(target_os = "linux")]
mod linux;
mod processes;
mod run;
mod temporary;

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "mcp")]
pub(crate) use confine::inherit_streams_only;
pub(crate) use denylist::denied;
#[cfg(feature = "mcp")]
pub(crate) use group::Group;
pub(crate) use run::{Ended, Finished, run};

/// What files a command may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FileAccess {
    /// The workspace and its own temporary folder.
    #[default]
    Workspace,
    /// Its own temporary folder only. Commands are refused where the kernel cannot hold that.
    ReadOnly,
}

/// Whether a command may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NetworkAccess {
    /// No sockets at all, those of this machine included.
    #[default]
    Off,
    /// As this process. Local services that trust every process of this user, such as a
    /// container engine's socket, are then within reach.
    On,
}

/// What a command may do and use.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// What it may write.
    pub files: FileAccess,
    /// Whether it may use the network. Off.
    pub network: NetworkAccess,
    /// Folders that it may read besides the workspace, the system's and those of well-known
    /// toolchains.
    pub readable: Vec<PathBuf>,
    /// Folders that it may write besides the workspace, such as a package cache.
    pub writable: Vec<PathBuf>,
    /// Names of environment variables that it sees besides `PATH`, `HOME`, `LANG` and the
    /// like. Never name one that holds a key.
    pub pass_env: Vec<String>,
    /// Most threads of all its processes together; it is killed when it has more. 1000.
    pub max_threads: usize,
    /// Most bytes of one file that it writes. 1 GiB.
    pub max_file_bytes: u64,
    /// Most memory of one process, in bytes: of its own, and again of what it shares with
    /// others, which is looked at twice a second. 4 GiB.
    pub max_memory_bytes: u64,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            files: FileAccess::default(),
            network: NetworkAccess::default(),
            readable: Vec::new(),
            writable: Vec::new(),
            pass_env: Vec::new(),
            max_threads: 1000,
            max_file_bytes: 1 << 30,
            max_memory_bytes: 4 << 30,
        }
    }
}

impl Sandbox {
    /// What this machine cannot hold of these limits, one sentence each; empty where all hold.
    #[must_use]
    pub fn degradations(&self) -> Vec<String> {
        confine::probe(self)
    }
}

/// One command.
pub(crate) struct Script<'a> {
    pub(crate) text: &'a str,
    pub(crate) timeout: Duration,
    /// Most bytes of output that are kept.
    pub(crate) max_output_bytes: usize,
}
