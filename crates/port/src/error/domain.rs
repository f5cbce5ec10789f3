//! Errors of ports that a domain serves.

/// Why a domain did not serve a call. Callers in its process and in others get the same error, without the address that the
/// domain accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DomainError {
    /// The domain panicked in this call.
    #[error("the domain behind the port faulted in this call: it panicked")]
    Panic,
    /// The domain accessed memory that is not there, or not in a way that the memory allows.
    #[error(
        "the domain behind the port faulted in this call: it accessed an address that it may not"
    )]
    Access,
    /// The domain accessed memory of another domain.
    #[error(
        "the domain behind the port faulted in this call: it accessed memory of another domain"
    )]
    Key,
    /// The domain's stack was full.
    #[error("the domain behind the port faulted in this call: its stack overflowed")]
    StackOverflow,
    /// The domain made an arithmetic error, such as a division by zero (`SIGFPE`).
    #[error(
        "the domain behind the port faulted in this call: arithmetic error, as a division by zero (SIGFPE)"
    )]
    Arithmetic,
    /// The domain ran an instruction that the processor does not know or allow (`SIGILL`).
    #[error(
        "the domain behind the port faulted in this call: it ran an illegal instruction (SIGILL)"
    )]
    Illegal,
    /// The domain accessed a page of a mapped file that the file does not have (`SIGBUS`).
    #[error(
        "the domain behind the port faulted in this call: bus error (SIGBUS), as in a mapped file that has become shorter"
    )]
    Bus,
    /// The domain faulted before, and its policy is to stay dead.
    #[error(
        "the domain behind the port faulted before, and its policy is to stay dead; load it again"
    )]
    Dead,
    /// The domain faulted, and is reset once the calls that are in it have ended.
    #[error(
        "the domain behind the port faulted and is reset once the other calls in it have ended; try again"
    )]
    Resetting,
    /// All stacks of the domain's group have been in use for a second.
    #[error(
        "all stacks of the domain's group have been in use for a second; make fewer calls at a time"
    )]
    Stacks,
    /// Too many calls are nested in the caller's thread.
    #[error("too many calls between domains are nested in this thread; nest fewer")]
    TooDeep,
    /// The domain has no such function.
    #[error("the domain has no function of that number; serve the port by one that the domain has")]
    NoEntry,
    /// The thread cannot cross into a domain: it is in a signal handler, or has no stack for one.
    #[error(
        "this thread cannot call a domain: it runs a signal handler on the alternate stack, or has no \
         alternate stack; call from another thread, or outside the handler"
    )]
    Thread,
    /// The domain's function ran past the deadline of this call ([`SendRight::call_timeout`](crate::SendRight::call_timeout)), or past the limit of its port, and was ended.
    #[error("the domain behind the port faulted in this call: it ran past the call's deadline")]
    Deadline,
    /// The call has a deadline, and the domain's functions cannot be ended: the domain's process is confined, the domain is
    /// unprotected, or the thread has no timer. The function has not been called.
    #[error(
        "calls into the domain behind the port cannot have a deadline (the domain is unprotected, its \
         process is confined, or there is no timer for the thread); call without one"
    )]
    NoDeadline,
    /// The domain's process has ended: it was killed, or exited.
    #[error("the domain behind the port faulted in this call: its process has ended")]
    Ended,
    /// The domain's process has ended, and no other could be started; the next call tries again.
    #[error(
        "the process of the domain behind the port has ended, and its server could not start another (out \
         of descriptors, memory or processes?); free some and call again"
    )]
    NotStarted,
}

impl DomainError {
    const ALL: [Self; 17] = [
        Self::Panic,
        Self::Access,
        Self::Key,
        Self::StackOverflow,
        Self::Arithmetic,
        Self::Illegal,
        Self::Bus,
        Self::Dead,
        Self::Resetting,
        Self::Stacks,
        Self::TooDeep,
        Self::NoEntry,
        Self::Thread,
        Self::Deadline,
        Self::NoDeadline,
        Self::Ended,
        Self::NotStarted,
    ];

    /// The error's number in a reply slot (`spec/layout.md`), from 1.
    pub(crate) fn code(self) -> u8 {
        let place = Self::ALL.iter().position(|error| *error == self);
        place.map_or(0, |place| place as u8 + 1)
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        let place = usize::from(code).checked_sub(1)?;
        Self::ALL.get(place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_number_of_its_own() {
        for (error, code) in DomainError::ALL.into_iter().zip(1..) {
            assert_eq!(
                (error.code(), DomainError::of_code(code)),
                (code, Some(error))
            );
        }
        assert_eq!(
            (DomainError::of_code(0), DomainError::of_code(18)),
            (None, None)
        );
    }
}
