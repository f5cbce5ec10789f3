//! Errors of this crate, and what to do about them.

use crate::DEPTH_MAX;
use crate::stack::{BYTES_MAX, STACK_BYTES};
use core::fmt;
use handfast_sys::Errno;

/// How a domain went wrong in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It panicked.
    Panic,
    /// It touched memory that is not there, or may not be touched that way.
    Access {
        /// Where; zero when the processor does not say.
        address: u64,
    },
    /// It touched memory of another domain.
    Key {
        /// Where.
        address: u64,
    },
    /// Its stack ([`STACK_BYTES`]) was full.
    StackOverflow,
    /// It divided by zero, or the like (`SIGFPE`).
    Arithmetic,
    /// It ran an instruction that the processor does not know or allow (`SIGILL`), `abort` of Rust's core included.
    Illegal,
    /// Memory that could not be had from its file (`SIGBUS`).
    Bus,
    /// It ran past the deadline of the call, or of one that this call is nested in.
    Deadline,
    /// The process that it runs in has ended: it was killed, or exited ([`Isolation::Process`](crate::Isolation::Process)).
    Ended,
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The domain has no such entry.
    NoEntry {
        /// The one asked for.
        entry: u16,
    },
    /// More bytes than a call carries ([`BYTES_MAX`]).
    TooLong {
        /// How many.
        len_bytes: usize,
    },
    /// The reply has more bytes than the caller has room for; none were copied. The call has been done.
    ReplyTooLong {
        /// How many.
        len_bytes: usize,
    },
    /// The caller's buffers could not be read or written, or lie in the domain's own memory.
    Buffer,
    /// All stacks of the domain's group are in use, and none was given back within a second.
    Stacks {
        /// How many there are.
        limit: u32,
    },
    /// This thread is in [`DEPTH_MAX`] nested calls.
    TooDeep,
    /// The domain went wrong in this call.
    Fault(Fault),
    /// The domain went wrong before, and its policy is to stay dead.
    Dead,
    /// The domain went wrong, and is made anew once the calls that are in it have ended.
    Resetting,
    /// The handle was made before `fork` and is used in the child.
    Forked,
    /// The process that it ran in has ended, and no other could be started for this call, which has not been made. The next
    /// one tries again ([`Isolation::Process`](crate::Isolation::Process)).
    NotStarted(NotStarted),
    /// A signal handler on the alternate stack made the call: a signal in the domain would take that stack again.
    SignalStack,
    /// A domain made the call on a stack that is not its own.
    ForeignStack,
    /// This thread has no alternate stack for signals, and got none.
    NoSignalStack(Errno),
    /// A deadline was asked for, and none can be kept. The call has not been made.
    NoDeadline(NoDeadline),
}

/// Why the next process of a domain did not come to serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotStarted {
    /// A system call failed.
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// It was started, and did not come so far.
    Child {
        /// Why.
        what: &'static str,
    },
}

/// Why a call cannot have a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoDeadline {
    /// The domain is unprotected: its functions are part of the caller.
    Unprotected,
    /// The process is confined, and handles no signals.
    Confined,
    /// A system call failed: `EBUSY` when the program handles the signal itself, `EAGAIN` when the user has as many pending signals and timers
    /// as it may (`RLIMIT_SIGPENDING`).
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic => f.write_str("it panicked"),
            Self::Access { address } => write!(f, "it touched {address:#x}, which it may not"),
            Self::Key { address } => {
                write!(f, "it touched {address:#x}, which is another domain's")
            }
            Self::StackOverflow => write!(f, "its stack of {} KiB overflowed", STACK_BYTES / 1024),
            Self::Arithmetic => f.write_str("it divided by zero or the like (SIGFPE)"),
            Self::Illegal => f.write_str("it ran an illegal instruction (SIGILL)"),
            Self::Bus => f.write_str("memory of a file was not there (SIGBUS)"),
            Self::Ended => f.write_str("the process that it runs in has ended"),
            Self::Deadline => f.write_str("it ran past the deadline of the call"),
        }
    }
}

impl fmt::Display for NoDeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprotected => {
                f.write_str("the domain is not kept apart by memory keys or a process")
            }
            Self::Confined => f.write_str("the process is confined and handles no signals"),
            Self::Os { call, errno } => write!(
                f,
                "{call} failed ({errno}); deadlines need the signal SIGRTMIN + 6 and a timer for each thread"
            ),
        }
    }
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os { call, errno } => write!(f, "{call} failed ({errno})"),
            Self::Child { what } => f.write_str(what),
        }
    }
}

impl From<LoadError> for NotStarted {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Os { call, errno } => Self::Os { call, errno },
            LoadError::Child { what } => Self::Child { what },
            // Checks that a domain that was loaded once has passed.
            _ => Self::Child {
                what: "this program has no way to processes any more",
            },
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEntry { entry } => write!(
                f,
                "the domain has no entry {entry}; the first one of its table has number 0"
            ),
            Self::TooLong { len_bytes } => write!(
                f,
                "{len_bytes} bytes are more than a call carries ({}); make several calls",
                BYTES_MAX
            ),
            Self::ReplyTooLong { len_bytes } => write!(
                f,
                "the reply has {len_bytes} bytes, more than there is room for; the call has been done: give a \
                 longer buffer"
            ),
            Self::Buffer => f.write_str(
                "the buffers of the call cannot be read or written, or lie in the domain's memory",
            ),
            Self::Stacks { limit } => write!(
                f,
                "all {limit} stacks of the domain's group are in use; make fewer calls at a time"
            ),
            Self::TooDeep => write!(
                f,
                "this thread is in {} nested calls, which is the limit; nest fewer",
                DEPTH_MAX
            ),
            Self::Fault(fault) => write!(f, "the domain went wrong in this call: {fault}"),
            Self::Dead => f.write_str("the domain went wrong before; load it again"),
            Self::Resetting => f.write_str(
                "the domain went wrong and is made anew once the calls in it have ended; try again",
            ),
            Self::Forked => f.write_str(
                "this handle was made before fork() and does not work in the child; load the \
                 domain again there",
            ),
            Self::NotStarted(why) => write!(
                f,
                "the domain's process has ended, and another could not be started: {why}; see to that and call again"
            ),
            Self::SignalStack => f.write_str(
                "a signal handler on the alternate stack cannot call a domain; call it elsewhere",
            ),
            Self::ForeignStack => f.write_str(
                "a domain can call another only on the stack on which it was called itself",
            ),
            Self::NoSignalStack(errno) => {
                write!(f, "this thread has no alternate stack for signals: {errno}")
            }
            Self::NoDeadline(why) => write!(
                f,
                "calls into this domain cannot end at a deadline: {why}; call without one"
            ),
        }
    }
}

impl std::error::Error for CallError {}

/// Why a domain was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The processor or the kernel has no memory protection keys, and the domain may be no process
    /// ([`Isolation`](crate::Isolation)).
    NoKeys,
    /// The process is confined, and loads no domains any more.
    Confined,
    /// All keys are taken: a domain needs one, a group of several one more.
    KeysTaken {
        /// How many a process has.
        limit: u32,
    },
    /// The group and the domain are of different kinds, one protected and one not.
    OtherGroup,
    /// The group has as many domains as it can have.
    GroupFull {
        /// How many those are.
        limit: u32,
    },
    /// The table has more entries than can be numbered, or than fit into the domain's memory.
    TooManyEntries {
        /// How many it has.
        entries: usize,
    },
    /// The domain went wrong while it made its value.
    Init(Fault),
    /// A system call failed.
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// The first call could not be made.
    Call(CallError),
    /// The program has no way to processes: that is in the crate `handfast`.
    NoPorts,
    /// A function of the table lies in a library, where a child process would not find it.
    Library,
    /// The child process did not come to serve the domain.
    Child {
        /// Why.
        what: &'static str,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str(
                "no memory protection keys on this processor or kernel; load the domain as a process \
                 (Isolation::Process), or unprotected",
            ),
            Self::Confined => f.write_str(
                "the process is confined (confine::confine) and loads no domains any more; load all before",
            ),
            Self::KeysTaken { limit } => write!(
                f,
                "all {limit} memory protection keys of this process are taken, and each domain needs one; load fewer, or \
                 some as processes (Isolation::Process)"
            ),
            Self::OtherGroup => {
                f.write_str("a protected domain needs a protected group, another one another")
            }
            Self::GroupFull { limit } => {
                write!(f, "the group has {limit} domains, which is the limit; make another group")
            }
            Self::TooManyEntries { entries } => {
                write!(
                    f,
                    "{entries} entries are too many for the domain's numbers or memory; make several domains, or \
                     the heap longer (Options::heap_bytes)"
                )
            }
            Self::Init(fault) => write!(f, "the domain went wrong as it made its value: {fault}"),
            Self::Os { call, errno } => write!(f, "{call} failed: {errno}"),
            Self::Call(error) => error.fmt(f),
            Self::NoPorts => f.write_str(
                "this program cannot run domains as processes; load them by `handfast::domain`",
            ),
            Self::Library => f.write_str(
                "a function of the domain lies in a library, and a child process runs the program's own file \
                 only; load the domain unprotected, or link the library into the program",
            ),
            Self::Child { what } => write!(
                f,
                "the child process for the domain did not come to serve it: {what}"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

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
