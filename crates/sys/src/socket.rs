//! Sequenced-packet Unix sockets: rendezvous, identity of the peer, descriptors.

use core::mem::MaybeUninit;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::path::Path;

/// Who is at the other end of a connection, as the kernel recorded it when the connection was
/// made (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id, as seen from this pid namespace; 0 when it has none here.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
}

/// Longest path of a socket.
pub const PATH_BYTES_MAX: usize = 108;

/// Binds a listening socket to `path`. `socket`, `bind`, `listen`.
///
/// # Errors
/// `EADDRINUSE` when the file exists, `EACCES` without permission for the directory,
/// `ENAMETOOLONG` past [`PATH_BYTES_MAX`] bytes.
pub fn listen(path: &Path, backlog: i32) -> Result<OwnedFd, Errno> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Whether it is a Unix socket of messages that listens.
#[must_use]
pub fn is_listener(socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    rustix::net::sockopt::socket_acceptconn(socket) == Ok(true) && is_of_messages(socket)
}

/// Whether it is a Unix socket of messages.
#[must_use]
pub fn is_of_messages(socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    rustix::net::sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
        && rustix::net::sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
}

/// Makes this process the one that listens: connectors are told its identity from now on. `listen`.
///
/// # Errors
/// None for a [listener](is_listener).
pub fn listen_again(listener: impl AsFd, backlog: i32) -> Result<(), Errno> {
    rustix::net::listen(listener, backlog)
}

/// Connects to the socket at `path`, at the longest for `timeout`, which then bounds every operation
/// that blocks on it. `socket`, `setsockopt`, `connect`; may block while the backlog is full.
///
/// # Errors
/// `ENOENT` without such a file, `ECONNREFUSED` when nobody listens, `EACCES` without permission,
/// `EPROTOTYPE` for a socket of another type, `EAGAIN` when the backlog stays full.
pub fn connect(path: &Path, timeout: core::time::Duration) -> Result<OwnedFd, Errno> {
    let socket = new_socket(SocketFlags::empty())?;
    let address = SocketAddrUnix::new(path)?;
    let deadline_ns = crate::clock::deadline_ns(timeout);
    loop {
        let left_ns = deadline_ns.saturating_sub(crate::clock::now_ns());
        set_timeout(&socket, core::time::Duration::from_nanos(left_ns))?;
        match rustix::net::connect(&socket, &address) {
            // A signal; nothing has been started.
            Err(Errno::INTR) => {}
            other => {
                other?;
                set_timeout(&socket, timeout)?;
                return Ok(socket);
            }
        }
    }
}

/// Takes one waiting connection; does not block. `accept4`.
///
/// # Errors
/// `EAGAIN` when none waits, `EMFILE`/`ENFILE` without descriptors.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK))
}

/// Makes a socket non-blocking or blocking again.
///
/// # Errors
/// None in practice.
pub fn set_nonblocking(socket: impl AsFd, on: bool) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(socket, on)
}

/// Bounds how long one operation blocks; none is the shortest the kernel knows. `SO_RCVTIMEO`,
/// `SO_SNDTIMEO`.
///
/// # Errors
/// None in practice.
pub fn set_timeout(socket: impl AsFd, timeout: core::time::Duration) -> Result<(), Errno> {
    let socket = socket.as_fd();
    // Zero would mean for ever.
    let timeout = timeout.max(core::time::Duration::from_micros(1));
    for which in [
        rustix::net::sockopt::Timeout::Recv,
        rustix::net::sockopt::Timeout::Send,
    ] {
        rustix::net::sockopt::set_socket_timeout(socket, which, Some(timeout))?;
    }
    Ok(())
}

/// The other end's identity. `getsockopt(SO_PEERCRED)`.
///
/// # Errors
/// None on a connected Unix socket.
pub fn peer(socket: impl AsFd) -> Result<Peer, Errno> {
    // Read with libc: a pid of 0 (a peer outside this pid namespace) is not representable in the
    // typed wrapper.
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` and `len` are valid for writes and `len` gives the size of the former.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(crate::last_errno());
    }
    Ok(Peer {
        pid: credentials.pid.cast_unsigned(),
        uid: credentials.uid,
    })
}

/// A descriptor of the other end's process, readable when that process ends. `SO_PEERPIDFD`.
///
/// # Errors
/// `ENOPROTOOPT` before kernel 6.5, `EINVAL`/`ESRCH` when the process has gone.
pub fn peer_pidfd(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `fd` and `len` are valid for writes and `len` gives the size of the former.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if result != 0 || fd < 0 {
        return Err(crate::last_errno());
    }
    // SAFETY: the kernel just made this descriptor for us and nobody else knows it.
    Ok(unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(fd) })
}

/// Most descriptors one message carries here.
pub const DESCRIPTORS_MAX: usize = 4;

/// Sends one message with descriptors. One system call; never raises `SIGPIPE`.
///
/// # Errors
/// `EPIPE` when the peer has gone, `EAGAIN` when a non-blocking socket is full, `ETOOMANYREFS`.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives one message into `bytes`, with its descriptors (close-on-exec), and returns its
/// length; zero means the peer has closed. One system call. Descriptors over `fds_max` are closed.
///
/// # Errors
/// `EAGAIN` when nothing waits on a non-blocking socket or the timeout passed; `EMSGSIZE` for a
/// message longer than `bytes`, which have its beginning then, or with more than
/// [`DESCRIPTORS_MAX`] descriptors; `EMFILE` for one with descriptors that this process has no room
/// for. All its descriptors are closed then.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    fds_max: usize,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut received = receive_some(socket, bytes)?;
    if received.is_short {
        return Err(Errno::MFILE);
    }
    received.fds.truncate(fds_max);
    Ok((received.len_bytes, received.fds))
}

/// One message, and as many of its descriptors as there was room for.
#[derive(Debug)]
pub struct Received {
    /// Its length; zero means the peer has closed.
    pub len_bytes: usize,
    /// The first of its descriptors, or all.
    pub fds: Vec<OwnedFd>,
    /// This process had no room for the others, or may not have them. The kernel closed them.
    pub is_short: bool,
}

/// As [`receive`], also of a message whose descriptors this process has no room for. One system
/// call.
///
/// # Errors
/// As [`receive`], but `EMFILE`.
pub fn receive_some(socket: impl AsFd, bytes: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    let is_short = message.flags.contains(ReturnFlags::CTRUNC);
    // The kernel stops at the first that it cannot place: no room here, or no number left.
    let is_surplus = is_short && fds.len() >= DESCRIPTORS_MAX;
    if is_surplus || message.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok(Received {
        len_bytes: message.bytes,
        fds,
        is_short,
    })
}

/// Whether the other end has been closed or shut down. One system call, never blocks.
pub fn is_closed(socket: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut asked = [PollFd::new(&socket, PollFlags::RDHUP)];
    poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Closes both directions at once; the peer sees end-of-file. `shutdown`.
pub fn shutdown(socket: impl AsFd) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// A connected pair, for tests and for links inside one process.
///
/// # Errors
/// `EMFILE`/`ENFILE` without descriptors.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC.union(flags),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no sequenced-packet sockets")]
    fn messages_keep_their_bounds_and_descriptors() {
        let (a, b) = pair().unwrap();
        let (c, _d) = pair().unwrap();
        send(&a, b"one", &[c.as_fd()]).unwrap();
        send(&a, b"two", &[]).unwrap();
        let mut bytes = [0; 16];
        let (len, fds) = receive(&b, &mut bytes, 4).unwrap();
        assert_eq!((&bytes[..len], fds.len()), (&b"one"[..], 1));
        let (len, fds) = receive(&b, &mut bytes, 4).unwrap();
        assert_eq!((&bytes[..len], fds.len()), (&b"two"[..], 0));
        assert!(!is_closed(&b));
        shutdown(&a);
        assert!(is_closed(&b));
        drop(a);
        assert_eq!(receive(&b, &mut bytes, 4).unwrap().0, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no sequenced-packet sockets")]
    fn the_kernel_names_the_peer() {
        let (a, _b) = pair().unwrap();
        let own = Peer {
            pid: std::process::id(),
            uid: crate::process::uid(),
        };
        assert_eq!(peer(&a), Ok(own));
    }
}
