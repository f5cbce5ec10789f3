//! Errors of ports that a domain serves.

use core::fmt;

/// Why a domain did not serve a call. The same for callers in its process and in others. The address that the
/// domain touched is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DomainError {
    /// It panicked in this call.
    Panic,
    /// It touched memory that is not there, or may not be touched that way.
    Access,
    /// It touched memory of another domain.
    Key,
    /// Its stack was full.
    StackOverflow,
    /// It divided by zero, or the like.
    Arithmetic,
    /// It ran an instruction that the processor does not know or allow.
    Illegal,
    /// Memory of a file was not there.
    Bus,
    /// It went wrong before, and its policy is to stay dead.
    Dead,
    /// It went wrong, and is rebuilt once the calls that are in it have ended.
    Resetting,
    /// All stacks of its group are in use.
    Stacks,
    /// Too many calls are nested in the caller's thread.
    TooDeep,
    /// It has no such function.
    NoEntry,
    /// The thread cannot cross into a domain: it is in a signal handler, or has no stack for one.
    Thread,
    /// It ran past the deadline of this call ([`SendRight::call_timeout`](crate::SendRight::call_timeout)), or past the limit of its port, and was ended.
    Deadline,
    /// The call has a deadline, and the domain's functions cannot be ended: its process is confined, it is
    /// unprotected, or there is no timer. The function has not been called.
    NoDeadline,
    /// The domain's process has ended: it was killed, or exited.
    Ended,
    /// The domain's process has ended, and no other could be started; the next call tries again.
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

    /// Its number in a reply slot (`spec/layout.md`), from 1.
    pub(crate) fn code(self) -> u8 {
        let place = Self::ALL.iter().position(|error| *error == self);
        place.map_or(0, |place| place as u8 + 1)
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        let place = usize::from(code).checked_sub(1)?;
        Self::ALL.get(place).copied()
    }
}

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let went_wrong = |f: &mut fmt::Formatter<'_>, how: &str| {
            write!(
                f,
                "the domain behind the port went wrong in this call: {how}"
            )
        };
        match self {
            Self::Panic => went_wrong(f, "it panicked"),
            Self::Access => went_wrong(f, "it touched memory that it may not"),
            Self::Key => went_wrong(f, "it touched memory of another domain"),
            Self::StackOverflow => went_wrong(f, "its stack overflowed"),
            Self::Arithmetic => went_wrong(f, "it divided by zero or the like (SIGFPE)"),
            Self::Illegal => went_wrong(f, "it ran an illegal instruction (SIGILL)"),
            Self::Bus => went_wrong(f, "memory of a file was not there (SIGBUS)"),
            Self::Deadline => went_wrong(f, "it ran past the deadline"),
            Self::NoDeadline => f.write_str(
                "the domain behind the port cannot be ended at a deadline (it is unprotected, its process is \
                 confined, or there is no timer for the thread); call without one",
            ),
            Self::Dead => f.write_str(
                "the domain behind the port went wrong before and stays dead; load it again",
            ),
            Self::Resetting => f.write_str(
                "the domain behind the port went wrong and is made anew once the calls in it have \
                 ended; try again",
            ),
            Self::Stacks => f.write_str(
                "all stacks of the domain's group are in use; make fewer calls at a time",
            ),
            Self::TooDeep => f.write_str(
                "this thread is in too many calls of domains that call domains; nest fewer",
            ),
            Self::NoEntry => f.write_str("the domain has no such function; serve the port by one it has"),
            Self::Thread => f.write_str(
                "this thread cannot call a domain: it is in a signal handler on the alternate stack, \
                 or has no such stack; call elsewhere",
            ),
            Self::Ended => went_wrong(f, "the process that it runs in has ended"),
            Self::NotStarted => f.write_str(
                "the process of the domain behind the port has ended, and its server could not start another (out of \
                 descriptors, memory or processes?); see to that and call again",
            ),
        }
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
