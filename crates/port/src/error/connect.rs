//! Errors of names: binding them and connecting to them.

use super::{Exhausted, Gone, Misuse, Os, Resource, SendError};
use core::time::Duration;
use handfast_layout::name::BadName;
use handfast_sys::error::Errno;
use handfast_sys::socket;
use std::path::{Path, PathBuf};

/// Why a name could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The name cannot be a port name.
    #[error(transparent)]
    BadName(BadName),
    /// A live server has the name.
    #[error("{}", taken(.name, *.pid))]
    NameTaken {
        /// The name.
        name: String,
        /// The server's process; zero if it cannot be seen from here.
        pid: u32,
    },
    /// No permission for the rendezvous directory.
    #[error("no permission to make {}; set XDG_RUNTIME_DIR or HANDFAST_DIR to a directory of yours", .path.display())]
    Permission {
        /// The file that could not be made.
        path: PathBuf,
    },
    /// The rendezvous directory does not exist and cannot be made, or another program keeps it locked.
    #[error("{}", no_directory(.path, .os.errno))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The call that failed.
        os: Os,
    },
    /// A file that no server left behind is in the socket's place.
    #[error("{}", foreign(.path, *.found))]
    Foreign {
        /// Where.
        path: PathBuf,
        /// The kind of file found.
        found: Found,
    },
    /// The path of the socket is longer than the kernel takes.
    #[error("{}", path_too_long(.path))]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// Descriptors, memory or ports ran out.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
    /// The sandbox forbids memory files.
    #[error("{0}: this sandbox forbids memory files; allow memfd_create in its filter")]
    NoMemoryFiles(Os),
    /// Anything else.
    #[error(transparent)]
    Os(Os),
}

/// The kind of file found where the socket of a port should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// A directory.
    Directory,
    /// A file, device or pipe.
    File,
    /// A symbolic link that leads to no live socket.
    Link,
    /// A socket of a kind that handfast does not make.
    Socket,
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name cannot be a port name.
    #[error(transparent)]
    BadName(BadName),
    /// No server has bound the name.
    #[error("no server has bound the name {name:?} ({} does not exist); start it first", .path.display())]
    NoSuchName {
        /// The name.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The server of the name has ended and left its socket file.
    #[error("the server of {name:?} has ended and left its socket behind; start it again")]
    ServerDead {
        /// The name.
        name: String,
    },
    /// No permission to connect.
    #[error(
        "no permission to connect to {}; the user of the server must allow writing to that socket, and searching its \
         directory",
        .path.display()
    )]
    Permission {
        /// The socket.
        path: PathBuf,
    },
    /// The two releases share no layout version.
    #[error(
        "the server speaks layout version {theirs} and this program version {ours}; update the older of the two"
    )]
    Version {
        /// Ours.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// A resource ran out, at the server or in this process.
    #[error(transparent)]
    Exhausted(Exhausted),
    /// The server did not answer the handshake in time, or this thread's turn did not come in time.
    #[error(
        "no connection to {name:?} within {limit:?}: its server is stopped or overloaded, or other \
         threads of this process connect to it; look at the server or allow more time"
    )]
    TimedOut {
        /// The name.
        name: String,
        /// How long it was given.
        limit: Duration,
    },
    /// The file at the name's path is not a port's socket.
    #[error("{}", foreign(.path, *.found))]
    Foreign {
        /// Where.
        path: PathBuf,
        /// The kind of file found.
        found: Found,
    },
    /// The path that should be the directory of all names, or one above it, is a file.
    #[error("{}", no_directory(.path, handfast_sys::Errno::NOTDIR.into()))]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The path of the socket is longer than the kernel takes.
    #[error("{}", path_too_long(.path))]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The other end is not handfast, breaks the handshake's rules, or ends each connection without an answer.
    #[error(
        "the handshake with the server of {name:?} failed: {what}; see which program has bound that name"
    )]
    Handshake {
        /// The name.
        name: String,
        /// The failed check.
        what: &'static str,
    },
    /// The right is revoked, or its port is gone ([`OwnRight::connect`](crate::OwnRight::connect)).
    #[error("{}", SendError::Gone(*.0))]
    Gone(Gone),
    /// A mistake of the caller.
    #[error(transparent)]
    Misuse(Misuse),
    /// The sandbox forbids memory files.
    #[error("{0}: this sandbox forbids memory files; allow memfd_create in its filter")]
    NoMemoryFiles(Os),
    /// Anything else.
    #[error(transparent)]
    Os(Os),
}

impl From<Misuse> for BindError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

impl From<Misuse> for ConnectError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
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

impl From<Resource> for ConnectError {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Exhausted(exhausted) => Self::Exhausted(exhausted),
            Resource::NoMemoryFiles(os) => Self::NoMemoryFiles(os),
            Resource::Os(os) => Self::Os(os),
        }
    }
}

fn taken(name: &str, pid: u32) -> String {
    match pid {
        0 => format!(
            "the name {name:?} is taken by a live process that cannot be seen from here; choose another or end it"
        ),
        pid => format!(
            "the name {name:?} is taken by the live process {pid}; choose another or end it"
        ),
    }
}

fn foreign(path: &Path, found: Found) -> String {
    let what = match found {
        Found::Directory => "a directory",
        Found::File => "a file",
        Found::Link => "a symbolic link that leads to no live socket",
        Found::Socket => "a socket of another kind, which handfast did not make",
    };
    format!(
        "{} is {what}, where the port's socket would be; move it away, or choose another name or HANDFAST_DIR",
        path.display()
    )
}

fn no_directory(path: &Path, errno: Errno) -> String {
    let path = path.display();
    let is = |known: handfast_sys::Errno| errno == known.into();
    if is(handfast_sys::Errno::AGAIN) {
        return format!(
            "another program keeps the directory {path} locked; end it, or set HANDFAST_DIR to another directory"
        );
    }
    let why = match is(handfast_sys::Errno::NOTDIR) {
        true => "is a file or lies below one".into(),
        false => format!("is not there and cannot be made ({errno})"),
    };
    format!(
        "the directory of all names, {path}, {why}; set XDG_RUNTIME_DIR or HANDFAST_DIR to a directory of yours"
    )
}

fn path_too_long(path: &Path) -> String {
    format!(
        "the socket's path {} is {} bytes long and the limit is {}; shorten the name or choose a shorter HANDFAST_DIR",
        path.display(),
        path.as_os_str().len(),
        socket::PATH_BYTES_MAX
    )
}
