//! Connecting: the asking half of the handshake.

use crate::binding::BEHIND_DESCRIPTOR;
use crate::error::{ConnectError, Found, Misuse, Resource};
use crate::link::held::Held;
use crate::link::{Link, usage};
use crate::options::Options;
use crate::process::Process;
use crate::send::{SendRight, ended};
use crate::tables::{Table, Which};
use crate::turns::{Turn, Turns};
use crate::users::Foreign;
use crate::{link_end, redirect, rendezvous};
use core::time::Duration;
use handfast_layout::hello::Welcome;
use handfast_layout::name;
use handfast_sys::{Errno, OwnedFd, clock, socket};
use handshake::attempt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

mod handshake;

/// How long a server may take to answer a handshake, unless the caller says.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before another attempt when the link thought to exist has ended meanwhile, or
/// the server connects to this process at the same moment; and how often that doubles.
const RETRY_FIRST: Duration = Duration::from_micros(20);
const RETRY_DOUBLINGS: u32 = 8;
/// Connections that a server may end without an answer, about half a second in all: a server with many handshakes under
/// way lets the oldest go. A server that has died takes no further ones.
const UNANSWERED_MAX: u32 = 100;
const UNANSWERED: &str = "the server is alive, and ends each connection without an answer (its log or quotas may say why)";

/// The sockets that threads of a node connect to.
#[derive(Default)]
struct Connecting(Turns<PathBuf>);

impl Table for Connecting {
    const WHICH: Which = Which::Connecting;
}

/// The result of one handshake.
enum Attempt {
    /// The link by which the server has given a right, which is in use.
    Linked(Held, Welcome),
    /// The link it relied on has ended, or the server is at work on one.
    Again,
    /// The server ended the connection without an answer.
    Unanswered,
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
    let turns = &process.tables.get::<Connecting>().0;
    let (turn, limit) = match timeout {
        None => (turns.wait(path.clone()), Limit::new(WELCOME_TIMEOUT)?),
        Some(_) => {
            let turn = turns.wait_until(path.clone(), limit.deadline_ns);
            (turn.ok_or_else(|| limit.passed(name))?, limit)
        }
    };
    connect_by(process, (name, &path), (options, Some(turn)), limit)
}

/// Connects to the port behind a descriptor: see [`connect_by_descriptor`](crate::connect_by_descriptor).
pub(crate) fn connect_behind(
    process: &Arc<Process>,
    descriptor: &OwnedFd,
) -> Result<SendRight, ConnectError> {
    let to = (BEHIND_DESCRIPTOR, &*rendezvous::path_of_door(descriptor));
    let options = (Options::new(), None);
    connect_by(process, to, options, Limit::new(WELCOME_TIMEOUT)?)
}

/// How long it is until then.
pub(crate) fn left_until(deadline: Instant) -> Duration {
    Duration::from_nanos(clock::instant_ns(deadline).saturating_sub(clock::now_ns()))
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

/// One connection to a name at a time: a server has places for few handshakes. Other threads have their turns between two attempts.
fn connect_by(
    process: &Arc<Process>,
    to @ (name, _): (&str, &Path),
    (options, mut turn): (Options, Option<Turn<'_, PathBuf>>),
    limit: Limit,
) -> Result<SendRight, ConnectError> {
    let mut unanswered = 0;
    for attempts in 0.. {
        process.check()?;
        match attempt(process, to, |_| true, limit)? {
            Attempt::Linked(link, welcome) => {
                if let Some(right) = welcomed(process, name, (&link, &welcome), options)? {
                    return Ok(right);
                }
            }
            Attempt::Again => {}
            Attempt::Unanswered => unanswered += 1,
        }
        if unanswered > UNANSWERED_MAX {
            return Err(failed(name, UNANSWERED));
        }
        if limit.left().is_zero() {
            break;
        }
        // The other process, or our control thread, is at work on it.
        let pause = RETRY_FIRST * (1 << attempts.min(RETRY_DOUBLINGS));
        let pause = pause.min(limit.left());
        match turn.take() {
            None => clock::sleep(pause),
            Some(held) => {
                let again = held.lend(pause, limit.deadline_ns);
                turn = Some(again.ok_or_else(|| limit.passed(name))?);
            }
        }
    }
    Err(limit.passed(name))
}

/// The right in a welcome. `None` where the link has ended since, or this process has left it: then the right is given back.
fn welcomed(
    process: &Arc<Process>,
    name: &str,
    (link, welcome): (&Arc<Link>, &Welcome),
    options: Options,
) -> Result<Option<SendRight>, ConnectError> {
    let (handle, port) = (welcome.handle, welcome.port);
    let arrived = usage::change_imports(link, |imports| imports.arrive(handle, port));
    if arrived.is_err() {
        link_end::end_link(process, link);
        return Err(failed(name, "no right in the welcome"));
    }
    redirect::arrived_moved(link, process, handle);
    let is_left = link.life.usage.is_left();
    let right = SendRight::new(process, link.clone(), welcome, options);
    Ok((!is_left && !ended::is_down(&right)).then_some(right))
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
            return match link.is_with(meant) {
                true => Ok(link),
                false => Err(failed(DOOR_NAME, "another process than was meant")),
            };
        }
        clock::sleep(pause.min(limit.left()));
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
