//! Errors, by operation, and what to do about them.
//!
//! Errors are ordered by the party that must act: the caller's own mistake ([`Misuse`]), a limit
//! ([`Exhausted`]), the peer ([`Gone`], [`PeerFault`]), the system ([`Os`]).

mod connect;
mod domain;
mod memory;
mod message;
pub(crate) mod resource;
mod right;

pub use connect::{BindError, ConnectError, Found};
pub use domain::DomainError;
use handfast_ring::Fault;
pub use handfast_ring::Rule;
pub use handfast_sys::error::Errno;
pub use memory::{LoanError, MemoryError};
pub use message::{ReceiveError, ReplyError, SendError, Unsent};
pub(crate) use resource::Resource;
pub use right::RightError;

/// How a peer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// The peer's process ended or closed the link. Rights to the peer no longer work: connect again.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer broke a rule of the shared memory (offset {offset}): {}; its link has been cut; see which program the peer is",
    .rule.text()
)]
pub struct PeerFault {
    /// The rule it broke.
    pub rule: Rule,
    /// The place in the link's region, in bytes from its start.
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

/// A limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of {what}{}{}", limited(*.limit), advised(*.advice))]
pub struct Exhausted {
    /// The exhausted resource.
    pub what: &'static str,
    /// The limit; zero if unknown.
    pub limit: u64,
    /// How to do with less, or get more.
    pub advice: Option<&'static str>,
}

fn limited(limit: u64) -> String {
    match limit {
        0 => String::new(),
        limit => format!(" (limit {limit})"),
    }
}

fn advised(advice: Option<&str>) -> String {
    advice.map_or_else(String::new, |advice| format!("; {advice}"))
}

/// A system call failed for a reason without a variant of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {errno}")]
pub struct Os {
    /// The call.
    pub call: &'static str,
    /// Its error.
    pub errno: Errno,
}

/// The caller can avoid this by changing its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The handle was made before a `fork` and is used in the child.
    #[error(
        "this handle was made before fork() and does not work in the child; bind or connect again there"
    )]
    Forked,
    /// The message is one-way, or has been answered: there is no reply right to use.
    #[error(
        "the message is one-way, or was answered already; check Request::is_call, and send a message instead"
    )]
    NotACall,
    /// A waker or a subscriber of `tracing` waits, in the library's control thread, for something that only that thread
    /// can bring about.
    #[error(
        "a waker or a tracing subscriber that runs in handfast's control thread must not wait; have the \
         task or another thread do so"
    )]
    ControlThread,
    /// The node of the handle was shut down ([`Node::shutdown`](crate::Node::shutdown)).
    #[error(
        "the node of this handle was shut down; drop the handle, and bind or connect again by another node"
    )]
    Shutdown,
}

/// Why a node was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Descriptors, memory or threads ran out.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The sandbox forbids memory files.
    #[error("{0}: this sandbox forbids memory files; allow memfd_create in its filter")]
    NoMemoryFiles(Os),
    /// Another thread has shut the node down.
    #[error(transparent)]
    Misuse(Misuse),
    /// Anything else.
    #[error(transparent)]
    Os(Os),
}

impl From<Misuse> for NodeError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

/// Why a port is not served on every CPU. The port is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Fewer receivers are left in the process than it has CPUs.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The caller broke a rule of this library.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Why a wait set was not made, a descriptor not added to it, or a readiness descriptor not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The descriptor is always ready, as a plain file is.
    #[error(
        "the descriptor cannot be waited on: plain files and directories are always ready; read it \
         without waiting"
    )]
    Unpollable,
    /// Descriptors or memory ran out.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The node is that of a forked child's parent, or was shut down.
    #[error(transparent)]
    Misuse(Misuse),
    /// Anything else.
    #[error(transparent)]
    Os(Os),
}

impl From<Misuse> for SetError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

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
            Resource::Os(os)
                if os.call == "epoll_ctl" && os.errno == handfast_sys::Errno::PERM.into() =>
            {
                Self::Unpollable
            }
            Resource::NoMemoryFiles(os) | Resource::Os(os) => Self::Os(os),
        }
    }
}
