//! One attempt at a connection: the connector's side of a handshake.

use super::{Attempt, Limit, failed, open};
use crate::error::{ConnectError, Exhausted, Resource};
use crate::link::connection::PeerProcess;
use crate::link::group::Reserved;
use crate::link::{Link, Parts, doorbell};
use crate::peer_bells::{PeerBells, map_peer_bells};
use crate::port::ports;
use crate::process::Process;
use crate::turns::{Turn, Turns};
use crate::users::Foreign;
use crate::{link_life, links, per_cpu};
use handfast_layout::control::ControlMessage;
use handfast_layout::hello::{Hello, Malformed, Status, WELCOME_BYTES, Welcome, parse_ready};
use handfast_layout::link::{REGION_BYTES, Side};
use handfast_layout::{LAYOUT_VERSION, bell};
use handfast_proto::users::Quota;
use handfast_region::Region;
use handfast_sys::memory::{Access, Mapping, is_sealed};
use handfast_sys::socket::Peer;
use handfast_sys::{AsFd, Errno, OwnedFd, shared, socket};
use std::path::Path;
use std::sync::Arc;

/// Maps the memory that a server of user `uid` has offered, checked and sealed.
fn map_offer(
    (name, uid): (&str, u32),
    (region_fd, bells_fd): (Foreign, Foreign),
    place: &Reserved,
    limit: Limit,
) -> Result<(Region, PeerBells), ConnectError> {
    if !shared::is_sized(&region_fd, REGION_BYTES).unwrap_or(false)
        || !is_sealed(&bells_fd, bell::REGION_BYTES).unwrap_or(false)
    {
        return Err(failed(name, "the server's memory is not sealed"));
    }
    let mapping = Mapping::new(&region_fd, REGION_BYTES, Access::ReadWrite);
    let mapping = mapping.map_err(|errno| match errno {
        // Another has sealed it.
        Errno::PERM => failed(name, "the server's memory cannot be sealed"),
        errno => Resource::of("mmap", errno).into(),
    })?;
    let peer_bells = map_peer_bells(&bells_fd, uid)?;
    seal_region(name, &region_fd, uid, limit)?;
    // Memory files, which close at once.
    drop((region_fd.into_inner(), bells_fd.into_inner()));
    let mut region = Region::mapped(mapping);
    if place.group().is_foreign {
        region = region.making_pages();
        let (at, len_bytes) = Side::Connector.header();
        region.make(at, len_bytes);
    }
    Ok((region, peer_bells))
}

/// One handshake.
pub(super) fn attempt(
    process: &Arc<Process>,
    (name, path): (&str, &Path),
    may_be: impl Fn(u32) -> bool,
    limit: Limit,
) -> Result<Attempt, ConnectError> {
    let socket = open(name, path, limit)?;
    let os = |errno| ConnectError::from(Resource::of("getsockopt", errno));
    let peer = socket::peer(&socket).map_err(os)?;
    if !may_be(peer.uid) {
        return Err(failed(name, "a process of another user"));
    }
    let pidfd = socket::peer_pidfd(&socket).ok();
    let socket = Foreign::new(&process.users, peer.uid, socket);
    // Only links to a process known to be another one are shared. The turns are kept to the end.
    let _asking = turn_at(links::asking(process), peer, (name, limit))?;
    let incarnation = match until_ready((name, path), &socket, limit)? {
        Ok(incarnation) => incarnation,
        Err(told) => return Ok(told),
    };
    // Not before: while the server is not ready, which may be long, it can make a link with this process, too.
    let turn = turn_at(links::connecting(process), peer, (name, limit))?;
    // A process may have several nodes, with an incarnation each.
    let is_it = |link: &Link| link.peer == peer && link.incarnation == incarnation;
    let known = turn.as_ref().and_then(|_| links::hold_link(process, is_it));
    let place = ports::reserve(process, peer.uid)?;
    let by = known.as_ref().map(|link| doorbell::peer_index(link));
    let hello = Hello::new(process.incarnation, name, place.index(), by);
    let outcome = greet((&hello, path), &socket, place.fd(), limit)?;
    let (welcome, fds) = match outcome {
        Some((welcome, fds)) if welcome.status == Status::Linked => (welcome, fds),
        None => return Ok(Attempt::Unanswered),
        Some((welcome, _)) if welcome.status == Status::Crossed => return Ok(Attempt::Again),
        Some((welcome, _)) => {
            // By the link that the hello has named.
            let link = known.filter(|_| welcome.incarnation == incarnation);
            return Ok(link.map_or(Attempt::Again, |link| Attempt::Linked(link, welcome)));
        }
    };
    if links::is_borrowed(
        process,
        welcome.incarnation,
        (peer, pidfd.as_ref().map(AsFd::as_fd)),
    ) {
        return Err(failed(name, "the server says that it is another process"));
    }
    let by = (socket, pidfd, peer);
    take_offer(process, (name, limit), by, (place, welcome, fds))
}

/// Makes the link that a server offers, and says so.
fn take_offer(
    process: &Arc<Process>,
    (name, limit): (&str, Limit),
    (socket, pidfd, peer): (Foreign, Option<OwnedFd>, Peer),
    (place, welcome, fds): (Reserved, Welcome, Vec<Foreign>),
) -> Result<Attempt, ConnectError> {
    let Ok([region_fd, bells_fd]) = <[Foreign; 2]>::try_from(fds) else {
        return Err(failed(name, "the server sent no memory"));
    };
    let (region, peer_bells) = map_offer((name, peer.uid), (region_fd, bells_fd), &place, limit)?;
    if !is_concluded(name, &socket, limit)? {
        return Ok(Attempt::Unanswered);
    }
    let os = |errno| ConnectError::from(Resource::of("ioctl", errno));
    socket::set_nonblocking(&socket, true).map_err(os)?;
    let link = link_life::add_link(
        process,
        Parts {
            agreed: process.agreed,
            region,
            calls: Side::Connector,
            peer_bells,
            peer_index: welcome.link,
            place,
            socket,
            process: pidfd.map(|pidfd| PeerProcess::new(pidfd, None)),
            charges: Vec::new(),
            peer,
            incarnation: welcome.incarnation,
        },
    )?;
    per_cpu::tell_spread(process, &link);
    // Another thread may have used it, and let go of it: the right in the welcome is given back then.
    let held = links::hold_any(process, |known| known.serial == link.serial);
    Ok(held.map_or(Attempt::Again, |link| Attempt::Linked(link, welcome)))
}

/// Makes sure that neither side takes pages of the link region away: a thread that touches them then would wait for that.
/// The server, which has the file as well, can make this take long: so it runs in a thread that only other work of that
/// user waits for.
fn seal_region(
    name: &str,
    region_fd: &Foreign,
    server_uid: u32,
    limit: Limit,
) -> Result<(), ConnectError> {
    let cannot = |_: Errno| failed(name, "the server's memory cannot be sealed");
    // A server that may stop this process anyway need not be feared.
    if server_uid == 0 || server_uid == handfast_sys::process::uid() {
        return shared::seal(region_fd).map_err(cannot);
    }
    let own = handfast_sys::duplicate(region_fd).map_err(|errno| Resource::of("dup", errno))?;
    // The descriptor counts against the server's user until the region is sealed, however early this thread
    // goes on.
    let own = region_fd.charged_beside(own).ok_or_else(|| {
        Resource::Exhausted(Exhausted {
            what: "descriptors in handshakes with servers of one user",
            advice: Some("connect again later"),
            limit: region_fd.users().limit(Quota::Descriptors),
        })
    })?;
    let (sender, sealed) = std::sync::mpsc::channel();
    region_fd.users().expend(server_uid, move || {
        let _ = sender.send(shared::seal(&own));
        // A memory file, which closes at once.
        drop(own.into_inner());
    });
    match sealed.recv_timeout(limit.left()) {
        Ok(sealed) => sealed.map_err(cannot),
        Err(_) => Err(limit.passed(name)),
    }
}

/// Says that the region is sealed, and waits until the server has made the link. `false` when it ended the connection
/// instead.
fn is_concluded(name: &str, socket: &Foreign, limit: Limit) -> Result<bool, ConnectError> {
    let sealed = ControlMessage::Sealed.encode();
    let mut bytes = [0; 2];
    let mut fds = Vec::new();
    let said = within(limit, socket, || socket::send(socket, &sealed, &[]));
    match said.and_then(|()| hear(socket, (&mut bytes, 0), &mut fds, limit)) {
        Ok(len) if len == bytes.len() && bytes == *sealed && fds.is_empty() => Ok(true),
        Ok(0) => Ok(false),
        Ok(_) => Err(failed(name, "the server did not make the link")),
        Err(errno) => Ok(unanswered::<()>(errno, name, limit)?.is_some()),
    }
}

/// A turn of this thread's, where the peer is known to be another process.
fn turn_at<'a>(
    turns: &'a Turns<Peer>,
    peer: Peer,
    (name, limit): (&str, Limit),
) -> Result<Option<Turn<'a, Peer>>, ConnectError> {
    let wait = || turns.wait_until(peer, limit.deadline_ns);
    match links::is_another(peer).then(wait) {
        Some(None) => Err(limit.passed(name)),
        turn => Ok(turn.flatten()),
    }
}

/// Waits until the server is ready, and has said who it is. Or returns what else it says, or that it ended the connection.
fn until_ready(
    (name, path): (&str, &Path),
    socket: &Foreign,
    limit: Limit,
) -> Result<Result<[u8; 16], Attempt>, ConnectError> {
    let mut bytes = [0; WELCOME_BYTES + 1];
    // A server that cannot serve us refuses before it reads.
    let len = match hear(socket, (&mut bytes, WELCOME_FDS), &mut Vec::new(), limit) {
        Ok(len) => len,
        Err(error) => {
            return unanswered::<()>(error, name, limit).map(|_| Err(Attempt::Unanswered));
        }
    };
    if len == 0 {
        return Ok(Err(Attempt::Unanswered));
    }
    let ready = parse_ready(&bytes[..len]).map_err(|malformed| misunderstood(name, malformed))?;
    if let Some(incarnation) = ready {
        return Ok(Ok(incarnation));
    }
    let welcome = read((name, path), &bytes[..len])?;
    match welcome.status {
        Status::Crossed => Ok(Err(Attempt::Again)),
        _ => Err(failed(name, "a welcome before the hello")),
    }
}

/// Says hello and reads the welcome. `None` when the server ended the connection without an answer.
fn greet(
    (hello, path): (&Hello, &Path),
    socket: &Foreign,
    bells: &OwnedFd,
    limit: Limit,
) -> Result<Option<(Welcome, Vec<Foreign>)>, ConnectError> {
    let name = hello.name.as_str();
    let mut bytes = [0; WELCOME_BYTES + 1];
    let mut fds = Vec::new();
    let told = within(limit, socket, || {
        socket.send(&hello.to_bytes(), &[bells.as_fd()])
    });
    // A server that has refused meanwhile has answered already.
    if let Err(errno) = told
        && !matches!(errno, Errno::PIPE | Errno::CONNRESET)
    {
        return match errno {
            Errno::AGAIN => Err(limit.passed(name)),
            errno => Err(Resource::of("sendmsg", errno).into()),
        };
    }
    let len = match hear(socket, (&mut bytes, WELCOME_FDS), &mut fds, limit) {
        Ok(len) => len,
        Err(error) => return unanswered(error, name, limit),
    };
    if len == 0 {
        return Ok(None);
    }
    Ok(Some((read((name, path), &bytes[..len])?, fds)))
}

/// Reads a welcome, and turns refusals into errors.
fn read((name, path): (&str, &Path), bytes: &[u8]) -> Result<Welcome, ConnectError> {
    let welcome = Welcome::parse(bytes).map_err(|malformed| misunderstood(name, malformed))?;
    match welcome.status {
        Status::Linked | Status::Known | Status::Crossed => Ok(welcome),
        Status::Version => Err(ConnectError::Version {
            ours: LAYOUT_VERSION,
            theirs: welcome.version,
        }),
        Status::NoSuchPort => Err(ConnectError::NoSuchName {
            name: name.to_owned(),
            path: path.to_owned(),
        }),
        Status::Exhausted => Err(ConnectError::Exhausted(Exhausted {
            what: "descriptors, memory, links or rights of the server",
            advice: Some(
                "drop rights to it, end some of its clients, or raise its RLIMIT_NOFILE or quotas",
            ),
            limit: welcome.limit.into(),
        })),
        Status::Malformed => Err(failed(
            name,
            "the server could not read this program's hello",
        )),
    }
}

/// Reads one message of the handshake. Whatever the server has sent with it, this thread closes none of it.
fn hear(
    socket: &Foreign,
    (bytes, fds_max): (&mut [u8], usize),
    fds: &mut Vec<Foreign>,
    limit: Limit,
) -> Result<usize, Errno> {
    let mut read = || {
        within(limit, socket, || {
            socket::receive_expected(socket, bytes, |_| fds_max)
        })
    };
    let mut received = read();
    if matches!(received, Err(Errno::CONNRESET)) {
        // A server that refuses before it reads resets the connection behind its answer, and the
        // kernel reports the reset, once, before the answer.
        received = read();
    }
    match received {
        Ok(received) if received.is_short => {
            fds.extend(received.fds.into_iter().map(|fd| socket.beside(fd)));
            Err(Errno::MFILE)
        }
        Ok(received) => {
            fds.extend(received.fds.into_iter().map(|fd| socket.beside(fd)));
            Ok(received.len_bytes)
        }
        // Perhaps a server of another release.
        Err(Errno::MSGSIZE) => Ok(bytes.len()),
        Err(errno) => Err(errno),
    }
}

/// Descriptors of a welcome: the link's region and the server's bells.
const WELCOME_FDS: usize = 2;

pub(super) fn unanswered<T>(
    errno: Errno,
    name: &str,
    limit: Limit,
) -> Result<Option<T>, ConnectError> {
    match errno {
        Errno::PIPE | Errno::CONNRESET => Ok(None),
        Errno::AGAIN => Err(limit.passed(name)),
        errno => Err(Resource::of("recvmsg", errno).into()),
    }
}

fn misunderstood(name: &str, malformed: Malformed) -> ConnectError {
    match malformed {
        Malformed::Version { theirs } => ConnectError::Version {
            ours: LAYOUT_VERSION,
            theirs,
        },
        Malformed::NotHandfast => failed(name, "not handfast at the other end"),
        Malformed::Field(field) => failed(name, field),
    }
}

/// Makes a blocking call on `socket` that ends within the limit, again when a signal handler has
/// interrupted it: with a timeout on the socket the kernel does not, whatever the handler's flags.
pub(super) fn within<T>(
    limit: Limit,
    socket: &Foreign,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        socket::set_timeout(socket, limit.left())?;
        match call() {
            Err(Errno::INTR) if !limit.left().is_zero() => {}
            Err(Errno::INTR) => return Err(Errno::AGAIN),
            Err(Errno::AGAIN) if socket::may_come(socket, limit.left()) => {}
            other => return other,
        }
    }
}
