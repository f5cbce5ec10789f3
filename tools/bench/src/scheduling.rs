//! How the kernel schedules the processes of a measurement.

use serde::{Deserialize, Serialize};
use std::io;

/// A policy of the kernel's, for server and clients alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheduling {
    /// The policy of processes that ask for nothing (`SCHED_OTHER`).
    Default,
    /// The same fixed priority for all (`SCHED_FIFO`): a thread that yields goes behind all others.
    Fifo,
    /// As `Fifo`, in turns of some time (`SCHED_RR`).
    RoundRobin,
    /// As `Fifo`, the server above the clients: a client that wakes it hands the CPU to it.
    ServerFirst,
}

impl Scheduling {
    /// Puts this thread, and those it starts, under the policy. `sched_setscheduler`.
    pub(crate) fn enter(self, is_server: bool) -> io::Result<()> {
        let (policy, priority) = match self {
            Self::Default => return Ok(()),
            Self::Fifo => (libc::SCHED_FIFO, 1),
            Self::RoundRobin => (libc::SCHED_RR, 1),
            Self::ServerFirst => (libc::SCHED_FIFO, 1 + i32::from(is_server)),
        };
        set(policy, priority)
    }

    /// Whether processes may be put under the policy, or why not.
    pub fn is_permitted(self) -> io::Result<()> {
        // A thread of its own: it ends with its policy.
        let tried = std::thread::scope(|scope| scope.spawn(|| self.enter(true)).join());
        tried.unwrap_or_else(|_| Err(io::Error::other("the thread that tried it ended")))
    }
}

fn set(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sched_param.
    let mut param: libc::sched_param = unsafe { core::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: `param` is valid for a read; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const param) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
