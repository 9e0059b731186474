//! What the kernel is told to refuse a command: Landlock for files and signals, seccomp for
//! system calls, and fewer capabilities for root.
//!
//! All three bind the calling thread and what it starts. So a thread is made, bound, starts
//! the command and ends; the rest of this process stays free, and between fork and exec only
//! open files and sockets are marked to be closed.

use std::path::Path;
use std::process::Command;

use super::Sandbox;
#[cfg(target_os = "linux")]
use super::linux;

/// Where a command works.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) workspace: &'a Path,
    pub(super) temporary: &'a Path,
    /// The process group that the command joins and cannot leave.
    pub(super) group: i32,
}

/// How far the kernel goes along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Enforced {
    /// Files are held to [`Places`].
    pub(super) files: bool,
    /// Files and signals are held as the newest known kernel does.
    pub(super) files_fully: bool,
    /// System calls are refused.
    pub(super) calls: bool,
}

/// Runs `work` on a thread that is bound by the sandbox.
///
/// `None` if no thread can be made.
pub(super) fn confined<T: Send>(
    sandbox: &Sandbox,
    places: Places<'_>,
    work: impl FnOnce(Enforced) -> T + Send,
) -> Option<T> {
    std::thread::scope(|scope| {
        let bound = std::thread::Builder::new().name("sandboxed".to_owned());
        let bound = bound.spawn_scoped(scope, || work(restrict_thread(sandbox, places)));
        bound.ok()?.join().ok()
    })
}

#[cfg(target_os = "linux")]
fn restrict_thread(sandbox: &Sandbox, places: Places<'_>) -> Enforced {
    linux::restrict_thread(sandbox, places)
}

#[cfg(not(target_os = "linux"))]
fn restrict_thread(_: &Sandbox, _: Places<'_>) -> Enforced {
    Enforced::default()
}

/// Lets a program inherit its standard streams and nothing else.
#[cfg(target_os = "linux")]
pub(crate) fn inherit_streams_only(command: &mut Command) {
    linux::inherit_streams_only(command);
}

/// The standard library opens everything so that programs do not inherit it; what others have
/// opened otherwise, they do.
#[cfg(not(target_os = "linux"))]
pub(crate) fn inherit_streams_only(_: &mut Command) {}

/// What this machine cannot hold, one sentence each.
pub(super) fn probe(sandbox: &Sandbox) -> Vec<String> {
    let root = Path::new("/");
    let places = Places {
        workspace: root,
        temporary: root,
        group: 1,
    };
    let enforced = confined(sandbox, places, |enforced| enforced).unwrap_or_default();
    let mut lacks = Vec::new();
    if !enforced.files {
        lacks.push(
            "this kernel has no Landlock: commands can read and write all that you can, and \
             read the environment of your processes"
                .to_owned(),
        );
    } else if !enforced.files_fully {
        lacks.push(
            "this kernel's Landlock is older than Linux 6.12: commands can send signals to \
             your processes"
                .to_owned(),
        );
    }
    if !enforced.calls {
        lacks.push(
            "system calls cannot be filtered here: commands can use the network and leave \
             processes behind"
                .to_owned(),
        );
    }
    lacks
}
