//! The rendezvous directory.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// Creates the directory, for its owner alone, if it is not there. `mkdir`.
///
/// # Errors
/// `EACCES` without permission for the parent, `ENOENT` without a parent.
pub fn create(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Locks the directory until the returned descriptor is closed. `open`, `flock`; waits at most
/// about a second for another holder.
///
/// # Errors
/// `EAGAIN` when another process held the lock all the time.
pub fn lock(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY
        .union(OFlags::DIRECTORY)
        .union(OFlags::CLOEXEC);
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let deadline_ns = crate::clock::now_ns() + 1_000_000_000;
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) if crate::clock::now_ns() < deadline_ns => crate::clock::nap(),
            other => return other.map(|()| directory),
        }
    }
}

/// Removes a file. `unlink`.
///
/// # Errors
/// `ENOENT` when there is none, `EACCES` or `EPERM` without permission for the directory.
pub fn remove(path: &Path) -> Result<(), Errno> {
    rustix::fs::unlink(path)
}

/// Gives a file another name, in one step for whoever looks; what had that name is replaced.
/// `rename`.
///
/// # Errors
/// `EACCES` or `EPERM` without permission for the directory, `EISDIR` when a directory has the name.
pub fn rename(from: &Path, to: &Path) -> Result<(), Errno> {
    rustix::fs::rename(from, to)
}

/// A descriptor that stands for the file and can do nothing but be connected to, if it is a socket
/// (`/proc/self/fd`). `open` with `O_PATH`.
///
/// # Errors
/// `ENOENT` when there is none, `EMFILE` without descriptors.
pub fn path_of(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    rustix::fs::open(path, flags, Mode::empty())
}

/// Lets everybody who can reach the socket connect to it. `chmod`.
///
/// # Errors
/// `EPERM` when it is another's.
pub fn open_to_all(path: &Path) -> Result<(), Errno> {
    rustix::fs::chmod(path, Mode::from_raw_mode(0o666))
}
