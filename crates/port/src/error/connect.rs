//! Errors of names: binding them and connecting to them.

use super::{Exhausted, Gone, Misuse, Os, Resource, SendError, no_memory_files};
use core::fmt;
use core::time::Duration;
use handfast_layout::name::BadName;
use handfast_sys::{Errno, socket};
use std::path::{Path, PathBuf};

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
        /// The server's process; zero if it cannot be seen from here.
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
    /// Something not left behind by a server lies where the socket would be.
    Foreign {
        /// Where.
        path: PathBuf,
        /// The kind of file found.
        found: Found,
    },
    /// The path of the socket is longer than the kernel takes.
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// Descriptors, memory or ports ran out.
    Exhausted(Exhausted),
    /// A mistake of the caller.
    Misuse(Misuse),
    /// The sandbox forbids memory files.
    NoMemoryFiles(Os),
    /// Anything else.
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
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name cannot be a port name.
    BadName(BadName),
    /// No server has bound the name.
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
    /// A resource ran out, at the server or here.
    Exhausted(Exhausted),
    /// The server did not answer the handshake in time, or this thread's turn did not come in time.
    TimedOut {
        /// The name.
        name: String,
        /// How long it was given.
        limit: Duration,
    },
    /// The file at the name's path is not a port's socket.
    Foreign {
        /// Where.
        path: PathBuf,
        /// The kind of file found.
        found: Found,
    },
    /// The path that should be the directory of all names, or one above it, is a file.
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The path of the socket is longer than the kernel takes.
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The other end is not handfast, or breaks the handshake's rules.
    Handshake {
        /// The name.
        name: String,
        /// The failed check.
        what: &'static str,
    },
    /// The right is revoked, or its port is gone ([`OwnRight::connect`](crate::OwnRight::connect)).
    Gone(Gone),
    /// A mistake of the caller.
    Misuse(Misuse),
    /// The sandbox forbids memory files.
    NoMemoryFiles(Os),
    /// Anything else.
    Os(Os),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(bad) => bad.fmt(f),
            Self::NameTaken { name, pid: 0 } => write!(
                f,
                "the name {name:?} is taken by a live process that cannot be seen from here; choose \
                 another or end it"
            ),
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
            Self::Directory { path, os } => no_directory(f, path, os.errno),
            Self::Foreign { path, found } => foreign(f, path, *found),
            Self::PathTooLong { path } => path_too_long(f, path),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::NoMemoryFiles(os) => no_memory_files(f, os),
            Self::Os(os) => os.fmt(f),
        }
    }
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
            Self::Permission { path } => write!(
                f,
                "no permission to connect to {}; its server's user has to allow writing to it, and going into \
                 its directory",
                path.display()
            ),
            Self::Version { ours, theirs } => write!(
                f,
                "the server speaks layout version {theirs} and this program version {ours}; \
                 update the older of the two"
            ),
            Self::Exhausted(exhausted) => exhausted.fmt(f),
            Self::TimedOut { name, limit } => write!(
                f,
                "no connection to {name:?} within {limit:?}: its server is stopped or overloaded, or \
                 other threads of this process connect to it; look at the server or allow more time"
            ),
            Self::Foreign { path, found } => foreign(f, path, *found),
            Self::Directory { path } => no_directory(f, path, Errno::NOTDIR),
            Self::PathTooLong { path } => path_too_long(f, path),
            Self::Handshake { name, what } => write!(
                f,
                "the handshake with the server of {name:?} failed: {what}; see which program has bound \
                 that name"
            ),
            Self::Gone(gone) => SendError::Gone(*gone).fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::NoMemoryFiles(os) => no_memory_files(f, os),
            Self::Os(os) => os.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}
impl std::error::Error for ConnectError {}

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

fn no_directory(f: &mut fmt::Formatter<'_>, path: &Path, errno: Errno) -> fmt::Result {
    let path = path.display();
    match errno {
        Errno::NOTDIR => write!(
            f,
            "the directory of all names, {path}, is a file or lies below one"
        ),
        errno => write!(
            f,
            "the directory of all names, {path}, is not there and cannot be made ({errno})"
        ),
    }?;
    f.write_str("; set XDG_RUNTIME_DIR or HANDFAST_DIR to a directory of yours")
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
