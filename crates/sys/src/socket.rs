//! Sequenced-packet Unix sockets: rendezvous, identity of the peer, descriptors.

use core::mem::MaybeUninit;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::path::Path;

/// The process at the other end of a connection, as the kernel recorded it when the connection was
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

/// Binds a listening socket to `path`, whose connectors may send no descriptors before the accepted socket is told to
/// [take them](pass_descriptors). `socket`, `setsockopt`, `bind`, `listen`.
///
/// # Errors
/// `EADDRINUSE` when the file exists, `EACCES` without permission for the directory,
/// `ENAMETOOLONG` past [`PATH_BYTES_MAX`] bytes.
pub fn listen(path: &Path, backlog: i32) -> Result<OwnedFd, Errno> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    // Before Linux 6.16 they may.
    let _ = pass_descriptors(&socket, false);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, backlog)?;
    #[cfg(feature = "simulation")]
    {
        crate::simulation::made(&socket);
        crate::simulation::listens(&socket);
    }
    Ok(socket)
}

/// Binds a listening socket to an abstract name, as [`listen`] does to a path. The network namespace keeps the name while the socket is open.
///
/// # Errors
/// `EADDRINUSE` when the name is taken, `ENAMETOOLONG` from [`PATH_BYTES_MAX`] bytes on.
pub fn listen_abstract(name: &[u8], backlog: i32) -> Result<OwnedFd, Errno> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    let _ = pass_descriptors(&socket, false);
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Connects to an abstract name, by a socket that never blocks. Two system calls.
///
/// # Errors
/// `ECONNREFUSED` when nobody has the name, `EAGAIN` while the backlog is full.
pub fn connect_abstract(name: &[u8]) -> Result<OwnedFd, Errno> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
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
    #[cfg(feature = "simulation")]
    crate::simulation::listens(listener.as_fd());
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
    #[cfg(feature = "simulation")]
    if crate::simulation::is_active() {
        crate::simulation::names(&socket)?;
        crate::simulation::made(&socket);
        crate::simulation::connects(&socket, path);
        // Nothing sleeps in the kernel: see `may_come`.
        set_nonblocking(&socket, true)?;
        crate::simulation::pause();
    }
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

/// Takes one waiting connection; does not block. `accept4`, and three system calls for options that the listener hands down: a
/// listener may be another process's as well, and with them each message would bring credentials, a label, or a process
/// descriptor that nobody closes.
///
/// # Errors
/// `EAGAIN` when none waits, `EMFILE`/`ENFILE` without descriptors.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    let socket = rustix::net::accept_with(listener, flags)?;
    #[cfg(feature = "simulation")]
    crate::simulation::made(&socket);
    for option in HANDED_DOWN {
        // A kernel that does not know an option hands none down.
        let _ = set_option(socket.as_fd(), option, false);
    }
    Ok(socket)
}

const SO_PASSPIDFD: libc::c_int = 76;
/// The options that have more received with each message than its bytes and descriptors.
const HANDED_DOWN: [libc::c_int; 3] = [libc::SO_PASSCRED, libc::SO_PASSSEC, SO_PASSPIDFD];

/// Turns an option of a socket on or off.
fn set_option(socket: BorrowedFd<'_>, option: libc::c_int, on: bool) -> Result<(), Errno> {
    let on = libc::c_int::from(on);
    // SAFETY: `on` is valid for reads of its size, which is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(crate::last_errno()),
    }
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

/// Waits until a message has come to a blocking socket whose time is over by the kernel's clock, and not by [`crate::clock`]'s. `false`
/// everywhere but in a simulated machine.
#[must_use]
pub fn may_come(socket: impl AsFd, timeout: core::time::Duration) -> bool {
    #[cfg(feature = "simulation")]
    return crate::simulation::readable(socket, timeout);
    #[cfg(not(feature = "simulation"))]
    {
        let _ = (socket, timeout);
        false
    }
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
    #[cfg(feature = "simulation")]
    if let Some(pid) = crate::simulation::peer(&socket) {
        credentials.pid = pid.cast_signed();
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
    #[cfg(feature = "simulation")]
    crate::simulation::preempt(crate::simulation::CALL_ONE_IN);
    #[cfg(feature = "simulation")]
    if fds.is_empty() && crate::simulation::is_lost() {
        return Ok(());
    }
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
/// length; zero means the peer has closed. Two system calls, three with descriptors. For peers that
/// are trusted with the caller's time: what is refused is closed here.
///
/// # Errors
/// `EAGAIN` when nothing waits on a non-blocking socket or the timeout passed; `EMSGSIZE` for a
/// message longer than `bytes`, which have its beginning then, or with more than `fds_max`
/// descriptors, and the message stays in the queue; `EMFILE` for one with descriptors that this
/// process has no room for. All its descriptors are closed then.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    fds_max: usize,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let socket = socket.as_fd();
    let received = receive_expected(socket, bytes, |_| fds_max)?;
    if received.is_surplus {
        return Err(Errno::MSGSIZE);
    }
    if received.is_short {
        discard(socket)?;
        return Err(Errno::MFILE);
    }
    Ok((received.len_bytes, received.fds))
}

/// One message, and as many of its descriptors as there was room for.
#[derive(Debug)]
pub struct Received {
    /// Its length; zero means the peer has closed, or has sent a message of no bytes, which stays in the queue.
    pub len_bytes: usize,
    /// The first of its descriptors, or all. Closing one may block, whatever it is.
    pub fds: Vec<OwnedFd>,
    /// This process had no room for the others, or may not have them. The message is still at the head of the queue: to take
    /// it away is to close those, which may block ([`discard`]).
    pub is_short: bool,
    /// It has more descriptors than were expected of it. It is still at the head of the queue, as above.
    pub is_surplus: bool,
}

/// Receives one message into `bytes`, with as many descriptors (close-on-exec) as `expected` says of its bytes. Nothing is
/// closed here, so that no descriptor makes the caller wait, whatever it leads to. Two system calls, three with descriptors.
///
/// The message is looked at first and taken away once all that came with it has places of its own.
///
/// # Errors
/// As [`receive`], but `EMFILE`.
pub fn receive_expected(
    socket: impl AsFd,
    bytes: &mut [u8],
    expected: impl FnOnce(&[u8]) -> usize,
) -> Result<Received, Errno> {
    #[cfg(feature = "simulation")]
    crate::simulation::preempt(crate::simulation::CALL_ONE_IN);
    let socket = socket.as_fd();
    let message = look(socket, bytes, &mut RecvAncillaryBuffer::default())?;
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let mut received = Received {
        len_bytes: message.bytes,
        fds: Vec::new(),
        is_short: false,
        is_surplus: false,
    };
    if message.bytes == 0 {
        return Ok(received);
    }
    // Without a place for them, only their being there is told.
    if message.flags.contains(ReturnFlags::CTRUNC) {
        let expected = expected(&bytes[..message.bytes]).min(DESCRIPTORS_MAX);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut is_cut = expected == 0;
        if expected > 0 {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = look(socket, &mut [0], &mut control)?.flags;
            is_cut = flags.contains(ReturnFlags::CTRUNC);
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = part {
                    received.fds.extend(fds);
                }
            }
        }
        received.is_surplus =
            received.fds.len() > expected || is_cut && received.fds.len() == expected;
        received.is_short = is_cut && !received.is_surplus;
        if received.is_surplus || received.is_short {
            return Ok(received);
        }
    }
    #[cfg(feature = "simulation")]
    received.fds.iter().for_each(crate::simulation::received);
    // All its descriptors are this process's by now: none is closed by this. A peer that has gone resets the connection, which is
    // said once, before what it sent.
    if discard(socket) == Err(Errno::CONNRESET) {
        let _ = discard(socket);
    }
    Ok(received)
}

/// The next message, which stays where it is.
fn look(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
) -> Result<rustix::net::RecvMsg, Errno> {
    let flags = RecvFlags::PEEK.union(RecvFlags::CMSG_CLOEXEC);
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], control, flags)
}

/// Takes the next message away, and closes the descriptors that came with it, which may block for as long as their maker likes.
/// One system call.
///
/// # Errors
/// As [`receive_expected`].
pub fn discard(socket: impl AsFd) -> Result<(), Errno> {
    let mut byte = [0];
    let mut control = RecvAncillaryBuffer::default();
    let mut bytes = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut bytes, &mut control, RecvFlags::DONTWAIT)?;
    Ok(())
}

/// Whether others may send descriptors to this socket, or to those accepted from it; without it their attempts fail with
/// `EPERM`, so that none can lie in its queue. `SO_PASSRIGHTS`; one system call.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.16, where all sockets take them.
pub fn pass_descriptors(socket: impl AsFd, on: bool) -> Result<(), Errno> {
    const SO_PASSRIGHTS: libc::c_int = 83;
    set_option(socket.as_fd(), SO_PASSRIGHTS, on)
}

/// Whether the other end has received all that was sent to it. `ioctl(SIOCOUTQ)`.
#[must_use]
pub fn is_all_read(socket: impl AsFd) -> bool {
    let mut unread: libc::c_int = 0;
    // SAFETY: `unread` is valid for writes, and what this request writes is one `int`.
    let result =
        unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    result == 0 && unread == 0
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

/// Sends one byte, or nothing where there is no room: the peer has bytes to read then. One system call, never blocks, whatever the peer does with the
/// socket; never raises `SIGPIPE`.
pub fn ring(socket: impl AsFd, byte: u8) {
    let _ = rustix::net::send(socket, &[byte], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// The byte of the next message, which is taken. One system call, never blocks.
pub fn rung(socket: impl AsFd) -> Option<u8> {
    let mut byte = [0];
    match rustix::net::recv(socket, &mut byte[..], RecvFlags::DONTWAIT) {
        Ok((1.., _)) => Some(byte[0]),
        _ => None,
    }
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
mod tests;
