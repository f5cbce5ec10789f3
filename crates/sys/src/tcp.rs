//! Connected stream sockets of the kernel.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// How many bytes a stream socket has to read. `ioctl(FIONREAD)`.
///
/// # Errors
/// `ENOTTY` for another descriptor.
pub fn unread_bytes(socket: impl AsFd) -> Result<usize, Errno> {
    let bytes = rustix::io::ioctl_fionread(socket)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Sends bytes through a stream socket, as many as there is room for. One system call, never blocks, never raises `SIGPIPE`.
///
/// # Errors
/// `EAGAIN` without room, `EPIPE`, `ECONNRESET`.
pub fn send_now(socket: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}
