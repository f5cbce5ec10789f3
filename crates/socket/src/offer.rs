//! How the two ends find each other: an abstract socket name beside the listener's address, and what is said there.
//!
//! ```text
//! connector -> acceptor   version, 4 | port, 2 | zero, 2 | address, 16
//! acceptor -> connector   version, 4                                       with the region, and a socket
//! either way              'r': there are bytes; by the other socket, there is room
//! either way              'l': the reader has left the ring, with bytes in it
//! ```
//!
//! The address is the connector's, by which the acceptor knows the connection; IPv4 as mapped into IPv6. The acceptor makes the memory, so that nothing
//! but bytes comes from whoever connects. The connector says in the region that it has mapped it. Both sockets stay, and tell of the other process's end.

use crate::rank;
use core::net::{Ipv6Addr, SocketAddr};
use handfast_layout::stream::{REGION_BYTES, VERSION};
use handfast_sys::memory::{Access, Mapping};
use handfast_sys::socket;
use handfast_sys::sync::Mutex;
use handfast_sys::{AsFd, Errno, OwnedFd, process, shared};
use std::collections::HashMap;

const ASKED_BYTES: usize = 24;
/// Askers that wait for their connections; more are dropped, and those connections stay with the kernel.
const ASKERS_MAX: usize = 256;
/// Askers that have not said yet for which connection.
const SILENT_MAX: usize = 64;
const BACKLOG: i32 = 128;

/// The name at which the listener of an address is asked.
pub(crate) fn name(of: SocketAddr) -> Vec<u8> {
    let (address, port) = (of.ip().to_canonical(), of.port());
    format!(
        "handfast-stream-{VERSION}/{}/{address}/{port}",
        process::uid()
    )
    .into_bytes()
}

fn encode(from: SocketAddr) -> [u8; ASKED_BYTES] {
    let mut bytes = [0; ASKED_BYTES];
    bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
    bytes[4..6].copy_from_slice(&from.port().to_le_bytes());
    bytes[8..].copy_from_slice(&mapped(from).octets());
    bytes
}

const fn mapped(of: SocketAddr) -> Ipv6Addr {
    match of {
        SocketAddr::V4(of) => of.ip().to_ipv6_mapped(),
        SocketAddr::V6(of) => *of.ip(),
    }
}

/// Whose connection it is.
type From = (Ipv6Addr, u16);

fn decode(bytes: [u8; ASKED_BYTES]) -> Option<From> {
    let [v0, v1, v2, v3, p0, p1, 0, 0, ref address @ ..] = bytes else {
        return None;
    };
    let version = u32::from_le_bytes([v0, v1, v2, v3]);
    (version == VERSION).then(|| (Ipv6Addr::from(*address), u16::from_le_bytes([p0, p1])))
}

/// The things that both ends hold of a connection beside the kernel's socket.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) region: OwnedFd,
    pub(crate) mapping: Mapping,
    /// Wakes the threads that read.
    pub(crate) to_readers: OwnedFd,
    /// Wakes the threads that write.
    pub(crate) to_writers: OwnedFd,
}

/// Asks the listener at `to` for memory, for the connection from `from`. Four system calls, and two for each name that nobody has.
///
/// # Errors
/// `ECONNREFUSED` where nobody gives any; `EPERM` where that is another user.
pub(crate) fn ask(to: SocketAddr, from: SocketAddr) -> Result<OwnedFd, Errno> {
    let asked = find(to)?;
    if socket::peer(&asked)?.uid != process::uid() {
        return Err(Errno::PERM);
    }
    socket::send(&asked, &encode(from), &[])?;
    Ok(asked)
}

/// Acceptor: makes memory, and gives it to the one that has asked. Seven system calls.
///
/// # Errors
/// The errors of a process without memory or descriptors; `EPIPE`.
pub(crate) fn give(to_readers: OwnedFd) -> Result<Offer, Errno> {
    let region = shared::create("handfast-stream", REGION_BYTES)?;
    // Before the connector has it: that seals it.
    let mapping = Mapping::new(&region, REGION_BYTES, Access::ReadWrite)?;
    let (to_writers, theirs) = socket::pair()?;
    let descriptors = [region.as_fd(), theirs.as_fd()];
    socket::send(&to_readers, &VERSION.to_le_bytes(), &descriptors)?;
    Ok(Offer {
        region,
        mapping,
        to_readers,
        to_writers,
    })
}

/// Connector: what it was given, by the socket that is put into the offer. `EAGAIN`: nothing yet.
///
/// # Errors
/// `EPIPE`: the peer gives none; `EPROTO`: it is no honest one.
pub(crate) fn given(asked: &OwnedFd) -> Result<Offer, Errno> {
    let mut bytes = [0; 4];
    let (len_bytes, descriptors) = socket::receive(asked, &mut bytes, 2)?;
    if len_bytes == 0 {
        return Err(Errno::PIPE);
    }
    let descriptors: [OwnedFd; 2] = descriptors.try_into().map_err(|_| Errno::PROTO)?;
    let [region, to_writers] = descriptors;
    let is_sized = shared::is_sized(&region, REGION_BYTES)?;
    let is_right =
        is_sized && socket::is_of_messages(&to_writers) && bytes == VERSION.to_le_bytes();
    is_right.then_some(()).ok_or(Errno::PROTO)?;
    let mapping = Mapping::new(&region, REGION_BYTES, Access::ReadWrite)?;
    // Neither takes pages away from the other from now on.
    shared::seal(&region)?;
    Ok(Offer {
        region,
        mapping,
        to_readers: handfast_sys::duplicate(asked)?,
        to_writers,
    })
}

/// The listener may have bound all addresses.
fn find(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let any_v4 = SocketAddr::new(core::net::Ipv4Addr::UNSPECIFIED.into(), to.port());
    let any_v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), to.port());
    let names = [to, any_v6, any_v4].map(name);
    let mut found = Err(Errno::CONNREFUSED);
    for name in names {
        found = socket::connect_abstract(&name);
        if !matches!(found, Err(Errno::CONNREFUSED)) {
            break;
        }
    }
    found
}

/// Where the streams of one listener find who has asked for them.
#[derive(Debug)]
pub(crate) struct Askers {
    listener: OwnedFd,
    waiting: Mutex<Waiting, rank::Askers>,
}

#[derive(Debug, Default)]
struct Waiting {
    known: HashMap<From, OwnedFd>,
    silent: Vec<OwnedFd>,
}

impl Askers {
    /// For the listener of this address.
    ///
    /// # Errors
    /// `EADDRINUSE`: another listener of the address takes them.
    pub(crate) fn new(of: SocketAddr) -> Result<Self, Errno> {
        Ok(Self {
            listener: socket::listen_abstract(&name(of), BACKLOG)?,
            waiting: Mutex::default(),
        })
    }

    /// The socket of the one that has asked for the connection from this address. One system call where nobody has, and one for each that waits for another
    /// connection: those that have gone are let go of.
    pub(crate) fn take(&self, from: SocketAddr) -> Option<OwnedFd> {
        let mut waiting = self.waiting.lock();
        let mut silent = core::mem::take(&mut waiting.silent);
        while silent.len() < SILENT_MAX
            && let Ok(socket) = socket::accept(&self.listener)
        {
            if socket::peer(&socket).is_ok_and(|peer| peer.uid == process::uid()) {
                silent.push(socket);
            }
        }
        for socket in silent {
            let mut bytes = [0; ASKED_BYTES];
            match socket::receive(&socket, &mut bytes, 0) {
                Err(Errno::AGAIN) => waiting.silent.push(socket),
                Ok((ASKED_BYTES, _)) => {
                    if let Some(from) = decode(bytes) {
                        waiting.enter(from, socket);
                    }
                }
                _ => {}
            }
        }
        let found = waiting.known.remove(&(mapped(from), from.port()));
        waiting.known.retain(|_, socket| !socket::is_closed(socket));
        found
    }
}

impl Waiting {
    fn enter(&mut self, from: From, socket: OwnedFd) {
        if self.known.len() < ASKERS_MAX {
            self.known.insert(from, socket);
        }
    }
}
