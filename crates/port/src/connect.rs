//! Connecting: the asking half of the handshake.

use crate::error::{ConnectError, Exhausted, Found, Misuse, Resource};
use crate::group::Reserved;
use crate::lifecycle;
use crate::link::{Link, Parts};
use crate::options::Options;
use crate::paths::Held;
use crate::peer_bells::{PeerBells, map_peer_bells};
use crate::process::Process;
use crate::receive::BEHIND_DESCRIPTOR;
use crate::rendezvous;
use crate::send::SendRight;
use crate::turns::Turns;
use crate::users::Foreign;
use core::time::Duration;
use handfast_layout::control::ControlMessage;
use handfast_layout::hello::{Hello, Malformed, Status, WELCOME_BYTES, Welcome, is_ready};
use handfast_layout::link::{REGION_BYTES, Side};
use handfast_layout::{LAYOUT_VERSION, bell, name};
use handfast_proto::users::Quota;
use handfast_region::Region;
use handfast_sys::memory::{Access, Mapping, is_sealed};
use handfast_sys::{AsFd, Errno, OwnedFd, clock, shared, socket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// How long a server may take to answer a handshake, unless the caller says.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before another attempt when the link thought to exist has ended meanwhile, or
/// the server connects to this process at the same moment; and how often that doubles.
const RETRY_FIRST: Duration = Duration::from_micros(20);
const RETRY_DOUBLINGS: u32 = 8;
/// Connections in a row that a server may end without an answer, about half a second in all: a server with many
/// handshakes under way lets the oldest go. A server that has died takes no further ones.
const UNANSWERED_MAX: u32 = 100;

/// The result of one handshake.
enum Attempt {
    Linked(Arc<Link>, Welcome),
    /// The link it relied on has ended, or the server is at work on one.
    Again,
    /// The server ended the connection without an answer.
    Unanswered,
}

/// Connects to the port bound as `name`, with default options. See [`connect_with`].
///
/// # Errors
/// As [`connect_with`].
pub fn connect(name: &str) -> Result<SendRight, ConnectError> {
    connect_with(name, Options::new())
}

/// Connects to the port bound as `name` and returns a right to send to it.
///
/// The first connection to a process makes a link (a socket, a process descriptor, a sealed region of which
/// only touched pages exist); further ones share it. Connections to this process itself, or to one that cannot
/// be seen from here (in another PID namespace), each make a link, with its descriptors. First waits its turn
/// behind other threads of this process that connect to the same name. Then blocks at most five seconds: for
/// threads that connect to another name of the same process, and for the handshake. The options say how this
/// right's callers wait for replies.
///
/// # Errors
/// Each failure of [`ConnectError`] says what to do.
pub fn connect_with(name: &str, options: Options) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    connect_at(&lifecycle::current()?, name, (options, None))
}

/// As [`connect`], at the longest for `timeout`, which covers the wait for other threads of this process that
/// connect to the same server. The first use of the library in a process measures the machine, which takes
/// about 5 ms more.
///
/// # Errors
/// [`ConnectError::TimedOut`] then; others as [`connect_with`].
pub fn connect_timeout(name: &str, timeout: Duration) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    connect_at(
        &lifecycle::current()?,
        name,
        (Options::new(), Some(timeout)),
    )
}

/// Connects by a node. A timeout that the caller sets covers the wait for other threads.
pub(crate) fn connect_at(
    process: &Arc<Process>,
    name: &str,
    (options, timeout): (Options, Option<Duration>),
) -> Result<SendRight, ConnectError> {
    name::check(name).map_err(ConnectError::BadName)?;
    // Before the turn: another thread that has it may wait for the control thread.
    let limit = Limit::new(timeout.unwrap_or(WELCOME_TIMEOUT))?;
    process.check()?;
    let path = process.configuration.directory().join(name);
    let turns = Turns::of_connectors();
    let (turn, limit) = match timeout {
        None => (turns.wait(path.clone()), Limit::new(WELCOME_TIMEOUT)?),
        Some(_) => {
            let turn = turns.wait_until(path.clone(), limit.deadline_ns);
            (turn.ok_or_else(|| limit.passed(name))?, limit)
        }
    };
    let right = connect_by(process, (name, &path), options, limit);
    drop(turn);
    right
}

/// Connects to the port behind a descriptor that its process has got by
/// [`behind_descriptor`](crate::served::behind_descriptor).
///
/// # Errors
/// As [`connect_with`].
pub fn connect_by_descriptor(descriptor: &OwnedFd) -> Result<SendRight, ConnectError> {
    let process = lifecycle::current()?;
    let to = (BEHIND_DESCRIPTOR, &*rendezvous::path_of_door(descriptor));
    connect_by(&process, to, Options::new(), Limit::new(WELCOME_TIMEOUT)?)
}

/// How long a connection may take, and when that is over.
#[derive(Clone, Copy)]
struct Limit {
    timeout: Duration,
    deadline_ns: u64,
}

impl Limit {
    /// # Errors
    /// In the control thread, because the wait may be for its own part of a handshake.
    fn new(timeout: Duration) -> Result<Self, ConnectError> {
        if crate::guest::is_control() {
            return Err(ConnectError::Misuse(Misuse::ControlThread));
        }
        Ok(Self {
            timeout,
            deadline_ns: clock::deadline_ns(timeout),
        })
    }

    fn left(self) -> Duration {
        Duration::from_nanos(self.deadline_ns.saturating_sub(clock::now_ns()))
    }

    fn passed(self, name: &str) -> ConnectError {
        ConnectError::TimedOut {
            name: name.to_owned(),
            limit: self.timeout,
        }
    }
}

/// One connection to a name at a time: a server has places for few handshakes.
fn connect_by(
    process: &Arc<Process>,
    to @ (name, _): (&str, &Path),
    options: Options,
    limit: Limit,
) -> Result<SendRight, ConnectError> {
    let mut unanswered = 0;
    for attempts in 0.. {
        process.check()?;
        match attempt(process, to, |_| true, limit)? {
            // The last other right to a shared link may have gone meanwhile, and the link with it.
            Attempt::Linked(link, welcome) if let Some(_held) = process.hold(&link) => {
                let named = (welcome.handle, welcome.port);
                let arrived =
                    link.change_imports(process, |imports| imports.arrive(named.0, named.1));
                if arrived.is_err() {
                    process.end_link(&link);
                    return Err(failed(name, "no right in the welcome"));
                }
                link.arrived_moved(process, welcome.handle);
                let right = SendRight::new(process, link, &welcome, options);
                if !right.is_down() {
                    return Ok(right);
                }
            }
            Attempt::Linked(..) | Attempt::Again => {}
            Attempt::Unanswered => unanswered += 1,
        }
        if unanswered > UNANSWERED_MAX {
            let name = name.to_owned();
            return Err(ConnectError::ServerDead { name });
        }
        if limit.left().is_zero() {
            break;
        }
        // The other process, or our keeper, is at work on it.
        let pause = RETRY_FIRST * (1 << attempts.min(RETRY_DOUBLINGS));
        std::thread::sleep(pause.min(limit.left()));
    }
    Err(limit.passed(name))
}

/// A link with the process behind a door, if it is the one that was meant, and it is of a user that `may_be` says.
pub(crate) fn by_door(
    process: &Arc<Process>,
    (door, meant): (&Foreign, [u8; 20]),
    may_be: impl Fn(u32) -> bool,
    timeout: Duration,
) -> Result<Held, ConnectError> {
    let limit = Limit::new(timeout)?;
    let path = rendezvous::path_of_door(door);
    // Looked at before connecting: connections that the door's owner accepts and keeps are memory of this process's. The look may
    // wait for a file system; this thread is its user's.
    let owner = std::fs::metadata(&path).map(|door| door.uid());
    if !owner.is_ok_and(&may_be) {
        return Err(failed(DOOR_NAME, "a socket of another user"));
    }
    let mut pause = RETRY_FIRST;
    while !limit.left().is_zero() {
        if let Attempt::Linked(link, _) = attempt(process, (DOOR_NAME, &path), &may_be, limit)? {
            // As in `connect_by`.
            match process.hold(&link) {
                Some(held) if link.is_with(meant) => return Ok(held),
                Some(_) => return Err(failed(DOOR_NAME, "another process than was meant")),
                None => {}
            }
        }
        std::thread::sleep(pause.min(limit.left()));
        pause = (pause * 2).min(RETRY_FIRST * (1 << RETRY_DOUBLINGS));
    }
    Err(limit.passed(DOOR_NAME))
}

/// The name that a connector by a door gives instead of a port's.
const DOOR_NAME: &str = "introduction";

/// A socket to the server, before it has said anything.
fn open(name: &str, path: &Path, limit: Limit) -> Result<OwnedFd, ConnectError> {
    socket::connect(path, limit.left()).map_err(|errno| match errno {
        Errno::NOTDIR => ConnectError::Directory {
            path: path.parent().unwrap_or(path).to_owned(),
        },
        Errno::NOENT | Errno::CONNREFUSED | Errno::PROTOTYPE | Errno::LOOP => {
            nobody_at(name, path, errno)
        }
        Errno::ACCESS | Errno::PERM => ConnectError::Permission {
            path: path.to_owned(),
        },
        Errno::NAMETOOLONG => ConnectError::PathTooLong {
            path: path.to_owned(),
        },
        Errno::AGAIN => limit.passed(name),
        _ => Resource::of("connect", errno).into(),
    })
}

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
fn attempt(
    process: &Arc<Process>,
    (name, path): (&str, &Path),
    may_be: impl Fn(u32) -> bool,
    limit: Limit,
) -> Result<Attempt, ConnectError> {
    let socket = open(name, path, limit)?;
    let os = |call| move |errno| ConnectError::from(Resource::of(call, errno));
    let peer = socket::peer(&socket).map_err(os("getsockopt"))?;
    if !may_be(peer.uid) {
        return Err(failed(name, "a process of another user"));
    }
    let pidfd = socket::peer_pidfd(&socket).ok();
    let socket = Foreign::new(&process.users, peer.uid, socket);
    // Only links to a process known to be another one are shared. The turn is kept to the end.
    let wait = || process.connecting.wait_until(peer, limit.deadline_ns);
    let turn = match process.is_another(peer).then(wait) {
        Some(None) => return Err(limit.passed(name)),
        turn => turn.flatten(),
    };
    let find = |_| process.hold_link(|link| link.peer == peer);
    let known = turn.as_ref().and_then(find);
    let place = process.reserve(peer.uid)?;
    let hello = Hello::new(process.incarnation, name, place.index(), known.is_some());
    let outcome = greet((&hello, path), &socket, &place.group().fd, limit)?;
    let (welcome, fds) = match outcome {
        Some((welcome, fds)) if welcome.status == Status::Linked => (welcome, fds),
        None => return Ok(Attempt::Unanswered),
        Some((welcome, _)) if welcome.status == Status::Crossed => return Ok(Attempt::Again),
        Some((welcome, _)) => {
            // The identity is checked: a stranger that repeats another's incarnation is another
            // process to the kernel. A process may have several nodes, with an incarnation each.
            let is_it = |link: &Link| link.peer == peer && link.incarnation == welcome.incarnation;
            let link = known.and_then(|_| process.hold_link(is_it));
            return Ok(link.map_or(Attempt::Again, |link| {
                Attempt::Linked(link.clone(), welcome)
            }));
        }
    };
    if process.is_borrowed(welcome.incarnation, (peer, pidfd.as_ref())) {
        return Err(failed(name, "the server says that it is another process"));
    }
    let Ok([region_fd, bells_fd]) = <[Foreign; 2]>::try_from(fds) else {
        return Err(failed(name, "the server sent no memory"));
    };
    let (region, peer_bells) = map_offer((name, peer.uid), (region_fd, bells_fd), &place, limit)?;
    if !is_concluded(name, &socket, limit)? {
        return Ok(Attempt::Unanswered);
    }
    socket::set_nonblocking(&socket, true).map_err(os("ioctl"))?;
    let link = process.add_link(Parts {
        agreed: process.agreed,
        region,
        calls: Side::Connector,
        peer_bells,
        peer_index: welcome.link,
        place,
        socket,
        pidfd,
        charges: Vec::new(),
        peer,
        incarnation: welcome.incarnation,
    })?;
    process.tell_spread(&link);
    Ok(Attempt::Linked(link, welcome))
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
            what: "descriptors that servers of one user hold up here; connect again later",
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

/// Why no server takes connections at the path of `name`.
fn nobody_at(name: &str, path: &Path, errno: Errno) -> ConnectError {
    let (name, path) = (name.to_owned(), path.to_owned());
    match rendezvous::found_at(&path) {
        Some(Found::Socket) if errno == Errno::CONNREFUSED => ConnectError::ServerDead { name },
        // The socket may have come or gone since.
        Some(Found::Socket) if errno == Errno::NOENT => ConnectError::NoSuchName { name, path },
        None => ConnectError::NoSuchName { name, path },
        Some(found) => ConnectError::Foreign { path, found },
    }
}

fn failed(name: &str, what: &'static str) -> ConnectError {
    let name = name.to_owned();
    ConnectError::Handshake { name, what }
}

/// Waits until the server is ready, says hello, reads the welcome, turns refusals into errors. `None` when the server ended the
/// connection without an answer.
fn greet(
    (hello, path): (&Hello, &Path),
    socket: &Foreign,
    bells: &OwnedFd,
    limit: Limit,
) -> Result<Option<(Welcome, Vec<Foreign>)>, ConnectError> {
    let name = hello.name.as_str();
    let mut bytes = [0; WELCOME_BYTES + 1];
    let mut fds = Vec::new();
    // A server that cannot serve us refuses before it reads.
    let mut len = match hear(socket, (&mut bytes, WELCOME_FDS), &mut fds, limit) {
        Ok(len) => len,
        Err(error) => return unanswered(error, name, limit),
    };
    if len > 0 && is_ready(&bytes[..len]).map_err(|malformed| misunderstood(name, malformed))? {
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
        len = match hear(socket, (&mut bytes, WELCOME_FDS), &mut fds, limit) {
            Ok(len) => len,
            Err(error) => return unanswered(error, name, limit),
        };
    }
    if len == 0 {
        return Ok(None);
    }
    let welcome =
        Welcome::parse(&bytes[..len]).map_err(|malformed| misunderstood(name, malformed))?;
    match welcome.status {
        Status::Linked | Status::Known | Status::Crossed => Ok(Some((welcome, fds))),
        Status::Version => Err(ConnectError::Version {
            ours: LAYOUT_VERSION,
            theirs: welcome.version,
        }),
        Status::NoSuchPort => Err(ConnectError::NoSuchName {
            name: name.to_owned(),
            path: path.to_owned(),
        }),
        Status::Exhausted => Err(ConnectError::Exhausted(Exhausted {
            what: "descriptors, memory, links or rights of the server; drop rights to it, end some of its \
                   clients, or raise its RLIMIT_NOFILE or quotas",
            limit: welcome.limit.into(),
        })),
        Status::Malformed => Err(failed(name, "the server did not understand us")),
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

fn unanswered<T>(errno: Errno, name: &str, limit: Limit) -> Result<Option<T>, ConnectError> {
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
fn within<T>(
    limit: Limit,
    socket: &Foreign,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        socket::set_timeout(socket, limit.left())?;
        match call() {
            Err(Errno::INTR) if !limit.left().is_zero() => {}
            Err(Errno::INTR) => return Err(Errno::AGAIN),
            other => return other,
        }
    }
}
