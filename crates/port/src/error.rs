//! What can go wrong, by operation, and what to do about it.
//!
//! Errors are ordered by who must act: the caller's own mistake ([`Misuse`]), a limit
//! ([`Exhausted`]), the peer ([`Gone`], [`PeerFault`]), the system ([`Os`]).

pub use crate::right::RightError;
use core::fmt;
use core::time::Duration;
use handfast_layout::name::BadName;
use handfast_ring::Fault;
pub use handfast_ring::Rule;
use handfast_sys::{Errno, socket};
use std::path::{Path, PathBuf};

/// How a peer went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its process ended or closed the link.
    Process,
    /// The process lives; the port's receive right was dropped.
    Port,
    /// The server dropped the reply right of this call unused.
    Reply,
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
        f.write_str("; its link has been cut")
    }
}

/// A limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// What ran out.
    pub what: &'static str,
    /// How many there are.
    pub limit: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of {} (limit {})", self.what, self.limit)
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
pub enum Misuse {
    /// The handle was made before a `fork` and is used in the child.
    Forked,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forked => f.write_str(
                "this handle was made before fork() and does not work in the child; bind or \
                 connect again there",
            ),
        }
    }
}

/// Why a name could not be bound.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The name cannot be a port name.
    BadName(BadName),
    /// A live server has the name.
    NameTaken {
        /// The name.
        name: String,
        /// The server's process, where it can be seen.
        pid: u32,
    },
    /// No permission for the rendezvous directory.
    Permission {
        /// The file that could not be made.
        path: PathBuf,
    },
    /// There is no rendezvous directory and it cannot be made, or another program keeps it locked.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The call that failed.
        os: Os,
    },
    /// Something that no server left behind lies where the socket would be.
    Foreign {
        /// Where.
        path: PathBuf,
        /// What it is.
        found: Found,
    },
    /// The path of the socket is longer than the kernel takes.
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// Descriptors, memory or ports ran out.
    Exhausted(Exhausted),
    /// The sandbox forbids memory files.
    NoMemoryFiles(Os),
    /// Anything else.
    Os(Os),
}

/// What lies where the socket of a port should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// A directory.
    Directory,
    /// A file, device or pipe.
    File,
    /// A symbolic link that leads to no live socket.
    Link,
    /// A socket that is not of the kind handfast makes.
    Socket,
}

/// Why a connection was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name cannot be a port name.
    BadName(BadName),
    /// Nobody has bound the name.
    NoSuchName {
        /// The name.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The server of the name has ended and left its socket file.
    ServerDead {
        /// The name.
        name: String,
    },
    /// No permission to connect.
    Permission {
        /// The socket.
        path: PathBuf,
    },
    /// The two releases share no layout version.
    Version {
        /// Ours.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The server refused for want of something, or we ran out of it here.
    Exhausted(Exhausted),
    /// The server did not answer the handshake in time, or it was not this thread's turn.
    TimedOut {
        /// The name.
        name: String,
        /// How long it was given.
        limit: Duration,
    },
    /// What lies at the name's path is no port's socket.
    Foreign {
        /// Where.
        path: PathBuf,
        /// What it is.
        found: Found,
    },
    /// The path of the socket is longer than the kernel takes.
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// Not handfast at the other end, or a peer that breaks the handshake's rules.
    Handshake(&'static str),
    /// The sandbox forbids memory files.
    NoMemoryFiles(Os),
    /// Anything else.
    Os(Os),
}

/// Why a message was not sent, or a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than [`MESSAGE_BYTES_MAX`](handfast_layout::MESSAGE_BYTES_MAX).
    TooLong {
        /// Its length.
        len_bytes: usize,
    },
    /// The queue is full (or all reply slots are taken), and the operation may not wait.
    Full,
    /// The deadline passed. A message may have been delivered; a late reply is dropped.
    TimedOut,
    /// The peer is gone. A call in flight may or may not have been served.
    Gone(Gone),
    /// The peer broke a rule.
    Fault(PeerFault),
    /// A limit of the link was reached.
    Exhausted(Exhausted),
    /// The message's rights cannot be sent.
    Right(RightError),
    /// A mistake of the caller.
    Misuse(Misuse),
}

/// Why a plain queue was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The kind cannot have this capacity: it is zero, over the limit, or no power of two where
    /// the kind needs one.
    Capacity {
        /// Most messages.
        limit: u32,
    },
    /// The descriptors are not those of a queue of this kind and capacity.
    Other,
    /// So many processes have it open already.
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

/// Why a wait set was not made, or a descriptor not added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetError {
    /// The descriptor is one that is always ready, such as a plain file.
    Unpollable,
    /// Descriptors or memory ran out.
    Exhausted(Exhausted),
    /// Anything else.
    Os(Os),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Nothing waits, and the operation may not wait either.
    Empty,
    /// The deadline passed.
    TimedOut,
    /// A mistake of the caller.
    Misuse(Misuse),
}

/// Why a reply went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// The message is longer than [`MESSAGE_BYTES_MAX`](handfast_layout::MESSAGE_BYTES_MAX). The
    /// reply right is handed back unused inside the caller's error path: the call ends as
    /// [`Gone::Reply`].
    TooLong {
        /// Its length.
        len_bytes: usize,
    },
    /// The caller's process is gone.
    Gone,
    /// The message was one-way: nobody waits for a reply.
    NotACall,
    /// The reply's rights cannot be sent. The call ends as [`Gone::Reply`].
    Right(RightError),
    /// A mistake of the caller.
    Misuse(Misuse),
}

fn too_long(f: &mut fmt::Formatter<'_>, len_bytes: usize) -> fmt::Result {
    let limit = handfast_layout::MESSAGE_BYTES_MAX;
    write!(
        f,
        "the message is {len_bytes} bytes long and the limit is {limit}; split it"
    )
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(bad) => bad.fmt(f),
            Self::NameTaken { name, pid } => write!(
                f,
                "the name {name:?} is taken by the live process {pid}; choose another or end it"
            ),
            Self::Permission { path } => write!(
                f,
                "no permission to make {}; set XDG_RUNTIME_DIR or HANDFAST_DIR to a directory of yours",
                path.display()
            ),
            Self::Directory { path, os } if os.errno == Errno::AGAIN => write!(
                f,
                "another program keeps the directory {} locked; end it, or set HANDFAST_DIR to \
                 another directory",
                path.display()
            ),
            Self::Directory { path, os } => write!(
                f,
                "the directory of all names, {}, is not there and cannot be made ({}); set \
                 XDG_RUNTIME_DIR or HANDFAST_DIR to a directory of yours",
                path.display(),
                os.errno
            ),
            Self::Foreign { path, found } => foreign(f, path, *found),
            Self::PathTooLong { path } => path_too_long(f, path),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::NoMemoryFiles(os) => no_memory_files(f, os),
            Self::Os(os) => os.fmt(f),
        }
    }
}

fn foreign(f: &mut fmt::Formatter<'_>, path: &Path, found: Found) -> fmt::Result {
    let what = match found {
        Found::Directory => "a directory",
        Found::File => "a file",
        Found::Link => "a symbolic link that leads to no live socket",
        Found::Socket => "a socket of another kind, which handfast did not make",
    };
    write!(
        f,
        "{} is {what}, and the port's socket would be there; move it away, or choose another name \
         or HANDFAST_DIR",
        path.display()
    )
}

fn path_too_long(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    write!(
        f,
        "the socket's path {} is {} bytes long and the limit is {}; shorten the name or choose a \
         shorter HANDFAST_DIR",
        path.display(),
        path.as_os_str().len(),
        socket::PATH_BYTES_MAX
    )
}

fn no_memory_files(f: &mut fmt::Formatter<'_>, os: &Os) -> fmt::Result {
    write!(
        f,
        "{os}: this sandbox forbids memory files; allow memfd_create in its filter"
    )
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(bad) => bad.fmt(f),
            Self::NoSuchName { name, path } => write!(
                f,
                "no server has bound the name {name:?} ({} does not exist); start it first",
                path.display()
            ),
            Self::ServerDead { name } => write!(
                f,
                "the server of {name:?} has ended (its socket is left behind); start it again"
            ),
            Self::Permission { path } => {
                write!(f, "no permission to connect to {}", path.display())
            }
            Self::Version { ours, theirs } => write!(
                f,
                "the server speaks layout version {theirs} and this program version {ours}; \
                 update the older of the two"
            ),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::TimedOut { name, limit } => write!(
                f,
                "no connection to {name:?} within {limit:?}: its server is stopped or overloaded, or \
                 other connections of this process take long; look at the server or allow more time"
            ),
            Self::Foreign { path, found } => foreign(f, path, *found),
            Self::PathTooLong { path } => path_too_long(f, path),
            Self::Handshake(what) => write!(f, "the handshake failed: {what}"),
            Self::NoMemoryFiles(os) => no_memory_files(f, os),
            Self::Os(os) => os.fmt(f),
        }
    }
}

/// Not all of many messages were sent. The first [`sent`](Self::sent) of them were, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// How many were sent.
    pub sent: usize,
    /// Why the next one was not.
    pub error: SendError,
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} messages were sent: {}", self.sent, self.error)
    }
}

impl std::error::Error for Unsent {}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len_bytes } => too_long(f, *len_bytes),
            Self::Full => f.write_str("the queue is full; try again or use a blocking form"),
            Self::TimedOut => f.write_str("the deadline passed"),
            Self::Gone(Gone::Process) => f.write_str("the peer's process is gone"),
            Self::Gone(Gone::Port) => f.write_str("the port is gone: its receiver was dropped"),
            Self::Gone(Gone::Reply) => f.write_str("the server dropped the call without a reply"),
            Self::Fault(fault) => fault.fmt(f),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::Right(right) => right.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no message waits"),
            Self::TimedOut => f.write_str("the deadline passed"),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
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
                    "{limit} processes, the limit, have the queue open already"
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
            Self::Os(os) => os.fmt(f),
        }
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len_bytes } => too_long(f, *len_bytes),
            Self::Gone => f.write_str("the caller's process is gone"),
            Self::NotACall => f.write_str("the message was one-way and takes no reply"),
            Self::Right(right) => right.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}
impl std::error::Error for ConnectError {}
impl std::error::Error for SendError {}
impl std::error::Error for ReceiveError {}
impl std::error::Error for ReplyError {}
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
                what: "descriptors of the system",
                limit: 0,
            }),
            Errno::NOMEM | Errno::NOSPC => Self::Exhausted(Exhausted {
                what: "memory",
                limit: 0,
            }),
            Errno::NOSYS | Errno::PERM if call == "memfd_create" => {
                Self::NoMemoryFiles(Os { call, errno })
            }
            _ => Self::Os(Os { call, errno }),
        }
    }
}

impl From<Resource> for BindError {
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

impl From<Resource> for ConnectError {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Exhausted(exhausted) => Self::Exhausted(exhausted),
            Resource::NoMemoryFiles(os) => Self::NoMemoryFiles(os),
            Resource::Os(os) => Self::Os(os),
        }
    }
}
