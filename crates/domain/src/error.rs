//! Errors of this crate, and what to do about them.

use crate::DEPTH_MAX;
use crate::stack::{BYTES_MAX, STACK_BYTES};
use handfast_sys::error::Errno;

/// The fault of a domain in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The domain's function panicked.
    #[error("it panicked")]
    Panic,
    /// The function accessed memory that does not exist, or that does not allow this access.
    #[error("it accessed {address:#x}, which it may not")]
    Access {
        /// The address; zero when the processor does not tell it.
        address: u64,
    },
    /// The function accessed memory of another domain.
    #[error("it accessed {address:#x}, which belongs to another domain")]
    Key {
        /// Where.
        address: u64,
    },
    /// The function's stack ([`STACK_BYTES`]) was full.
    #[error("its stack of {} KiB overflowed", STACK_BYTES / 1024)]
    StackOverflow,
    /// An arithmetic error, as a division by zero (`SIGFPE`).
    #[error("arithmetic error, as a division by zero (SIGFPE)")]
    Arithmetic,
    /// The function executed an instruction that the processor does not know or allow (`SIGILL`), `abort` of Rust's core included.
    #[error("it ran an illegal instruction (SIGILL)")]
    Illegal,
    /// A bus error (`SIGBUS`): a page could not be had from its file.
    #[error("bus error (SIGBUS), as in a mapped file that has become shorter")]
    Bus,
    /// The function ran past the deadline of the call, or of a call that this one is nested in.
    #[error("it ran past the deadline of the call")]
    Deadline,
    /// The process that the domain runs in has ended: it was killed, or exited ([`Isolation::Process`](crate::Isolation::Process)).
    #[error("its process has ended")]
    Ended,
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The domain has no such entry.
    #[error("the domain has no entry {entry}; the first one of its table has number 0")]
    NoEntry {
        /// The one asked for.
        entry: u16,
    },
    /// More bytes than a call carries ([`BYTES_MAX`]).
    #[error(
        "the arguments are {len_bytes} bytes long and the limit is {BYTES_MAX}; make several calls"
    )]
    TooLong {
        /// How many.
        len_bytes: usize,
    },
    /// The reply has more bytes than the caller has room for; none were copied. The call has been done.
    #[error(
        "the reply is {len_bytes} bytes long and does not fit the buffer; the call was made: give a longer \
         buffer next time"
    )]
    ReplyTooLong {
        /// How many.
        len_bytes: usize,
    },
    /// The caller's buffers could not be read or written, or lie in the domain's own memory.
    #[error(
        "a buffer of the call cannot be read or written, or lies in the domain's memory; pass buffers of the caller's own memory"
    )]
    Buffer,
    /// All stacks of the domain's group are in use, and none was given back within a second.
    #[error(
        "all {limit} stacks of the domain's group have been in use for a second; make fewer calls at a time"
    )]
    Stacks {
        /// How many there are.
        limit: u32,
    },
    /// This thread is in [`DEPTH_MAX`] nested calls.
    #[error("this thread is in {DEPTH_MAX} nested calls, which is the limit; nest fewer")]
    TooDeep,
    /// The domain faulted in this call.
    #[error("the domain faulted in this call: {0}")]
    Fault(Fault),
    /// The domain faulted before, and its policy is to stay dead.
    #[error("the domain faulted before, and its policy is to stay dead; load it again")]
    Dead,
    /// The domain faulted, and is reset once the other calls in it have ended.
    #[error("the domain faulted and is reset once the other calls in it have ended; try again")]
    Resetting,
    /// The handle was made before `fork` and is used in the child.
    #[error(
        "this handle was made before fork() and does not work in the child; load the domain again there"
    )]
    Forked,
    /// The process that it ran in has ended, and no other could be started for this call, which has not been made. The next
    /// one tries again ([`Isolation::Process`](crate::Isolation::Process)).
    #[error(
        "the domain's process has ended, and another could not be started: {0}; correct that and call again"
    )]
    NotStarted(NotStarted),
    /// A signal handler on the alternate stack made the call: a signal in the domain would take that stack again.
    #[error(
        "a signal handler on the alternate stack cannot call a domain; call it outside the handler"
    )]
    SignalStack,
    /// A domain made the call on a stack that is not its own.
    #[error(
        "a domain can call another one only on the stack that the gate gave it; do not switch stacks in a domain"
    )]
    ForeignStack,
    /// This thread has no alternate stack for signals, and got none.
    #[error(
        "this thread has no alternate stack for signals and could not get one: {0}; free memory or call from another thread"
    )]
    NoSignalStack(Errno),
    /// The call has a deadline, which cannot be kept. The call has not been made.
    #[error("calls into this domain cannot end at a deadline: {0}; call without one")]
    NoDeadline(NoDeadline),
}

/// Why the next process of a domain did not start serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotStarted {
    /// A system call failed.
    #[error("{call} failed ({errno})")]
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// The process was started, and failed before it could serve.
    #[error("{what}")]
    Child {
        /// Why.
        what: &'static str,
    },
}

/// Why a call cannot have a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDeadline {
    /// The domain is unprotected: its functions are part of the caller.
    #[error("the domain is unprotected, neither behind a memory key nor in a process")]
    Unprotected,
    /// The process is confined, and handles no signals.
    #[error("the process is confined and handles no signals")]
    Confined,
    /// A system call failed: `EBUSY` when the program handles the signal itself, `EAGAIN` when the user has as many pending signals and timers
    /// as it may (`RLIMIT_SIGPENDING`).
    #[error(
        "{call} failed ({errno}); deadlines need the signal SIGRTMIN + 6 and a timer for each thread"
    )]
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
}

impl From<LoadError> for NotStarted {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Os { call, errno } => Self::Os { call, errno },
            LoadError::Child { what } => Self::Child { what },
            // Checks that a domain that was loaded once has passed.
            _ => Self::Child {
                what: "this program cannot run domains as processes any more",
            },
        }
    }
}

/// Why a domain was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The processor or the kernel has no memory protection keys, and the domain may be no process
    /// ([`Isolation`](crate::Isolation)).
    #[error(
        "no memory protection keys on this processor or kernel; load the domain as a process \
         (Isolation::Process), or unprotected"
    )]
    NoKeys,
    /// The process is confined, and can load no more domains.
    #[error("a confined process (confine::confine) loads no domains; load all of them before")]
    Confined,
    /// All keys are taken: a domain needs one, a group of several one more.
    #[error(
        "all {limit} memory protection keys of this process are taken, and each domain needs one; load \
         fewer, or some as processes (Isolation::Process)"
    )]
    KeysTaken {
        /// How many a process has.
        limit: u32,
    },
    /// The group and the domain are of different kinds, one protected and one not.
    #[error(
        "a protected domain needs a protected group, and an unprotected domain an unprotected one; choose another group"
    )]
    OtherGroup,
    /// The group has as many domains as it can have.
    #[error("the group has {limit} domains, which is the limit; make another group")]
    GroupFull {
        /// How many those are.
        limit: u32,
    },
    /// The table has more entries than can be numbered, or than fit into the domain's memory.
    #[error(
        "the table's {entries} entries exceed the entry numbers or the domain's memory; make several domains, \
         or a longer heap (DomainOptions::heap_bytes)"
    )]
    TooManyEntries {
        /// How many it has.
        entries: usize,
    },
    /// The domain faulted while it made its value.
    #[error("the domain faulted while it made its value: {0}")]
    Init(Fault),
    /// A system call failed.
    #[error("{call} failed: {errno}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// The first call could not be made.
    #[error(transparent)]
    Call(CallError),
    /// The program cannot run domains as processes: the crate `handfast` can.
    #[error("this program cannot run domains as processes; load them by `handfast::domain`")]
    NoPorts,
    /// A function of the table lies in a library, where a child process would not find it.
    #[error(
        "a function of the domain lies in a library, and a child process runs the program's own file \
         only; load the domain unprotected, or link the library into the program"
    )]
    Library,
    /// The child process did not start serving the domain.
    #[error("the child process of the domain did not start serving: {what}")]
    Child {
        /// Why.
        what: &'static str,
    },
}

/// How a crossing ended, as it comes back through the gate: a code in the low byte, a number above.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u64);

impl Status {
    pub(crate) const DONE: u8 = 0;
    pub(crate) const NO_ENTRY: u8 = 1;
    /// No stack was free: one may be as soon as another thread has built it.
    pub(crate) const STACKS: u8 = 2;
    pub(crate) const DEAD: u8 = 3;
    pub(crate) const RESETTING: u8 = 4;
    pub(crate) const TOO_LONG: u8 = 5;
    pub(crate) const BUFFER: u8 = 6;
    pub(crate) const FOREIGN_STACK: u8 = 7;
    pub(crate) const REPLY_TOO_LONG: u8 = 8;
    pub(crate) const TOO_DEEP: u8 = 9;
    /// Its process says why.
    pub(crate) const NOT_STARTED: u8 = 10;
    /// The caller is in a domain, and asked for no such call. The gate's.
    pub(crate) const INSIDE: u8 = 11;
    /// A confined domain takes no deadline.
    pub(crate) const CONFINED: u8 = 12;
    pub(crate) const PANIC: u8 = 16;
    pub(crate) const ACCESS: u8 = 17;
    pub(crate) const KEY: u8 = 18;
    pub(crate) const OVERFLOW: u8 = 19;
    pub(crate) const ARITHMETIC: u8 = 20;
    pub(crate) const ILLEGAL: u8 = 21;
    pub(crate) const BUS: u8 = 22;
    pub(crate) const DEADLINE: u8 = 23;
    pub(crate) const ENDED: u8 = 24;

    pub(crate) const fn new(code: u8, number: u64) -> Self {
        Self(code as u64 | number << 8)
    }

    pub(crate) const fn code(self) -> u8 {
        self.0 as u8
    }

    pub(crate) const fn number(self) -> u64 {
        self.0 >> 8
    }

    /// The error that this status stands for. An unknown code is taken for a domain that was overwritten.
    pub(crate) fn error(self, limit: u32) -> CallError {
        let number = self.number();
        let len_bytes = usize::try_from(number).unwrap_or(usize::MAX);
        match self.code() {
            Self::NO_ENTRY => CallError::NoEntry {
                entry: number as u16,
            },
            Self::STACKS => CallError::Stacks { limit },
            Self::DEAD => CallError::Dead,
            // Another call has tried again meanwhile.
            Self::RESETTING | Self::NOT_STARTED => CallError::Resetting,
            Self::TOO_LONG => CallError::TooLong { len_bytes },
            Self::BUFFER => CallError::Buffer,
            Self::FOREIGN_STACK => CallError::ForeignStack,
            Self::TOO_DEEP => CallError::TooDeep,
            Self::CONFINED => CallError::NoDeadline(NoDeadline::Confined),
            Self::REPLY_TOO_LONG => CallError::ReplyTooLong { len_bytes },
            _ => CallError::Fault(self.fault()),
        }
    }

    pub(crate) const fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::Panic => Self::new(Self::PANIC, 0),
            Fault::Access { address } => Self::new(Self::ACCESS, address),
            Fault::Key { address } => Self::new(Self::KEY, address),
            Fault::StackOverflow => Self::new(Self::OVERFLOW, 0),
            Fault::Arithmetic => Self::new(Self::ARITHMETIC, 0),
            Fault::Illegal => Self::new(Self::ILLEGAL, 0),
            Fault::Bus => Self::new(Self::BUS, 0),
            Fault::Ended => Self::new(Self::ENDED, 0),
            Fault::Deadline => Self::new(Self::DEADLINE, 0),
        }
    }

    pub(crate) const fn fault(self) -> Fault {
        let address = self.number();
        match self.code() {
            Self::PANIC => Fault::Panic,
            Self::KEY => Fault::Key { address },
            Self::OVERFLOW => Fault::StackOverflow,
            Self::ARITHMETIC => Fault::Arithmetic,
            Self::ILLEGAL => Fault::Illegal,
            Self::BUS => Fault::Bus,
            Self::DEADLINE => Fault::Deadline,
            Self::ENDED => Fault::Ended,
            // `ACCESS`, or whatever else an overwritten domain says.
            _ => Fault::Access { address },
        }
    }
}
