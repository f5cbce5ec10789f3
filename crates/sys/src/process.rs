//! Process identity: fork detection, incarnations, limits.

use crate::last_errno;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
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

/// Sixteen random bytes: the identity of this process for its links.
///
/// # Errors
/// What `getrandom` says; it does not block once the system has started.
pub fn random_identity() -> Result<[u8; 16], Errno> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// This process's id.
#[must_use]
pub fn pid() -> u32 {
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
pub fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(
        pidfd,
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
