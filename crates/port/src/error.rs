//! Errors, by operation, and what to do about them.
//!
//! Errors are ordered by the party that must act: the caller's own mistake ([`Misuse`]), a limit
//! ([`Exhausted`]), the peer ([`Gone`], [`PeerFault`]), the system ([`Os`]).

mod connect;
mod domain;
mod message;
mod right;

pub use crate::loan::LoanError;
pub use crate::memory::MemoryError;
pub use crate::per_cpu::ServeError;
pub use connect::{BindError, ConnectError, Found};
use core::fmt;
pub use domain::DomainError;
use handfast_ring::Fault;
pub use handfast_ring::Rule;
use handfast_sys::Errno;
pub use message::{ReceiveError, ReplyError, SendError, Unsent};
pub use right::RightError;

/// How a peer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// Its process ended or closed the link. Rights to the peer no longer work: connect again.
    Process,
    /// The process lives; the port's receive right was dropped, or lost while it moved.
    Port,
    /// The server dropped the reply right of this call unused: by choice, or because of a failure (a panic, a reply that
    /// could not be sent). For a right that goes through another process, also the end of the port or the right.
    Reply,
    /// The port is there; its receiver has [revoked](crate::ReceiveRight::revoke) the right that was used, or this
    /// process had too many of that receiver's rights ([`Quotas::rights`](crate::Quotas::rights)) to get it. A call
    /// that ends so was not served.
    Right,
}

/// A peer wrote what no honest peer writes; its link is finished, others are not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// The rule it broke.
    pub rule: Rule,
    /// Where in the link's region.
    pub offset: usize,
}

impl From<Fault> for PeerFault {
    fn from(fault: Fault) -> Self {
        Self {
            rule: fault.rule,
            offset: fault.offset,
        }
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the peer broke a rule of the shared memory (offset {}): ",
            self.offset
        )?;
        f.write_str(self.rule.text())?;
        f.write_str("; its link has been cut: see which program that is")
    }
}

/// A limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The exhausted resource; and behind a semicolon, what to do about it.
    pub what: &'static str,
    /// How many there are; zero if unknown.
    pub limit: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, advice) = match self.what.split_once("; ") {
            Some((what, advice)) => (what, Some(advice)),
            None => (self.what, None),
        };
        write!(f, "out of {what}")?;
        if self.limit > 0 {
            write!(f, " (limit {})", self.limit)?;
        }
        advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// A system call failed in a way this library has no better word for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Os {
    /// The call.
    pub call: &'static str,
    /// Its error.
    pub errno: Errno,
}

impl fmt::Display for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.errno)
    }
}

/// The caller can avoid this by changing its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The handle was made before a `fork` and is used in the child.
    Forked,
    /// The message is one-way, or has been answered: there is no reply right to use.
    NotACall,
    /// A waker or a subscriber of `tracing` waits, in the library's control thread, for something that only that thread
    /// can bring about.
    ControlThread,
    /// The node of the handle was shut down ([`Node::shutdown`](crate::Node::shutdown)).
    Shutdown,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forked => f.write_str(
                "this handle was made before fork() and does not work in the child; bind or \
                 connect again there",
            ),
            Self::Shutdown => f.write_str(
                "the node of this handle was shut down; drop the handle, and bind or connect again by another node",
            ),
            Self::NotACall => f.write_str(
                "the message is one-way or has been answered, so there is nobody to reply to; \
                 send a message instead",
            ),
            Self::ControlThread => f.write_str(
                "a waker or a tracing subscriber that runs in handfast's control thread must not wait: \
                 have the task or another thread do that",
            ),
        }
    }
}

/// Why a node was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeError {
    /// Descriptors, memory or threads ran out.
    Exhausted(Exhausted),
    /// The sandbox forbids memory files.
    NoMemoryFiles(Os),
    /// Another thread has shut the node down.
    Misuse(Misuse),
    /// Anything else.
    Os(Os),
}

impl From<Misuse> for NodeError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

/// Why a plain queue was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The kind cannot have this capacity: it is zero, over the limit, or not a power of two although the kind
    /// needs one.
    Capacity {
        /// Most messages.
        limit: u32,
    },
    /// The descriptors do not belong to a queue of this kind and capacity.
    Other,
    /// The limit of processes that have it open is reached.
    Members {
        /// How many.
        limit: u64,
    },
    /// This process has it open already; share that handle.
    Open,
    /// Descriptors or memory ran out.
    Exhausted(Exhausted),
    /// The sandbox forbids memory files.
    NoMemoryFiles(Os),
    /// A member wrote what no honest member writes.
    Fault(PeerFault),
    /// A mistake of the caller.
    Misuse(Misuse),
    /// Anything else.
    Os(Os),
}

/// Why a wait set was not made, a descriptor not added to it, or a readiness descriptor not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetError {
    /// The descriptor is always ready, as a plain file is.
    Unpollable,
    /// Descriptors or memory ran out.
    Exhausted(Exhausted),
    /// In a forked child, by its parent's node; or once the node was shut down.
    Misuse(Misuse),
    /// Anything else.
    Os(Os),
}

impl From<Misuse> for SetError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

pub(crate) fn no_memory_files(f: &mut fmt::Formatter<'_>, os: &Os) -> fmt::Result {
    write!(
        f,
        "{os}: this sandbox forbids memory files; allow memfd_create in its filter"
    )
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity { limit } => write!(
                f,
                "a queue of this kind holds from 1 to {limit} messages (a ring: a power of two)"
            ),
            Self::Other => f.write_str(
                "these descriptors are not those of a queue of this kind and capacity; pass what \
                 its creator used",
            ),
            Self::Members { limit } => {
                write!(
                    f,
                    "{limit} processes, the limit, have the queue open already; end one of them"
                )
            }
            Self::Open => f.write_str("this process has the queue open already; share that handle"),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::NoMemoryFiles(os) => no_memory_files(f, os),
            Self::Fault(fault) => fault.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Os(os) => os.fmt(f),
        }
    }
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpollable => f.write_str(
                "the descriptor cannot be waited on: plain files and directories are always \
                 ready; read it without waiting",
            ),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Os(os) => os.fmt(f),
        }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::NoMemoryFiles(os) => no_memory_files(f, os),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Os(os) => os.fmt(f),
        }
    }
}

impl std::error::Error for NodeError {}
impl std::error::Error for SetError {}
impl std::error::Error for QueueError {}

/// Sorts the errors of making descriptors and memory.
pub(crate) enum Resource {
    Exhausted(Exhausted),
    NoMemoryFiles(Os),
    Os(Os),
}

impl Resource {
    pub(crate) fn of(call: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::MFILE => Self::Exhausted(Exhausted {
                what: "descriptors of this process; raise RLIMIT_NOFILE",
                limit: handfast_sys::process::descriptor_limit(),
            }),
            Errno::NFILE => Self::Exhausted(Exhausted {
                what: "descriptors of the system; raise fs.file-max",
                limit: 0,
            }),
            Errno::NOSPC if call == "epoll_ctl" => Self::Exhausted(Exhausted {
                what: "descriptors that a user may wait for; raise fs.epoll.max_user_watches",
                limit: 0,
            }),
            Errno::NOMEM | Errno::NOSPC => Self::Exhausted(MEMORY),
            Errno::NOSYS | Errno::PERM if call == "memfd_create" => {
                Self::NoMemoryFiles(Os { call, errno })
            }
            _ => Self::Os(Os { call, errno }),
        }
    }
}

impl From<Resource> for Exhausted {
    /// For operations with no other errors: any other refusal of a system call counts as a lack of room.
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Exhausted(exhausted) => exhausted,
            Resource::NoMemoryFiles(_) => Self {
                what: "memory files, which this sandbox forbids; allow memfd_create in its filter",
                limit: 0,
            },
            Resource::Os(_) => MEMORY,
        }
    }
}

const MEMORY: Exhausted = Exhausted {
    what: "memory; ask for less, or raise the control group's limit, RLIMIT_AS or vm.max_map_count",
    limit: 0,
};

impl From<Resource> for NodeError {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Exhausted(exhausted) => Self::Exhausted(exhausted),
            Resource::NoMemoryFiles(os) => Self::NoMemoryFiles(os),
            Resource::Os(os) => Self::Os(os),
        }
    }
}

impl From<Resource> for SetError {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Exhausted(exhausted) => Self::Exhausted(exhausted),
            Resource::Os(os) if os.call == "epoll_ctl" && os.errno == Errno::PERM => {
                Self::Unpollable
            }
            Resource::NoMemoryFiles(os) | Resource::Os(os) => Self::Os(os),
        }
    }
}
