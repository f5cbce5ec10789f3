//! Process identity: fork detection, incarnations, limits.

use crate::last_errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::OsString;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static REGISTER: Once = Once::new();

extern "C" fn count_fork() {
    // Relaxed: the child has one thread when this runs, and nothing is published through it.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many `fork` calls lie between this process and the one that first asked. A handle made at
/// one epoch is dead at any other. One load.
#[must_use]
#[inline]
pub fn fork_epoch() -> u32 {
    // Relaxed: changes only in a new process, before it has a second thread.
    FORKS.load(Ordering::Relaxed)
}

/// Starts counting forks; call once before [`fork_epoch`] is relied on.
pub fn watch_forks() {
    REGISTER.call_once(|| {
        // SAFETY: `count_fork` is async-signal-safe and lives for ever.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
}

/// Sixteen random bytes.
///
/// # Errors
/// The error of `getrandom`; it does not block once the system has started.
pub fn random_bytes() -> Result<[u8; 16], Errno> {
    #[cfg(feature = "simulation")]
    if let Some(bytes) = crate::simulation::random_bytes() {
        return Ok(bytes);
    }
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// The identity of this process for its links: eight bytes by which the kernel knows it, where it has such, and random ones.
/// A process that says it is this one is found out by the former ([`proves`]), even if it has seen them.
///
/// # Errors
/// The error of `getrandom`; it does not block once the system has started.
pub fn new_incarnation() -> Result<[u8; 16], Errno> {
    let mut bytes = random_bytes()?;
    // As peers find it: where no descriptor of a process may be opened, they get one with a connection nevertheless.
    let (own, _other) = crate::socket::pair()?;
    let pidfd = crate::socket::peer_pidfd(&own);
    if let Some(identity) = pidfd.ok().and_then(|pidfd| identity_of(&pidfd)) {
        bytes[..8].copy_from_slice(&identity.to_le_bytes());
    }
    Ok(bytes)
}

/// Whether the process of a descriptor from [`pidfd`] may say that it is this incarnation. Two system calls.
#[must_use]
pub fn proves(pidfd: impl AsFd, incarnation: &[u8; 16]) -> bool {
    identity_of(pidfd).is_none_or(|identity| incarnation[..8] == identity.to_le_bytes())
}

/// The kernel's identity of a process: the number of its inode in pidfs, which no other process has had since the system started,
/// nor will have. `None` before Linux 6.9.
fn identity_of(pidfd: impl AsFd) -> Option<u64> {
    const PIDFS_MAGIC: i64 = 0x5049_4446;
    let fs = rustix::fs::fstatfs(&pidfd).ok()?;
    (fs.f_type == PIDFS_MAGIC).then_some(())?;
    rustix::fs::fstat(pidfd).ok().map(|stat| stat.st_ino)
}

/// A variable of the environment; `None` where it is not set, and in a program that has rights that its starter has not
/// (set-user-id and the like): its environment is written by somebody who has less. All of the library asks here.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    match crate::child::has_more_rights_than_its_parent() {
        true => None,
        false => std::env::var_os(name),
    }
}

/// This process's id.
#[must_use]
pub fn pid() -> u32 {
    #[cfg(feature = "simulation")]
    if let Some(pid) = crate::simulation::pid() {
        return pid;
    }
    std::process::id()
}

/// This process's effective user id.
#[must_use]
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// This process leaves no core file, nor sends one anywhere, and no process of the same user can look into it. A forked
/// child neither. `prctl(PR_SET_DUMPABLE)`.
///
/// # Errors
/// None that the kernel documents.
pub fn hide() -> Result<(), Errno> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
}

/// Soft limit of open descriptors.
#[must_use]
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

/// CPU time of this process and its waited-for threads, in nanoseconds.
#[must_use]
pub fn cpu_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A descriptor that becomes readable when process `pid` ends. `pidfd_open`.
///
/// # Errors
/// `ESRCH` when there is no such process.
pub fn pidfd(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
}

/// Whether the process of a descriptor from [`pidfd`] has ended. One `poll`, does not block.
#[must_use]
pub fn has_ended(pidfd: impl AsFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(
        &pidfd,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::event::Timespec::default();
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Voluntary and involuntary context switches of this process so far. `getrusage`.
#[must_use]
pub fn switches() -> (u64, u64) {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for a write of one rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        let _ = last_errno();
        return (0, 0);
    }
    // SAFETY: all-zero bytes are a valid rusage, and the kernel filled it.
    let usage = unsafe { usage.assume_init() };
    (
        usage.ru_nvcsw.cast_unsigned(),
        usage.ru_nivcsw.cast_unsigned(),
    )
}
