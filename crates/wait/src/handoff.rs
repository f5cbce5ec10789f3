//! Hand-off: telling the scheduler who should run (paper 000, section 6).
//!
//! Linux has no directed yield between unrelated processes. Each target's meaning and cost here are
//! documented with it; the paper's semantics are its own kernel's.

/// The process that should run instead of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The peer that was just woken or posted to. A futex wake-up already preempts the caller in
    /// its favour where both share a processor; one `sched_yield` covers the policies where it
    /// does not (`SCHED_FIFO`, `SCHED_BATCH`). One system call.
    Peer,
    /// The paper's `PID_SELF`: the same as yield. One `sched_yield`.
    Own,
    /// The paper's `PID_ANY`: anybody, even of lower priority, so the caller blocks for the
    /// shortest time the kernel's timers give (`nanosleep` of 1 ns; about 50 us of timer slack).
    Any,
}

/// Suggests that `target` run now. One system call; returns when the caller runs again.
pub fn handoff(target: Target) {
    match target {
        Target::Peer | Target::Own => handfast_sys::cpu::yield_now(),
        Target::Any => handfast_sys::clock::nap(),
    }
}
