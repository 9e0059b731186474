//! The sandbox on Linux.

#![expect(
    unsafe_code,
    reason = "the standard library offers no other way to close what a program would inherit"
)]

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::confine::{Enforced, Places};
use super::{FileAccess, NetworkAccess, Sandbox, environment};

/// The newest rights that are asked for (Linux 6.12); older kernels give what they have.
const LANDLOCK: ABI = ABI::V6;

/// New name spaces that a process may be made with. Inside one, numbers of processes and
/// groups are others than the filter knows.
const NAME_SPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWCGROUP,
];

/// How much less urgent a command is than this process.
const NICE: i32 = 5;

/// x86-64 kernels may take a second number for each call.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;

/// Binds the calling thread and what it starts, for good.
pub(super) fn restrict_thread(sandbox: &Sandbox, places: Places<'_>) -> Enforced {
    let files = restrict_files(sandbox, places).unwrap_or(RulesetStatus::NotEnforced);
    let calls = restrict_calls(sandbox, places.group).is_ok();
    drop_capabilities();
    // Less urgent than the thread that watches the command, and than a model on this machine.
    let _ = rustix::process::nice(NICE);
    Enforced {
        files: files != RulesetStatus::NotEnforced,
        files_fully: files == RulesetStatus::FullyEnforced,
        calls,
    }
}

/// Landlock also closes the memory and the environment of all processes outside to the
/// command, as a debugger's rights over them are refused.
fn restrict_files(sandbox: &Sandbox, places: Places<'_>) -> Result<RulesetStatus, RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::from_read(LANDLOCK);
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let write = AccessFs::from_all(LANDLOCK) & !devices;
    let mut writable = vec![places.temporary];
    let mut readable = Vec::new();
    match sandbox.files {
        FileAccess::Workspace => {
            writable.push(places.workspace);
            writable.extend(sandbox.writable.iter().map(|path| path.as_path()));
        }
        FileAccess::ReadOnly => readable.push(places.workspace),
    }
    readable.extend(sandbox.readable.iter().map(|path| path.as_path()));
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules(environment::readable(), read))?
        .add_rules(path_beneath_rules(
            [environment::SETTINGS],
            AccessFs::ReadDir,
        ))?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(writable, write))?
        .add_rules(path_beneath_rules(
            environment::DEVICES,
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate,
        ))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// Refuses calls with "operation not permitted".
fn restrict_calls(sandbox: &Sandbox, group: i32) -> Result<(), seccompiler::Error> {
    let mut refused = Refused::default();
    for call in always_refused() {
        refused.always(*call);
    }
    if sandbox.network == NetworkAccess::Off {
        refused.always(libc::SYS_socket);
    }
    if sandbox.files == FileAccess::ReadOnly {
        for call in changes_of_rights() {
            refused.always(*call);
        }
        // Times of an open file may be set: it may be written, then.
        refused.if_argument(libc::SYS_utimensat, 1, SeccompCmpOp::Ne, 0)?;
    }
    // A process may join the group that it is in already, and only that one.
    refused.if_argument(libc::SYS_setpgid, 1, SeccompCmpOp::Ne, group as u64)?;
    for flag in NAME_SPACES {
        let bit = flag as u64;
        refused.if_argument(libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(bit), bit)?;
    }
    for (call, idx, own) in calls_by_process() {
        refused.if_argument(*call, *idx, SeccompCmpOp::Ne, *own)?;
    }
    // Typing into the terminal.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        refused.if_argument(libc::SYS_ioctl, 1, SeccompCmpOp::Eq, request)?;
    }
    refused.apply(libc::EPERM)?;
    // Its flags lie in memory, which a filter cannot read. Libraries that hear that the call
    // does not exist use `clone`.
    let mut unknown = Refused::default();
    unknown.always(libc::SYS_clone3);
    unknown.apply(libc::ENOSYS)
}

/// Calls that a filter refuses.
#[derive(Default)]
struct Refused(BTreeMap<i64, Vec<SeccompRule>>);

impl Refused {
    /// Whatever the arguments.
    fn always(&mut self, call: i64) {
        // No rule means just that.
        self.0.insert(call, Vec::new());
        #[cfg(target_arch = "x86_64")]
        self.0.insert(call | X32_BIT, Vec::new());
    }

    /// If the lower half of this argument is so, or another condition of this call holds.
    fn if_argument(
        &mut self,
        call: i64,
        idx: u8,
        op: SeccompCmpOp,
        value: u64,
    ) -> Result<(), seccompiler::Error> {
        let condition = SeccompCondition::new(idx, SeccompCmpArgLen::Dword, op, value)?;
        let rule = SeccompRule::new(vec![condition])?;
        #[cfg(target_arch = "x86_64")]
        self.0.entry(call | X32_BIT).or_default().push(rule.clone());
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }

    /// Binds the calling thread: these calls fail with this error.
    fn apply(self, errno: i32) -> Result<(), seccompiler::Error> {
        let filter = SeccompFilter::new(
            self.0,
            SeccompAction::Allow,
            SeccompAction::Errno(errno as u32),
            std::env::consts::ARCH.try_into()?,
        )?;
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program)
    }
}

/// Ways out of the process group, around the filter itself, to the keys of the kernel's ring,
/// to new name spaces, and to memory and messages that outlive a process and that programs
/// outside the sandbox share.
fn always_refused() -> &'static [i64] {
    &[
        libc::SYS_setsid,
        libc::SYS_io_uring_setup,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
    ]
}

/// Calls that change limits, urgency and processors, with the arguments that they must have:
/// as the process's number 0, which is the caller, and where there are several kinds of number
/// the kind of a process.
fn calls_by_process() -> &'static [(i64, u8, u64)] {
    /// `IOPRIO_WHO_PROCESS` of the kernel's `linux/ioprio.h`.
    const PROCESS: u64 = 1;
    &[
        (libc::SYS_prlimit64, 0, 0),
        (libc::SYS_setpriority, 0, 0),
        (libc::SYS_setpriority, 1, 0),
        (libc::SYS_sched_setscheduler, 0, 0),
        (libc::SYS_sched_setattr, 0, 0),
        (libc::SYS_sched_setparam, 0, 0),
        (libc::SYS_sched_setaffinity, 0, 0),
        (libc::SYS_ioprio_set, 0, PROCESS),
        (libc::SYS_ioprio_set, 1, 0),
    ]
}

/// Changes of a file's rights, owner, attributes and times, which Landlock does not hold.
fn changes_of_rights() -> &'static [i64] {
    &[
        libc::SYS_fchmodat,
        libc::SYS_fchmodat2,
        libc::SYS_fchownat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat,
    ]
}

/// Lets a program inherit its standard streams and nothing else: an open file or socket is
/// beyond all that is refused by name.
pub(super) fn inherit_streams_only(command: &mut Command) {
    let close_others = || {
        // SAFETY: the call touches no memory of this process. It marks descriptors to be
        // closed by exec, so that the one by which the standard library hears of a failed
        // exec works until then.
        let marked = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        match marked {
            0 => Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // Before Linux 5.11. Such a kernel has no Landlock either, so commands
                    // reach files and sockets anyway, and the caller is told.
                    Some(libc::ENOSYS | libc::EINVAL) => Ok(()),
                    _ => Err(error),
                }
            }
        }
    };
    // SAFETY: what runs between fork and exec is one system call, which allocates nothing and
    // takes no lock.
    unsafe {
        command.pre_exec(close_others);
    }
}

/// Root keeps what it needs for files of other users and loses the rest. It cannot get it
/// back by running a program, since a confined thread gains no rights.
fn drop_capabilities() {
    let keep = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID;
    let Ok(now) = rustix::thread::capabilities(None) else {
        return;
    };
    let sets = CapabilitySets {
        effective: now.effective & keep,
        permitted: now.permitted & keep,
        inheritable: CapabilitySet::empty(),
    };
    // Giving up rights is always allowed.
    let _ = set_capabilities(None, sets);
}
