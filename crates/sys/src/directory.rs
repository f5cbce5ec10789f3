//! The rendezvous directory.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Uid;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// Locks a directory until the returned descriptor is closed. Any process that can read the directory can hold this lock: it is
/// for directories of one user ([`Turn`] is for others). `open`, `flock`; waits at most about a second for another holder.
///
/// # Errors
/// `EAGAIN` when another process held the lock all the time.
pub fn lock(path: &Path) -> Result<OwnedFd, Errno> {
    let directory = open(path, OFlags::empty())?;
    wait_for(&directory)?;
    Ok(directory)
}

/// This process's turn among the processes of its user that change a directory, and a place in there that other users cannot
/// reach. Until it is dropped.
///
/// The place is a directory for its user alone, made once for each user, and the lock is a file in it: other users can
/// neither hold that lock nor change what lies beside it, whatever they may do in the directory around it.
#[derive(Debug)]
pub struct Turn {
    place: OwnedFd,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Turn {
    /// Waits for it, at most about a second. `mkdir`, `open` twice, `fstat`, `flock`.
    ///
    /// # Errors
    /// `EAGAIN` when another process of this user held the lock all the time; `EEXIST` when other users have taken all names
    /// for this user's place; `EACCES` or `EPERM` without permission for the directory.
    pub fn take(directory: &Path) -> Result<Self, Errno> {
        let user = rustix::process::geteuid();
        for number in 0..PLACES {
            let path = directory.join(place_of(user.as_raw(), number));
            create(&path)?;
            let place = match open(&path, OFlags::NOFOLLOW) {
                Ok(place) if is_of(&place, user)? => place,
                // Another user was there first.
                Ok(_) | Err(Errno::ACCESS | Errno::LOOP | Errno::NOTDIR) => continue,
                Err(errno) => return Err(errno),
            };
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = rustix::fs::openat(&place, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
            wait_for(&lock)?;
            return Ok(Self {
                place,
                path,
                _lock: lock,
            });
        }
        Err(Errno::EXIST)
    }

    /// The path of a file in the place. It may lead elsewhere by now; the other functions do not go by it.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// As that, as short as can be; for as long as this turn. Needs `/proc`.
    #[must_use]
    pub fn short_path(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{file}", self.place.as_raw_fd()))
    }

    /// Removes a file in the place. `unlinkat`.
    ///
    /// # Errors
    /// `ENOENT` when there is none.
    pub fn remove(&self, file: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.place, file, AtFlags::empty())
    }

    /// Lets everybody who has a [descriptor](Self::path_of) of a socket in the place connect to it. `fchmodat`.
    ///
    /// # Errors
    /// `ENOENT` when there is none.
    pub fn open_to_all(&self, file: &str) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::chmodat(&self.place, file, mode, AtFlags::empty())
    }

    /// A descriptor that stands for a file in the place and can do nothing but be connected to, if it is a socket
    /// (`/proc/self/fd`). `openat` with `O_PATH`.
    ///
    /// # Errors
    /// `ENOENT` when there is none, `EMFILE` without descriptors.
    pub fn path_of(&self, file: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
        rustix::fs::openat(&self.place, file, flags, Mode::empty())
    }
}

/// The name of a user's place: no port's socket is called so, nor anything that becomes one.
#[must_use]
pub fn place_of(user: u32, number: u32) -> String {
    match number {
        0 => format!("{PLACE}{user}"),
        number => format!("{PLACE}{user}-{number}"),
    }
}

/// The prefix of names of places.
pub const PLACE: &str = "~~";
/// So many names for a user's place are tried where other users have taken the first ones.
const PLACES: u32 = 8;
const LOCK: &str = "lock";

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Whether a directory is the user's, and nobody else's.
fn is_of(directory: &OwnedFd, user: Uid) -> Result<bool, Errno> {
    let status = rustix::fs::fstat(directory)?;
    let others = Mode::RWXG.union(Mode::RWXO);
    Ok(status.st_uid == user.as_raw() && !Mode::from_raw_mode(status.st_mode).intersects(others))
}

fn wait_for(file: &OwnedFd) -> Result<(), Errno> {
    let deadline_ns = crate::clock::now_ns() + 1_000_000_000;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) if crate::clock::now_ns() < deadline_ns => crate::clock::nap(),
            other => return other,
        }
    }
}

/// Files of this user in a directory whose names begin so. `open`, `getdents`, `fstatat` for each; nothing for a
/// directory that cannot be read.
#[must_use]
pub fn own_files(directory: &Path, beginning: &str) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(beginning.as_bytes())
    });
    let own = named.filter(|entry| entry.metadata().is_ok_and(|status| status.uid() == user));
    own.map(|entry| entry.path()).collect()
}

/// Removes a file. `unlink`.
///
/// # Errors
/// `ENOENT` when there is none, `EACCES` or `EPERM` without permission for the directory.
pub fn remove(path: &Path) -> Result<(), Errno> {
    rustix::fs::unlink(path)
}

/// Gives a file another name, in one step for any observer; an earlier file of that name is replaced.
/// `rename`.
///
/// # Errors
/// `EACCES` or `EPERM` without permission for the directory, `EISDIR` when a directory has the name.
pub fn rename(from: &Path, to: &Path) -> Result<(), Errno> {
    rustix::fs::rename(from, to)
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests;
