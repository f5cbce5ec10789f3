//! Connecting: the asking half of the handshake.

use crate::error::{ConnectError, Exhausted, Resource};
use crate::keeper::map_peer_bells;
use crate::link::{Link, Parts};
use crate::options::Options;
use crate::process::{self, Process};
use crate::rendezvous;
use crate::send::SendRight;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_layout::hello::{Hello, Malformed, Status, WELCOME_BYTES, Welcome};
use handfast_layout::link::{REGION_BYTES, Side};
use handfast_layout::{LAYOUT_VERSION, name};
use handfast_region::Region;
use handfast_sys::memory::{Access, Mapping, is_sealed};
use handfast_sys::{AsFd, Errno, OwnedFd, clock, socket};
use std::sync::{Arc, PoisonError};

/// How long a server may take to answer a handshake.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts when the link thought to exist ends meanwhile.
const ATTEMPTS: u32 = 3;

/// Connects to the port bound as `name`, with default options. See [`connect_with`].
///
/// # Errors
/// As [`connect_with`].
pub fn connect(name: &str) -> Result<SendRight, ConnectError> {
    connect_with(name, Options::new())
}

/// Connects to the port bound as `name` and returns a right to send to it.
///
/// The first connection to a process makes a link (a socket, a process descriptor, a sealed
/// region of which only touched pages exist); further ones share it. Blocks for the handshake, at
/// most five seconds. The options say how this right's callers wait for replies.
///
/// # Errors
/// Each failure of [`ConnectError`] says what to do.
pub fn connect_with(name: &str, options: Options) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    let process = process::current()?;
    // One connection at a time, so that two threads cannot make two links to one process.
    let one = &process::Locks::own().connecting;
    let _one = one.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..ATTEMPTS {
        if let Some((link, welcome)) = attempt(&process, name)? {
            let at = (welcome.receiver, welcome.port);
            let right = SendRight::new(process.clone(), link, at, options);
            // The last other right to a shared link may have gone meanwhile, and the link with it.
            if !right.is_down() {
                return Ok(right);
            }
        }
    }
    Err(ConnectError::Handshake(
        "the link to the server ended again and again",
    ))
}

/// One handshake; `None` when the link it relied on has ended.
fn attempt(
    process: &Arc<Process>,
    name: &str,
) -> Result<Option<(Arc<Link>, Welcome)>, ConnectError> {
    let path = rendezvous::path_of(name);
    let socket = socket::connect(&path, WELCOME_TIMEOUT).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => ConnectError::NoSuchName {
            name: name.to_owned(),
            path: path.clone(),
        },
        Errno::CONNREFUSED => ConnectError::ServerDead {
            name: name.to_owned(),
        },
        Errno::ACCESS | Errno::PERM => ConnectError::Permission { path: path.clone() },
        Errno::PROTOTYPE | Errno::NOTSOCK => ConnectError::Handshake("not a handfast socket"),
        Errno::AGAIN => ConnectError::TimedOut,
        _ => Resource::of("connect", errno).into(),
    })?;
    let os = |call| move |errno| ConnectError::from(Resource::of(call, errno));
    let peer = socket::peer(&socket).map_err(os("getsockopt"))?;
    let own = handfast_sys::process::pid();
    let known = (peer.pid != own && peer.pid != 0)
        .then(|| process.find_link(|link| link.peer == peer))
        .flatten();
    let group = process.group(peer.uid)?;
    let index = group.reserve()?;
    let outcome = greet(process, name, &socket, &group, index, known.as_ref());
    let (welcome, fds) = match outcome {
        Ok((welcome, fds)) if welcome.status == Status::Linked => (welcome, fds),
        Ok((welcome, _)) => {
            group.set(index, None);
            // The identity is checked: a stranger that repeats another's incarnation is another
            // process to the kernel.
            let link = known.filter(|link| link.incarnation == welcome.incarnation);
            return Ok(link.map(|link| (link, welcome)));
        }
        Err(error) => {
            group.set(index, None);
            return Err(error);
        }
    };
    let made = (|| {
        let [region_fd, bells_fd] = fds.as_slice() else {
            return Err(ConnectError::Handshake("the server sent no memory"));
        };
        if !is_sealed(region_fd, REGION_BYTES).unwrap_or(false) {
            return Err(ConnectError::Handshake("the server's memory is not sealed"));
        }
        let mapping =
            Mapping::new(region_fd, REGION_BYTES, Access::ReadWrite).map_err(os("mmap"))?;
        Ok((Region::mapped(mapping), map_peer_bells(bells_fd)?))
    })();
    let (region, peer_bells) = match made {
        Ok(made) => made,
        Err(error) => {
            group.set(index, None);
            return Err(error);
        }
    };
    socket::set_nonblocking(&socket, true).map_err(os("ioctl"))?;
    if crate::notify::is_active() {
        let _ = handfast_sys::signal::raise_on_arrival(&socket, true);
    }
    let link = process.add_link(Parts {
        agreed: process.agreed,
        region,
        calls: Side::Connector,
        peer_bells,
        peer_index: welcome.link,
        group,
        index,
        socket,
        peer,
        incarnation: welcome.incarnation,
    })?;
    Ok(Some((link, welcome)))
}

/// Says hello, reads the welcome, turns refusals into errors.
fn greet(
    process: &Process,
    name: &str,
    socket: &OwnedFd,
    group: &crate::group::Group,
    index: u32,
    known: Option<&Arc<Link>>,
) -> Result<(Welcome, Vec<OwnedFd>), ConnectError> {
    let hello = Hello::new(process.incarnation, name, index, known.is_some());
    let lost = |errno| match errno {
        Errno::AGAIN => ConnectError::TimedOut,
        Errno::PIPE | Errno::CONNRESET => ConnectError::ServerDead {
            name: name.to_owned(),
        },
        Errno::MSGSIZE => ConnectError::Exhausted(Exhausted {
            what: "descriptors of this process; raise RLIMIT_NOFILE",
            limit: handfast_sys::process::descriptor_limit(),
        }),
        errno => Resource::of("sendmsg", errno).into(),
    };
    let deadline_ns = clock::deadline_ns(WELCOME_TIMEOUT);
    let told = interrupted_until(deadline_ns, || {
        socket::send(socket, &hello.to_bytes(), &[group.fd.as_fd()])
    });
    // A server without descriptors refuses before it reads: its answer may be there already.
    if let Err(errno) = told
        && !matches!(errno, Errno::PIPE | Errno::CONNRESET)
    {
        return Err(lost(errno));
    }
    let mut bytes = [0; WELCOME_BYTES + 1];
    let mut received = interrupted_until(deadline_ns, || socket::receive(socket, &mut bytes, 2));
    if matches!(received, Err(Errno::CONNRESET)) {
        // A server that refuses before it reads resets the connection behind its answer, and the
        // kernel reports the reset, once, before the answer.
        received = interrupted_until(deadline_ns, || socket::receive(socket, &mut bytes, 2));
    }
    let (len, fds) = received.map_err(lost)?;
    if len == 0 {
        return Err(ConnectError::ServerDead {
            name: name.to_owned(),
        });
    }
    let welcome = Welcome::parse(&bytes[..len]).map_err(|malformed| match malformed {
        Malformed::Version { theirs } => ConnectError::Version {
            ours: LAYOUT_VERSION,
            theirs,
        },
        Malformed::NotHandfast => ConnectError::Handshake("not handfast at the other end"),
        Malformed::Field(field) => ConnectError::Handshake(field),
    })?;
    match welcome.status {
        Status::Linked | Status::Known => Ok((welcome, fds)),
        Status::Version => Err(ConnectError::Version {
            ours: LAYOUT_VERSION,
            theirs: welcome.version,
        }),
        Status::NoSuchPort => Err(ConnectError::NoSuchName {
            name: name.to_owned(),
            path: rendezvous::path_of(name),
        }),
        Status::Exhausted => Err(ConnectError::Exhausted(Exhausted {
            what: "descriptors, memory or links of the server",
            limit: welcome.limit.into(),
        })),
        Status::Malformed => Err(ConnectError::Handshake("the server did not understand us")),
    }
}

/// Makes a call again that a signal handler interrupted: with a timeout on the socket the kernel
/// does not, whatever the handler's flags.
fn interrupted_until<T>(
    deadline_ns: u64,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) if clock::now_ns() < deadline_ns => {}
            Err(Errno::INTR) => return Err(Errno::AGAIN),
            other => return other,
        }
    }
}

/// A right to `link` was dropped: a link nobody here uses, and through which the peer has got
/// nothing, is ended.
pub(crate) fn release(process: &Process, link: &Arc<Link>) {
    // AcqRel: the last one sees what the others did.
    if link.rights.fetch_sub(1, Ordering::AcqRel) == 1 && !link.granted.load(Ordering::Acquire) {
        process.end_link(link);
    }
}
