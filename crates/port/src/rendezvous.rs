//! Names in the file system: where a port's socket lies, and taking over a dead server's.

use crate::error::{BindError, Found, Os, Resource};
use handfast_layout::name;
use handfast_sys::directory::Turn;
use handfast_sys::{AsFd, AsRawFd, Errno, OwnedFd, process, socket};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of the names of the [global node](crate::Node::global): `$HANDFAST_DIR`, else `$XDG_RUNTIME_DIR/handfast`, else `/run/handfast`. An empty variable counts
/// as not set, and so does each in a set-user-id program. Permissions on the directory, and bind mounts of it, are the access
/// control.
///
/// The first [`bind`](crate::bind) makes the directory, for its owner alone; its parent directory must exist. For clients of other users,
/// make the directory beforehand, with permissions for them; they also need write permission for the server's socket in it, which
/// the server's umask limits. Reads the environment; no system call.
#[must_use]
pub fn directory() -> PathBuf {
    let set = |variable| process::variable(variable).filter(|value| !value.is_empty());
    if let Some(directory) = set("HANDFAST_DIR") {
        return directory.into();
    }
    set("XDG_RUNTIME_DIR").map_or_else(
        || PathBuf::from(DIRECTORY),
        |runtime| PathBuf::from(runtime).join("handfast"),
    )
}

/// The directory where nothing else is said.
pub(crate) const DIRECTORY: &str = "/run/handfast";

/// Connections that may wait for the control thread.
pub(crate) const BACKLOG: i32 = 128;

/// How long the look at a name's present server may take.
const PROBE_TIMEOUT: core::time::Duration = core::time::Duration::from_millis(200);

/// As `PROBE_TIMEOUT`, for a socket that has moved here: its backlog has just been emptied.
const MOVED_TIMEOUT: core::time::Duration = core::time::Duration::from_millis(1);

/// Whether the process that called `listen` on the other end has ended: a child that it forked may have
/// inherited the socket, and the kernel goes on taking connections that will never be accepted. When in doubt
/// (before kernel 6.5 a process number used again; a process out of sight), it lives.
fn is_orphaned(probe: &OwnedFd) -> bool {
    match socket::peer_pidfd(probe) {
        Ok(pidfd) => process::has_ended(&pidfd),
        // The process has ended and been waited for.
        Err(Errno::INVAL | Errno::SRCH) => true,
        Err(_) => match socket::peer(probe) {
            Ok(peer) if peer.pid != 0 => match process::pidfd(peer.pid) {
                Ok(pidfd) => process::has_ended(&pidfd),
                Err(errno) => errno == Errno::SRCH,
            },
            _ => false,
        },
    }
}

/// The kind of file at `path`, links not followed.
pub(crate) fn found_at(path: &Path) -> Option<Found> {
    let kind = std::fs::symlink_metadata(path).ok()?.file_type();
    Some(if kind.is_socket() {
        Found::Socket
    } else if kind.is_dir() {
        Found::Directory
    } else if kind.is_symlink() {
        Found::Link
    } else {
        Found::File
    })
}

/// A bound socket's file: where it is, and what tells it from one bound there later.
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// The file of a socket just bound to `name`.
    pub(crate) fn of(directory: &Path, name: &str) -> Self {
        let path = directory.join(name);
        let identity = Self::identity_of(&path);
        Self { path, identity }
    }

    /// The file of a socket that has come with its port, at which this process listens since. It counts only if
    /// it leads to this process: the peer's description of a file may fit another's, and names may lie
    /// elsewhere here. A file that does not count stays when the port ends, as a dead server's does.
    pub(crate) fn moved(directory: &Path, name: &str, identity: (u64, u64)) -> Self {
        let found = Self::of(directory, name);
        let own = |peer: socket::Peer| peer.pid == std::process::id();
        let leads_here = found.identity == Some(identity)
            && socket::connect(&found.path, MOVED_TIMEOUT)
                .and_then(socket::peer)
                .is_ok_and(own);
        Self {
            identity: found.identity.filter(|_| leads_here),
            ..found
        }
    }

    /// None: a socket without a name.
    pub(crate) fn none() -> Self {
        Self {
            path: PathBuf::new(),
            identity: None,
        }
    }

    /// Device and inode; zeros when it was gone from the beginning.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity.unwrap_or_default()
    }

    fn identity_of(path: &Path) -> Option<(u64, u64)> {
        let found = std::fs::symlink_metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    }

    /// Removes it, if it is still the one.
    pub(crate) fn remove(&self) {
        if self.identity.is_some() && Self::identity_of(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds the socket of `name` in a directory, replacing one whose server is dead. The socket is already listening when it
/// appears under that name, so that its server is not taken for dead.
pub(crate) fn listen(directory: &Path, name: &str) -> Result<OwnedFd, BindError> {
    name::check(name).map_err(BindError::BadName)?;
    let path = directory.join(name);
    let no_directory = |call| {
        let path = &path;
        move |errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN => BindError::Directory {
                path: directory.to_owned(),
                os: Os {
                    call,
                    errno: errno.into(),
                },
            },
            _ => failed(call, path, errno),
        }
    };
    handfast_sys::directory::create(directory).map_err(no_directory("mkdir"))?;
    // Binders take turns, so that two of them cannot both find the old socket dead and replace each other's new one.
    // The kernel ends the turn with its holder. Other users' binders need none: they cannot replace this user's sockets where the
    // directory is sticky, and can do anything where it is not.
    let _turn = take_turn(directory, no_directory("flock"))?;
    remove_unfinished(directory);
    check_free(name, &path)?;
    let unfinished = unfinished_path_of(directory, name);
    match found_at(&unfinished) {
        None => {}
        // Another user's.
        Some(Found::Socket) if is_dead(&unfinished) => handfast_sys::directory::remove(&unfinished)
            .map_err(|errno| failed("unlink", &unfinished, errno))?,
        Some(found) => {
            let path = unfinished;
            return Err(BindError::Foreign { path, found });
        }
    }
    let listener = socket::listen(&unfinished, BACKLOG);
    let listener = listener.map_err(|errno| failed("bind", &path, errno))?;
    if let Err(errno) = handfast_sys::directory::rename(&unfinished, &path) {
        let _ = handfast_sys::directory::remove(&unfinished);
        return Err(failed("rename", &path, errno));
    }
    Ok(listener)
}

/// This process's turn to change the directory.
fn take_turn(directory: &Path, failed: impl Fn(Errno) -> BindError) -> Result<Turn, BindError> {
    Turn::take(directory).map_err(|errno| {
        let user = process::uid();
        let path = directory.join(handfast_sys::directory::place_of(user, 0));
        match found_at(&path) {
            Some(found) if errno == Errno::EXIST => BindError::Foreign { path, found },
            _ => failed(errno),
        }
    })
}

/// Removes the sockets of binders of this user that were killed before they gave them their names. It is this process's
/// turn, so that no binder is at work; sockets with a listener stay nevertheless.
fn remove_unfinished(directory: &Path) {
    for path in handfast_sys::directory::own_files(directory, UNFINISHED) {
        if found_at(&path) == Some(Found::Socket) && is_dead(&path) {
            crate::guest::tell!(
                info,
                ?path,
                "removing the socket of a binder that was killed"
            );
            let _ = handfast_sys::directory::remove(&path);
        }
    }
}

/// Whether no process listens at a socket any more.
fn is_dead(path: &Path) -> bool {
    match socket::connect(path, PROBE_TIMEOUT) {
        Ok(probe) => is_orphaned(&probe),
        Err(errno) => errno == Errno::CONNREFUSED,
    }
}

/// Makes a listening socket without a name, and the descriptor by which its holder may connect to it. The
/// socket is made in the rendezvous directory, where other users cannot reach it, and taken out at once. It is open to other
/// users only where that is said.
pub(crate) fn nameless(directory: &Path, to_all: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    const DOOR: &str = "door";
    handfast_sys::directory::create(directory)?;
    let turn = Turn::take(directory)?;
    // Left by a process that was killed here.
    let _ = turn.remove(DOOR);
    let listener = match socket::listen(&turn.path(DOOR), BACKLOG) {
        Err(Errno::NAMETOOLONG) => socket::listen(&turn.short_path(DOOR), BACKLOG),
        other => other,
    }?;
    let opened = match to_all {
        true => turn.open_to_all(DOOR),
        false => Ok(()),
    };
    let door = opened.and_then(|()| turn.path_of(DOOR));
    turn.remove(DOOR)?;
    Ok((listener, door?))
}

/// Where a door that was got from another process is connected to.
pub(crate) fn path_of_door(door: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", door.as_fd().as_raw_fd()))
}

/// Where the socket of `name` is made. No port is called so, and the path is as long as the port's.
fn unfinished_path_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{UNFINISHED}{}", &name[1..]))
}

/// The prefix of unfinished sockets; no port's name begins with it.
const UNFINISHED: &str = "~";

/// Refuses a name that a live server has, and one where something lies that is no dead server's.
fn check_free(name: &str, path: &Path) -> Result<(), BindError> {
    let taken_by = |pid| BindError::NameTaken {
        name: name.to_owned(),
        pid,
    };
    let probe = socket::connect(path, PROBE_TIMEOUT);
    match (&probe, found_at(path)) {
        (Ok(probe), _) if !is_orphaned(probe) => {
            Err(taken_by(socket::peer(probe).map_or(0, |peer| peer.pid)))
        }
        // Its queue of connections is full: a server is there.
        (Err(Errno::AGAIN), _) => Err(taken_by(0)),
        (Ok(_) | Err(Errno::CONNREFUSED | Errno::NOENT), Some(Found::Socket)) => {
            crate::guest::tell!(info, name, "taking over the socket of a dead server");
            Ok(())
        }
        // Not ours to replace.
        (
            Ok(_) | Err(Errno::CONNREFUSED | Errno::NOENT | Errno::LOOP | Errno::PROTOTYPE),
            Some(found),
        ) => Err(BindError::Foreign {
            path: path.to_owned(),
            found,
        }),
        (Ok(_) | Err(Errno::CONNREFUSED | Errno::NOENT), None) => Ok(()),
        (Err(errno), _) => Err(failed("connect", path, *errno)),
    }
}

fn failed(call: &'static str, path: &Path, errno: Errno) -> BindError {
    let path = path.to_owned();
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => BindError::Permission { path },
        Errno::NAMETOOLONG => BindError::PathTooLong { path },
        _ => Resource::of(call, errno).into(),
    }
}
