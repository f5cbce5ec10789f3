//! Child processes: their ends, and what one that has just begun takes over from its parent.

use crate::socket;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};

/// Ends the process of a descriptor from [`pidfd`](crate::process::pidfd). `pidfd_send_signal`.
pub fn kill(pidfd: &OwnedFd) {
    // One that has ended has ended.
    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
}

/// Waits for the end of a child of this process, and says which signal has ended it; `None` for one that has exited, or
/// that somebody else has waited for. `waitid`.
pub fn wait(pidfd: &OwnedFd) -> Option<i32> {
    loop {
        return match rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(status) => status?.terminating_signal(),
            Err(Errno::INTR) => continue,
            Err(_) => None,
        };
    }
}

/// Whether the process of the descriptor ends within so many milliseconds. `poll`.
#[must_use]
pub fn ends_within(pidfd: &OwnedFd, limit_ms: u32) -> bool {
    wait_for(&[pidfd], Some(limit_ms))
}

/// Waits until one of these descriptors is readable or its other end is closed.
pub fn wait_for_any(fds: &[&OwnedFd]) {
    wait_for(fds, None);
}

fn wait_for(fds: &[&OwnedFd], limit_ms: Option<u32>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let limit = limit_ms.map(|limit_ms| Timespec {
        tv_sec: i64::from(limit_ms / 1000),
        tv_nsec: i64::from(limit_ms % 1000) * 1_000_000,
    });
    let mut asked: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(*fd, PollFlags::IN))
        .collect();
    loop {
        match rustix::event::poll(&mut asked, limit.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Takes the socket that this process was given as its standard input, which is `/dev/null` from then on; `None` if that is
/// no Unix socket of messages. All other descriptors but standard output and error are closed, and `SIGPIPE` is ignored, as in
/// Rust's programs.
///
/// # Safety
/// The process has one thread, and nothing in it owns or borrows a descriptor but the three standard ones; nobody reads from
/// the standard input.
#[must_use]
pub unsafe fn take_standard_input() -> Option<OwnedFd> {
    const FIRST: i32 = 3;
    let input = std::io::stdin();
    if !socket::is_of_messages(&input) {
        return None;
    }
    let taken = rustix::io::fcntl_dupfd_cloexec(&input, FIRST).ok()?;
    let null = std::fs::File::open("/dev/null").ok()?;
    // SAFETY: the standard input becomes another file; the caller vouches that nobody reads from it.
    if unsafe { libc::dup2(null.as_raw_fd(), 0) } != 0 {
        return None;
    }
    drop(null);
    let (own, last) = (taken.as_raw_fd().cast_unsigned(), u32::MAX);
    for (from, to) in [(FIRST.cast_unsigned(), own - 1), (own + 1, last)] {
        if from <= to {
            // A kernel without it (before 5.9) leaves them open.
            // SAFETY: the caller vouches that nobody has any of them.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
    }
    // SAFETY: an action that the kernel knows.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    Some(taken)
}

/// Whether this program has rights that the process that started it has not (set-user-id and the like): then the environment
/// is not to be trusted. No system call.
#[must_use]
pub fn has_more_rights_than_its_parent() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: takes an integer.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Ends this process at once: nothing is run or written before.
pub fn exit(status: i32) -> ! {
    // SAFETY: takes an integer.
    unsafe { libc::_exit(status) }
}
