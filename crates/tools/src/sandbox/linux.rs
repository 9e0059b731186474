//! The sandbox on Linux.

use std::collections::BTreeMap;

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
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // No rule means: whatever the arguments.
    let mut refuse = |call: i64, rule: Option<SeccompRule>| {
        #[cfg(target_arch = "x86_64")]
        rules
            .entry(call | X32_BIT)
            .or_default()
            .extend(rule.clone());
        rules.entry(call).or_default().extend(rule);
    };
    for call in always_refused() {
        refuse(call, None);
    }
    if sandbox.network == NetworkAccess::Off {
        refuse(libc::SYS_socket, None);
    }
    if sandbox.files == FileAccess::ReadOnly {
        for call in changes_of_rights() {
            refuse(*call, None);
        }
        // Times of an open file may be set: it may be written, then.
        refuse(libc::SYS_utimensat, Some(argument(1, SeccompCmpOp::Ne, 0)?));
    }
    // A process may join the group that it is in already, and only that one.
    refuse(
        libc::SYS_setpgid,
        Some(argument(1, SeccompCmpOp::Ne, group as u64)?),
    );
    // Limits of other processes.
    refuse(libc::SYS_prlimit64, Some(argument(0, SeccompCmpOp::Ne, 0)?));
    // Typing into the terminal.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        refuse(
            libc::SYS_ioctl,
            Some(argument(1, SeccompCmpOp::Eq, request)?),
        );
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}

fn argument(idx: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition = SeccompCondition::new(idx, SeccompCmpArgLen::Dword, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Ways out of the process group, around the filter itself, to the keys of the kernel's ring,
/// and to new name spaces.
fn always_refused() -> [i64; 10] {
    [
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
