//! Links of a process with itself, by which it sends and calls through its own rights
//! ([`OwnRight::connect`](crate::OwnRight::connect)).
//!
//! Such a link is like any other, except that both of its ends are here: its control thread, its tables, its lanes and its
//! end are the same as for a link with another process, and the same promises hold for rights that go by it. It is
//! made without a handshake and without a name, by the first thread that needs it, and ends with the last right that
//! uses it, if no rights have gone by it in messages.

use crate::error::{ConnectError, Exhausted, Gone, Resource, SendError};
use crate::guest::is_control;
use crate::link::connection::PeerProcess;
use crate::link::group::Reserved;
use crate::link::held::Held;
use crate::link::{Link, Parts, usage};
use crate::peer_bells::map_peer_bells;
use crate::port::local::Shortcut;
use crate::port::own::OwnRight;
use crate::port::{NoRight, exported, ports};
use crate::process::Process;
use crate::send::{self, SendRight, ended, moved};
use crate::tables::{Table, Which};
use crate::users::Foreign;
use crate::{closing, link_life, links, rank};
use core::time::Duration;
use handfast_layout::link::{REGION_BYTES, Side};
use handfast_layout::part::receiver_of;
use handfast_proto::rights::{Imports, Refused};
use handfast_region::Region;
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{OwnedFd, clock, deadline, socket};
use std::sync::{Arc, Weak};

/// Receivers that share one such link: each of them has a lane there, however many the others take, since a quarter
/// of the lanes is kept for those that have none.
const RECEIVERS_OF_LOOP: u32 = 4;

/// How long a thread that connects waits for room in its lane to where the port has moved.
const MOVED_NS: u64 = 1_000_000_000;

/// How often a right is made again because the last other one by its link was dropped meanwhile, and the link with
/// it.
const TRIES_MAX: u32 = 64;

/// The links of a process with itself: the connecting ends, by receiver.
#[derive(Default)]
struct Loops(Mutex<Vec<Weak<Link>>, rank::Loops>);

impl Table for Loops {
    const WHICH: Which = Which::Loops;
}

fn loops(process: &Process) -> MutexGuard<'_, Vec<Weak<Link>>, rank::Loops> {
    process.tables.get::<Loops>().0.lock()
}

impl OwnRight {
    /// A right by which this process itself sends to its port and calls it, from any thread, with this badge and these
    /// permissions. It behaves like a right of another process. It is revoked with this right, and counts as a
    /// right to the port until it is dropped ([`ReceiveRight::notify_no_senders`](crate::ReceiveRight::notify_no_senders)); sending it in a message sends this
    /// right. A receiver in this process gets it as an [`OwnRight`].
    ///
    /// Its messages go the same way as all others, through a link of this process with itself, which up to four ports
    /// share. The first right makes the link (some twenty system calls, four descriptors), and the link ends some milliseconds after the
    /// last one. Otherwise no system call. Does not block, unless the port has moved: then it waits for room in its
    /// queue there. A right that was dropped counts against the [quota](crate::Quotas::rights)
    /// until the link has ended.
    ///
    /// ```
    /// # use handfast_port as handfast;
    /// let port = handfast::anonymous()?;
    /// let right = port.mint_with(7, 0b01).connect()?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| port.receive().unwrap().reply(b"here").unwrap());
    ///     assert_eq!(&*right.call(b"anybody?").unwrap(), b"here");
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::Gone`] when the right was revoked or its port dropped; [`ConnectError::TimedOut`] when the port has moved, and the
    /// process where it is has received nothing there for 1 s; [`ConnectError::Exhausted`] without
    /// descriptors, memory or links; [`ConnectError::Misuse`] in a forked child, or once the node was shut down.
    pub fn connect(&self) -> Result<SendRight, ConnectError> {
        let port = self.port();
        port.process.check()?;
        // Connecting takes locks of the whole process.
        let _shield = deadline::shield();
        if port.home.get().is_some() {
            return connect_moved(self);
        }
        let connected = right_to_own(&port.process, self);
        // A shutdown meanwhile has many faces.
        connected.or_else(|error| port.process.check().map_err(Into::into).and(Err(error)))
    }
}

impl OwnRight {
    /// As [`Self::connect`], to send by it now.
    pub(crate) fn reach(&self) -> Result<SendRight, SendError> {
        self.connect().map_err(|error| match error {
            ConnectError::Gone(gone) => SendError::Gone(gone),
            ConnectError::Exhausted(exhausted) => SendError::Exhausted(exhausted),
            ConnectError::Misuse(misuse) => SendError::Misuse(misuse),
            _ => SendError::Full,
        })
    }
}

/// As [`OwnRight::connect`], to a port that has moved.
fn connect_moved(own: &OwnRight) -> Result<SendRight, ConnectError> {
    let until_ns = clock::ticks_ns() + MOVED_NS;
    loop {
        return match moved(own, true) {
            Some(Ok(moved)) => Ok((*moved).clone()),
            // The control thread, which runs a waker, does not wait.
            Some(Err(NoRight::NotYet)) if clock::ticks_ns() < until_ns && !is_control() => continue,
            Some(Err(NoRight::NotYet)) => Err(ConnectError::TimedOut {
                name: own.port().name.clone(),
                limit: Duration::from_nanos(MOVED_NS),
            }),
            _ if own.is_good() => Err(ConnectError::Gone(Gone::Port)),
            _ => Err(ConnectError::Gone(Gone::Right)),
        };
    }
}

/// The end by which this process sends to its own port at `receiver`; made if there is none.
pub(crate) fn loop_to(process: &Arc<Process>, receiver: u32) -> Result<Held, Resource> {
    let place = (receiver / RECEIVERS_OF_LOOP) as usize;
    if let Some(held) = known_loop(process, place, &loops(process)) {
        return Ok(held);
    }
    // Without the lock: the application is asked what the peer may cost.
    let link = make_loop(process)?;
    let mut loops = loops(process);
    if let Some(held) = known_loop(process, place, &loops) {
        // Another thread was faster.
        drop(loops);
        link.twin().iter().for_each(|far| links::end(process, far));
        links::end(process, &link);
        return Ok(held);
    }
    if loops.len() <= place {
        loops.resize_with(place + 1, Weak::new);
    }
    loops[place] = Arc::downgrade(&link);
    Ok(Held::new(&link))
}

fn known_loop(process: &Arc<Process>, place: usize, loops: &[Weak<Link>]) -> Option<Held> {
    let known = loops.get(place)?.upgrade().filter(|link| !link.is_over())?;
    links::hold(process, &known)
}

fn make_loop(process: &Arc<Process>) -> Result<Arc<Link>, Resource> {
    let os = |call| move |errno| Resource::of(call, errno);
    let (near, far) = socket::pair().map_err(os("socketpair"))?;
    for socket in [&near, &far] {
        socket::set_nonblocking(socket, true).map_err(os("ioctl"))?;
    }
    let region = create_sealed("handfast link", REGION_BYTES).map_err(os("memfd_create"))?;
    let uid = handfast_sys::process::uid();
    let (one, other) = (ports::reserve(process, uid)?, ports::reserve(process, uid)?);
    let (near_index, far_index) = (one.index(), other.index());
    let end = |socket: OwnedFd, calls, (place, peer_index): (Reserved, u32)| {
        let mapping = Mapping::new(&region, REGION_BYTES, Access::ReadWrite).map_err(os("mmap"))?;
        let peer = socket::peer(&socket).map_err(os("getsockopt"))?;
        let parts = Parts {
            region: Region::mapped(mapping),
            calls,
            peer_bells: map_peer_bells(place.fd(), uid)?,
            peer_index,
            place,
            peer,
            process: (socket::peer_pidfd(&socket).ok()).map(|pidfd| PeerProcess::new(pidfd, None)),
            socket: Foreign::new(&process.users, peer.uid, socket),
            charges: Vec::new(),
            incarnation: process.incarnation,
            agreed: process.agreed,
        };
        link_life::add_link(process, parts)
    };
    let far = end(far, Side::Acceptor, (other, near_index))?;
    let near =
        end(near, Side::Connector, (one, far_index)).inspect_err(|_| links::end(process, &far))?;
    let _ = near.life.twin.set(Arc::downgrade(&far));
    let _ = far.life.twin.set(Arc::downgrade(&near));
    link_life::welcome(process, &far, None).map_err(|errno| {
        links::end(process, &near);
        os("send")(errno)
    })?;
    Ok(near)
}

/// A right by which this process uses one of its own.
pub(crate) fn right_to_own(
    process: &Arc<Process>,
    own: &OwnRight,
) -> Result<SendRight, ConnectError> {
    let target = own.target();
    for _ in 0..TRIES_MAX {
        if closing::is_closing(process, own.port()) {
            return Err(ConnectError::Gone(Gone::Port));
        }
        let near = loop_to(process, receiver_of(target.port))?;
        let Some(far) = near.twin() else { continue };
        let exported = exported::export_own(&far, own).ok_or(ConnectError::Gone(Gone::Right))?;
        let handle = match exported {
            Err(Refused::Over) => continue,
            exported => exported.map_err(|_| no_more_rights(&far))?,
        };
        // Counted there before it is here, as a right that comes in a message. Only a peer names a right
        // that does not exist.
        let arrive = |imports: &mut Imports| imports.arrive(handle, target.port);
        if usage::change_imports(&near, arrive).is_err() {
            return Err(no_more_rights(&far));
        }
        let waiting = process.defaults.waiting;
        let right = send::of_handle(process, near.clone(), target.port, handle, waiting);
        // Again: a thread that drops the port after this look tells this end.
        if closing::is_closing(process, own.port()) {
            return Err(ConnectError::Gone(Gone::Port));
        }
        if !ended::is_down(&right) {
            return Ok(send::route::with_shortcut(right, Shortcut::of(own)));
        }
    }
    Err(ConnectError::Gone(Gone::Process))
}

fn no_more_rights(link: &Link) -> ConnectError {
    ConnectError::Exhausted(Exhausted {
        what: "rights of a process to its own ports",
        advice: Some("drop some, or raise the quota (set_quotas)"),
        limit: link.quotas.rights().into(),
    })
}
