//! Sockets between the processes of a simulated machine, and which processes those are.

use super::{PID_FIRST, lock, member, now_ns, pid, random, until};
use core::time::Duration;
use rustix::fd::{AsFd, AsRawFd, RawFd};
use rustix::io::Errno;

/// Whether a message that is sent now is lost.
pub(crate) fn is_lost() -> bool {
    member().is_some_and(|member| {
        let mut state = lock(&member.world.0.state);
        let one_in = state.loses_messages;
        state.is_lost(one_in)
    })
}

/// Waits until a descriptor can be read, or for `timeout`. `false`: it has not, or this is no thread of a world.
pub(crate) fn readable(fd: impl AsFd, timeout: Duration) -> bool {
    let Some(now_ns) = now_ns() else { return false };
    let fd = fd.as_fd().as_raw_fd();
    let until_ns = now_ns.saturating_add(timeout.as_nanos() as u64);
    until(Some(until_ns), move || can_read(fd)) == Some(false)
}

pub(crate) fn can_read(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives during the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// This process has made a socket.
pub(crate) fn made(socket: impl AsFd) {
    let Some(member) = member() else { return };
    if let Ok(stat) = rustix::fs::fstat(&socket) {
        let fd = socket.as_fd().as_raw_fd();
        let mut state = lock(&member.world.0.state);
        state.sockets.retain(|(_, known, _)| *known != fd);
        state.sockets.push((member.process, fd, stat.st_ino));
    }
}

/// This process has received a descriptor.
pub(crate) fn received(fd: impl AsFd) {
    let is_socket =
        |stat: rustix::fs::Stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_socket();
    if rustix::fs::fstat(&fd).is_ok_and(is_socket) {
        made(fd);
    }
}

/// This process listens at a socket: from its `bind` on, or as another process than before.
pub(crate) fn listens(socket: impl AsFd) {
    let Some(member) = member() else { return };
    let Ok(stat) = rustix::fs::fstat(&socket) else {
        return;
    };
    let mut state = lock(&member.world.0.state);
    let name = rustix::net::getsockname(socket);
    let name = name.and_then(rustix::net::SocketAddrUnix::try_from);
    let path = name.as_ref().ok().and_then(|name| name.path());
    let file = path.and_then(|path| rustix::fs::stat(path.as_ref()).ok());
    let file = match state.bound.get(&stat.st_ino) {
        Some(known) => *known,
        None => file.map_or(0, |file| file.st_ino),
    };
    state.bound.insert(stat.st_ino, file);
    state.listeners.insert(file, member.process);
}

/// This process is about to connect to the socket at a path.
pub(crate) fn connects(socket: impl AsFd, path: &std::path::Path) {
    let Some(member) = member() else { return };
    if let (Ok(file), Ok(stat)) = (rustix::fs::stat(path), rustix::fs::fstat(socket)) {
        let mut state = lock(&member.world.0.state);
        if let Some(process) = state.listeners.get(&file.st_ino).copied() {
            state.led.insert(stat.st_ino, process);
        }
    }
}

/// Has the other end of a connection see which process made it.
pub(crate) fn names(socket: impl AsFd) -> Result<(), Errno> {
    let Some(pid) = pid() else { return Ok(()) };
    let number = random(u64::MAX);
    let machine = std::process::id();
    let name = format!("handfast-simulated-{pid}-{number}-{machine}");
    rustix::net::bind(
        socket,
        &rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )
}

/// The process at the other end.
pub(crate) fn peer(socket: impl AsFd) -> Option<u32> {
    let member = member()?;
    let stat = rustix::fs::fstat(&socket).ok()?;
    if let Some(process) = lock(&member.world.0.state).led.get(&stat.st_ino) {
        return Some(PID_FIRST + process);
    }
    let Some(name) = rustix::net::getpeername(socket).ok()? else {
        return pid();
    };
    let name = rustix::net::SocketAddrUnix::try_from(name).ok()?;
    let named = name.abstract_name().and_then(|name| {
        let name = core::str::from_utf8(name).ok()?;
        name.split('-').nth(2)?.parse().ok()
    });
    // A pair of this process's.
    named.or_else(pid)
}
