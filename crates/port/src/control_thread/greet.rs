//! The accepting half of the handshake.

use super::{ControlThread, Pending};
use crate::error::{Exhausted, Resource};
use crate::link::connection::PeerProcess;
use crate::link::group::Reserved;
use crate::link::{Link, Parts};
use crate::peer_bells::{PeerBells, map_peer_bells};
use crate::port::{Port, exported, ports};
use crate::process::Process;
use crate::users::{Charge, Foreign};
use crate::{closing, give_back, link_end, link_life, links};
use core::sync::atomic::Ordering;
use handfast_layout::control::ControlMessage;
use handfast_layout::hello::{HELLO_BYTES, Hello, Malformed, Status, Welcome};
use handfast_layout::link::{REGION_BYTES, Side};
use handfast_layout::part::IS_HANDLE;
use handfast_proto::rights::{Refused, Target};
use handfast_proto::users::Quota;
use handfast_region::Region;
use handfast_ring::Rule;
use handfast_sys::memory::{Access, Mapping};
use handfast_sys::socket::Peer;
use handfast_sys::{AsFd, Errno, OwnedFd, shared, socket};
use std::sync::Arc;

/// Descriptors of a hello: the connector's bells.
const HELLO_FDS: usize = 1;

/// The offer that a connector has not taken yet.
pub(super) struct Offer {
    place: Reserved,
    charges: Vec<Charge>,
    process: Option<PeerProcess>,
    region_fd: OwnedFd,
    mapping: Mapping,
    peer_bells: PeerBells,
    peer_index: u32,
    incarnation: [u8; 16],
    /// No thread of this process connects to the peer meanwhile.
    _turn: Option<TurnOf>,
}

/// The turn of the threads that connect to a peer.
struct TurnOf(Arc<Process>, Peer);

impl Drop for TurnOf {
    fn drop(&mut self) {
        links::connecting(&self.0).give_back(&self.1);
    }
}

/// The answer to a hello.
enum Answer {
    /// There is a link, by which the connector has a right now.
    Known,
    Offered(Box<Offer>),
}

/// A hello gets no link.
enum Refusal {
    /// The connector is told why, with the limit that was reached.
    Told(Status, u32),
    /// The connector has gone, or says nothing that could be answered.
    Silent,
}

fn without_descriptors() -> Refusal {
    let limit = handfast_sys::process::descriptor_limit();
    Refusal::Told(Status::Exhausted, u32::try_from(limit).unwrap_or(u32::MAX))
}

fn refused_for(resource: Resource, peer: Peer) -> Refusal {
    let limit = match resource {
        Resource::Exhausted(exhausted) => exhausted.limit,
        Resource::NoMemoryFiles(_) | Resource::Os(_) => 0,
    };
    crate::guest::tell!(
        warn,
        pid = peer.pid,
        limit,
        "a connection was refused for want of resources"
    );
    Refusal::Told(Status::Exhausted, u32::try_from(limit).unwrap_or(u32::MAX))
}

/// The hello in a message that has come, and its descriptors. Whatever these are, this thread closes none of them.
fn hear_hello(
    socket: &mut Foreign,
    received: Result<socket::Received, Errno>,
    bytes: &[u8],
) -> Result<(Hello, Vec<Foreign>), Refusal> {
    let is_left = |received: &socket::Received| received.is_surplus || received.is_short;
    if matches!(received, Err(Errno::MSGSIZE)) || received.as_ref().is_ok_and(is_left) {
        socket.has_unread();
    }
    let (len, fds) = match received {
        Ok(received) => {
            let fds = received.fds.into_iter().map(|fd| socket.beside(fd));
            let fds: Vec<_> = fds.collect();
            if received.is_short {
                return Err(without_descriptors());
            }
            if received.len_bytes == 0 {
                return Err(Refusal::Silent);
            }
            (received.len_bytes, fds)
        }
        // Perhaps a connector of another release.
        Err(Errno::MSGSIZE) => (bytes.len(), Vec::new()),
        Err(_) => return Err(Refusal::Silent),
    };
    match Hello::parse(&bytes[..len]) {
        Ok(hello) => Ok((hello, fds)),
        Err(Malformed::Version { .. }) => Err(Refusal::Told(Status::Version, 0)),
        Err(_) => Err(Refusal::Told(Status::Malformed, 0)),
    }
}

impl ControlThread {
    /// Reads a hello and answers it.
    pub(super) fn greet(&mut self, index: usize) {
        let Some(Some(pending)) = self.pending.get(index) else {
            return;
        };
        if pending.offer.is_some() {
            return self.conclude(index);
        }
        let mut bytes = [0; HELLO_BYTES + 1];
        let received = socket::receive_expected(&pending.socket, &mut bytes, |_| HELLO_FDS);
        if matches!(received, Err(Errno::AGAIN | Errno::INTR)) {
            return;
        }
        let Some(mut pending) = self.pending[index].take() else {
            return;
        };
        self.process.poll.remove(&pending.socket);
        let heard = hear_hello(&mut pending.socket, received, &bytes);
        match heard.and_then(|(hello, fds)| self.answer(&pending, &hello, fds)) {
            Ok(Answer::Known) | Err(Refusal::Silent) => {}
            Ok(Answer::Offered(offer)) => {
                pending.offer = Some(offer);
                self.await_more(pending);
            }
            Err(Refusal::Told(status, limit)) => {
                let welcome = Welcome::refusal(self.process.incarnation, status, limit);
                let _ = socket::send(&pending.socket, &welcome.to_bytes(), &[]);
            }
        }
    }

    /// Answers a hello: by a right through the link that there is, or with the offer of a link.
    fn answer(
        &self,
        pending: &Pending,
        hello: &Hello,
        fds: Vec<Foreign>,
    ) -> Result<Answer, Refusal> {
        let (process, peer) = (&*self.process, pending.peer);
        let port = pending.port.as_ref();
        if let Some(port) = port {
            check_port(process, port, hello)?;
        }
        let pidfd = identify(process, pending, hello)?;
        // Held until there is a link, so that no thread that connects to this peer meanwhile
        // makes a second.
        let mut connecting = links::connecting(&self.process).taken();
        let connects = connecting.iter().any(|to| to.pid == peer.pid);
        let is_theirs =
            |link: &Link| link.incarnation == hello.incarnation && link.peer.pid == peer.pid;
        // There may be another one, which one of the two does not use any more.
        let is_known = |link: &Link| Some(link.index) == hello.known && is_theirs(link);
        if let Some(link) = links::hold_any(&self.process, is_known) {
            return grant_known(process, &link, pending);
        }
        let found = links::hold_any(&self.process, is_theirs);
        let is_another = links::is_another(peer);
        if is_another
            && crosses(
                process,
                hello,
                connects,
                found.as_deref().map(|link| &**link),
            )
        {
            return Err(Refusal::Told(Status::Crossed, 0));
        }
        let Some(their_bells) = fds.into_iter().next() else {
            return Err(Refusal::Told(Status::Malformed, 0));
        };
        // Nor until the offer is taken, or over.
        if is_another {
            connecting.push(peer);
        }
        drop(connecting);
        let turn = is_another.then(|| TurnOf(self.process.clone(), peer));
        let offer = self.offer((peer, pidfd, turn), &their_bells, hello);
        let offer = offer.map_err(|resource| refused_for(resource, peer))?;
        // A memory file, which closes at once.
        drop(their_bells.into_inner());
        let mut welcome = welcome_to(process, port);
        welcome.status = Status::Linked;
        welcome.link = offer.place.index();
        // The first that the link will give.
        welcome.handle = port.map_or(0, |_| IS_HANDLE);
        let fds = [offer.region_fd.as_fd(), offer.place.fd().as_fd()];
        match pending.socket.send(&welcome.to_bytes(), &fds) {
            Ok(_) => Ok(Answer::Offered(Box::new(offer))),
            // Until others have received theirs: it asks again.
            Err(Errno::NOBUFS) => Err(Refusal::Told(Status::Crossed, 0)),
            Err(_) => Err(Refusal::Silent),
        }
    }

    /// The parts with which a link is offered. The link exists once the connector has mapped and sealed the
    /// region.
    fn offer(
        &self,
        (peer, pidfd, turn): (Peer, Option<OwnedFd>, Option<TurnOf>),
        their_bells: &Foreign,
        hello: &Hello,
    ) -> Result<Offer, Resource> {
        let os = |call| move |errno| Resource::of(call, errno);
        let charge = |quota, amount| {
            let charged = self.process.users.charge(peer.uid, quota, amount);
            charged.map_err(|refused| {
                Resource::Exhausted(Exhausted {
                    what: "links and descriptors that peers of one user may hold",
                    advice: Some("end some of those processes"),
                    limit: refused.limit(),
                })
            })
        };
        // The charges for the link, and for its region, while it is offered at least. The socket counts already.
        let charges = vec![charge(Quota::Links, 1)?, charge(Quota::Descriptors, 1)?];
        let of_process = charge(Quota::Descriptors, 1)?;
        let peer_bells = map_peer_bells(their_bells, peer.uid)?;
        let region_fd =
            shared::create("handfast link", REGION_BYTES).map_err(os("memfd_create"))?;
        let mapping =
            Mapping::new(&region_fd, REGION_BYTES, Access::ReadWrite).map_err(os("mmap"))?;
        Ok(Offer {
            charges,
            process: pidfd.map(|pidfd| PeerProcess::new(pidfd, Some(of_process))),
            peer_bells,
            mapping,
            region_fd,
            peer_index: hello.link,
            incarnation: hello.incarnation,
            place: ports::reserve(&self.process, peer.uid)?,
            _turn: turn,
        })
    }

    /// The connector has answered an offer: makes the link, if the region can be used without harm.
    fn conclude(&mut self, index: usize) {
        let Some(Some(pending)) = self.pending.get(index) else {
            return;
        };
        let mut bytes = [0; 3];
        let received = socket::receive_expected(&pending.socket, &mut bytes, |_| 0);
        if matches!(received, Err(Errno::AGAIN | Errno::INTR)) {
            return;
        }
        let Some(Pending {
            socket,
            peer,
            port,
            offer: Some(offer),
            ..
        }) = self.pending[index].take()
        else {
            return;
        };
        self.process.poll.remove(&socket);
        let Ok(received) = received else {
            return;
        };
        // Only looked at: adding a seal could take as long as the connector likes.
        let said = ControlMessage::parse(&bytes[..received.len_bytes]);
        let is_sealed = said == Ok(Some(ControlMessage::Sealed))
            && !received.is_surplus
            && shared::is_whole(&offer.region_fd) == Ok(true);
        let identity = (peer, offer.process.as_ref().map(AsFd::as_fd));
        if !is_sealed || links::is_borrowed(&self.process, offer.incarnation, identity) {
            return;
        }
        let Some(link) = self.link_by(*offer, socket, (peer, port.as_deref())) else {
            return;
        };
        if link_life::welcome(&self.process, &link, port.as_deref()).is_err() {
            link_end::end_link(&self.process, &link);
        }
    }

    /// The link of an offer that was taken, whose acceptor gives a right to `port`.
    fn link_by(
        &self,
        mut offer: Offer,
        socket: Foreign,
        (peer, port): (Peer, Option<&Port>),
    ) -> Option<Arc<Link>> {
        let mut region = Region::mapped(offer.mapping);
        // Root may have this process pay for anything. And for root's clients, a server that was root when it bound its name is
        // of their user.
        if offer.place.group().is_foreign && peer.uid != 0 {
            region = region.looking_for_pages(offer.region_fd);
        } else if let Some(descriptors) = offer.charges.last_mut() {
            // It is only mapped from now on.
            descriptors.shrink(1);
        }
        let (at, len_bytes) = Side::Connector.header();
        if !region.is_there(at, len_bytes) {
            let rule = Rule::Untouched.text();
            crate::guest::tell!(warn, pid = peer.pid, rule, "no link was made");
            return None;
        }
        let parts = Parts {
            agreed: self.process.agreed,
            region,
            calls: Side::Acceptor,
            peer_bells: offer.peer_bells,
            peer_index: offer.peer_index,
            place: offer.place,
            socket,
            process: offer.process,
            charges: offer.charges,
            peer,
            incarnation: offer.incarnation,
        };
        let linked = link_life::add_link_granting(&self.process, parts, port);
        if linked.is_err() {
            crate::guest::tell!(
                warn,
                pid = peer.pid,
                "a link was ended for want of resources"
            );
        }
        linked.ok()
    }
}

/// Whether the port that was connected to is still there, also where another has its receiver by now.
fn check_port(process: &Process, port: &Arc<Port>, hello: &Hello) -> Result<(), Refusal> {
    // Acquire: pairs with the Release of `unlisten`. The name of one that leaves is another process's.
    if port.is_leaving.load(Ordering::Acquire) {
        return Err(Refusal::Told(Status::Crossed, 0));
    }
    let known = ports::at(process, port.receiver);
    let is_there = known.is_some_and(|known| Arc::ptr_eq(&known, port));
    match port.name == hello.name && is_there {
        true => Ok(()),
        false => Err(Refusal::Told(Status::NoSuchPort, 0)),
    }
}

/// The connector's process. The kernel vouches for its identity and that it lives; a number alone may be another's by now.
fn identify(
    process: &Process,
    pending: &Pending,
    hello: &Hello,
) -> Result<Option<OwnedFd>, Refusal> {
    let pidfd = match socket::peer_pidfd(&pending.socket) {
        Ok(pidfd) if handfast_sys::process::has_ended(&pidfd) => return Err(Refusal::Silent),
        Ok(pidfd) => Some(pidfd),
        // Before Linux 6.5 there is no such descriptor.
        Err(Errno::NOPROTOOPT) => None,
        Err(Errno::MFILE | Errno::NFILE) => return Err(without_descriptors()),
        Err(_) => return Err(Refusal::Silent),
    };
    let identity = (pending.peer, pidfd.as_ref().map(AsFd::as_fd));
    match links::is_borrowed(process, hello.incarnation, identity) {
        true => Err(Refusal::Told(Status::Malformed, 0)),
        false => Ok(pidfd),
    }
}

fn welcome_to(process: &Process, port: Option<&Arc<Port>>) -> Welcome {
    let mut welcome = Welcome::refusal(process.incarnation, Status::Known, 0);
    welcome.port = port.map_or(0, |port| port.id);
    welcome
}

/// The connector knows of a link: it is given a right through that.
fn grant_known(process: &Process, link: &Link, pending: &Pending) -> Result<Answer, Refusal> {
    if link.life.usage.is_left() {
        // The peer has been told that this process does not use the link, and will say that it does, or
        // end it.
        return Err(Refusal::Told(Status::Crossed, 0));
    }
    link.life.usage.grant();
    let mut welcome = welcome_to(process, pending.port.as_ref());
    if let Some(port) = &pending.port {
        let exported = exported::export(link, port, Target::full(port.id, 0));
        welcome.handle = exported.map_err(|refused| match refused {
            // The link is ending: it is another's turn to make one.
            Refused::Over => Refusal::Told(Status::Crossed, 0),
            _ => Refusal::Told(Status::Exhausted, link.quotas.rights()),
        })?;
        if closing::is_closing(process, port) {
            give_back::retract(link, process, welcome.handle);
            // As in `check_port`. Acquire: pairs with the Release of `depart`.
            return Err(match port.is_leaving.load(Ordering::Acquire) {
                true => Refusal::Told(Status::Crossed, 0),
                false => Refusal::Told(Status::NoSuchPort, 0),
            });
        }
    }
    let sent = socket::send(&pending.socket, &welcome.to_bytes(), &[]);
    if sent.is_err() && pending.port.is_some() {
        // The connector has gone, and takes no right.
        give_back::retract(link, process, welcome.handle);
    }
    Ok(Answer::Known)
}

/// Whether a hello has crossed with one of ours to the same process, so that there is, or will be, another
/// link than the one it asks for. When two processes connect to each other at the same moment, the one with
/// the lower incarnation makes the link.
fn crosses(process: &Process, hello: &Hello, connects: bool, found: Option<&Link>) -> bool {
    match found {
        // The peer has this link too by now, unless it has ended the link, and that has not been heard yet.
        // Told once: it may see us under another user than we were when the link was made.
        Some(link) if link.connection.is_open() => !link.life.crossed.swap(true, Ordering::Relaxed),
        // The link it knows of is ours to come; or has ended, and the peer will hear of that.
        _ => connects && (hello.known.is_some() || process.incarnation < hello.incarnation),
    }
}
