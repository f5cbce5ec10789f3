//! Hand-off: telling the scheduler who should run (paper 000, section 6).
//!
//! The paper's call names a process that is to run next, and is its own kernel's. Linux has no directed yield; decision 0042 has the ways that were
//! tried instead.

/// The process that should run instead of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The paper's `pid`: the peer that was just woken or posted to, and nobody else. [`Unsupported`]: no kernel has a way so far.
    Peer,
    /// The paper's `PID_SELF`: the same as yield. One `sched_yield`: another thread that can run on this processor is likely to, whichever that
    /// is.
    Own,
    /// The paper's `PID_ANY`: anybody, even of lower priority, so the caller blocks for the
    /// shortest time the kernel's timers give (`nanosleep` of 1 ns; about 50 us of timer slack).
    Any,
}

/// The kernel cannot do that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel lets no thread say which one runs next: yield (Target::Own), or let the peer's wake-up do it"
)]
pub struct Unsupported;

/// Suggests that `target` run now. One system call; returns when the caller runs again.
///
/// # Errors
/// [`Unsupported`] for [`Target::Peer`]: nothing was done.
pub fn handoff(target: Target) -> Result<(), Unsupported> {
    match target {
        Target::Peer => return Err(Unsupported),
        Target::Own => handfast_sys::cpu::yield_now(),
        Target::Any => handfast_sys::clock::nap(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_said_to_have_been_handed_the_processor() {
        assert_eq!(handoff(Target::Peer), Err(Unsupported));
        for target in [Target::Own, Target::Any] {
            assert_eq!(handoff(target), Ok(()));
        }
    }
}
