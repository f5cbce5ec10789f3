//! The accepting half of the handshake.

use super::{Keeper, PeerBells, Pending, map_peer_bells};
use crate::error::{Exhausted, Resource};
use crate::group::Reserved;
use crate::link::{Link, Parts};
use crate::port::Port;
use crate::process::Process;
use crate::users::{Charge, Foreign};
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
    pidfd: Option<OwnedFd>,
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
        self.0.connecting.give_back(&self.1);
    }
}

impl Keeper {
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
        let Some(Pending {
            mut socket,
            peer,
            port,
            charge,
            ..
        }) = self.pending[index].take()
        else {
            return;
        };
        self.process.poll.remove(&socket);
        let is_left = |received: &socket::Received| received.is_surplus || received.is_short;
        if matches!(received, Err(Errno::MSGSIZE)) || received.as_ref().is_ok_and(is_left) {
            socket.has_unread();
        }
        let refuse = |status, limit| {
            let welcome = Welcome::refusal(self.process.incarnation, status, limit);
            let _ = socket::send(&socket, &welcome.to_bytes(), &[]);
        };
        let (len, fds) = match received {
            Ok(received) => {
                // Whatever these descriptors are, this thread closes none of them.
                let fds = received.fds.into_iter().map(|fd| socket.beside(fd));
                let fds: Vec<_> = fds.collect();
                if received.is_short {
                    let limit = handfast_sys::process::descriptor_limit();
                    return refuse(Status::Exhausted, u32::try_from(limit).unwrap_or(u32::MAX));
                }
                if received.len_bytes == 0 {
                    return;
                }
                (received.len_bytes, fds)
            }
            // Perhaps a connector of another release.
            Err(Errno::MSGSIZE) => (bytes.len(), Vec::new()),
            Err(_) => return,
        };
        let hello = match Hello::parse(&bytes[..len]) {
            Ok(hello) => hello,
            Err(Malformed::Version { .. }) => return refuse(Status::Version, 0),
            Err(_) => return refuse(Status::Malformed, 0),
        };
        // The one that it connected to, also where another has its receiver by now. Acquire: pairs with the Release of
        // `unlisten`. The name of one that leaves is another process's.
        let leaves = |port: &Arc<Port>| port.is_leaving.load(Ordering::Acquire);
        if port.as_ref().is_some_and(leaves) {
            return refuse(Status::Crossed, 0);
        }
        let is_there = |port: &Arc<Port>| {
            let known = self.process.port(port.receiver);
            port.name == hello.name && known.is_some_and(|known| Arc::ptr_eq(&known, port))
        };
        // By the door there is no port.
        if port.as_ref().is_some_and(|port| !is_there(port)) {
            return refuse(Status::NoSuchPort, 0);
        }
        // The kernel vouches for its identity and that it lives; a number alone may be another's by now.
        let pidfd = match socket::peer_pidfd(&socket) {
            Ok(pidfd) if handfast_sys::process::has_ended(&pidfd) => return,
            Ok(pidfd) => Some(pidfd),
            // Before Linux 6.5 there is no such descriptor.
            Err(Errno::NOPROTOOPT) => None,
            Err(Errno::MFILE | Errno::NFILE) => {
                let limit = handfast_sys::process::descriptor_limit();
                return refuse(Status::Exhausted, u32::try_from(limit).unwrap_or(u32::MAX));
            }
            Err(_) => return,
        };
        let identity = (peer, pidfd.as_ref());
        if self.process.is_borrowed(hello.incarnation, identity) {
            return refuse(Status::Malformed, 0);
        }
        let mut welcome = Welcome::refusal(self.process.incarnation, Status::Known, 0);
        welcome.port = port.as_ref().map_or(0, |port| port.id);
        // Held until there is a link, so that no thread that connects to this peer meanwhile
        // makes a second.
        let mut connecting = self.process.connecting.taken();
        let connects = connecting.iter().any(|to| to.pid == peer.pid);
        let found = self
            .process
            .hold_any(|link| link.incarnation == hello.incarnation && link.peer.pid == peer.pid);
        if let Some(link) = &found
            && hello.known
        {
            if link.is_left() {
                // The peer has been told that this process does not use the link, and will say that it does, or
                // end it.
                return refuse(Status::Crossed, 0);
            }
            link.granted.store(true, Ordering::Release);
            match port
                .as_ref()
                .map(|port| link.export(port, Target::full(port.id, 0)))
            {
                None => {}
                Some(Ok(handle)) => welcome.handle = handle,
                // The link is ending: it is another's turn to make one.
                Some(Err(Refused::Over)) => return refuse(Status::Crossed, 0),
                Some(Err(_)) => return refuse(Status::Exhausted, link.quotas.rights()),
            }
            let _ = socket::send(&socket, &welcome.to_bytes(), &[]);
            return;
        }
        if self.process.is_another(peer)
            && self.crosses(&hello, connects, found.as_deref().map(|link| &**link))
        {
            return refuse(Status::Crossed, 0);
        }
        let Some(their_bells) = fds.into_iter().next() else {
            return refuse(Status::Malformed, 0);
        };
        // Nor until the offer is taken, or over.
        let is_another = self.process.is_another(peer);
        if is_another {
            connecting.push(peer);
        }
        drop(connecting);
        let turn = is_another.then(|| TurnOf(self.process.clone(), peer));
        let offer = self.offer((peer, pidfd, turn), &their_bells, &hello);
        let offer = match offer {
            Ok(offer) => offer,
            Err(resource) => {
                let limit = match resource {
                    Resource::Exhausted(exhausted) => exhausted.limit,
                    Resource::NoMemoryFiles(_) | Resource::Os(_) => 0,
                };
                refuse(Status::Exhausted, u32::try_from(limit).unwrap_or(u32::MAX));
                crate::guest::tell!(
                    warn,
                    pid = peer.pid,
                    limit,
                    "a connection was refused for want of resources"
                );
                return;
            }
        };
        // A memory file, which closes at once.
        drop(their_bells.into_inner());
        welcome.status = Status::Linked;
        welcome.link = offer.place.index();
        // The first that the link will give.
        welcome.handle = port.as_ref().map_or(0, |_| IS_HANDLE);
        let fds = [offer.region_fd.as_fd(), offer.place.group().fd.as_fd()];
        let sent = socket.send(&welcome.to_bytes(), &fds);
        if sent == Err(Errno::NOBUFS) {
            // Until others have received theirs: it asks again.
            return refuse(Status::Crossed, 0);
        }
        if sent.is_ok() {
            self.await_more(Pending {
                socket,
                peer,
                port,
                deadline_ns: 0,
                charge,
                offer: Some(Box::new(offer)),
            });
        }
    }

    /// Whether a hello has crossed with one of ours to the same process, so that there is, or will be, another
    /// link than the one it asks for. When two processes connect to each other at the same moment, the one with
    /// the lower incarnation makes the link.
    fn crosses(&self, hello: &Hello, connects: bool, found: Option<&Link>) -> bool {
        match found {
            // The peer has this link too by now, unless it has ended the link, and that has not been heard yet.
            // Told once: it may see us under another user than we were when the link was made.
            Some(link) if !hello.known && !socket::is_closed(&link.socket) => {
                !link.crossed.swap(true, Ordering::Relaxed)
            }
            // The link it knows of is ours to come; or has ended, and the peer will hear of that.
            _ => connects && (hello.known || self.process.incarnation < hello.incarnation),
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
                    what: "links and descriptors that peers of one user may hold; end some of those processes",
                    limit: refused.limit(),
                })
            })
        };
        // The charges for the link; for its process descriptor and its region, while it is offered at least. The socket
        // counts already.
        let charges = vec![charge(Quota::Links, 1)?, charge(Quota::Descriptors, 2)?];
        let peer_bells = map_peer_bells(their_bells, peer.uid)?;
        let region_fd =
            shared::create("handfast link", REGION_BYTES).map_err(os("memfd_create"))?;
        let mapping =
            Mapping::new(&region_fd, REGION_BYTES, Access::ReadWrite).map_err(os("mmap"))?;
        Ok(Offer {
            charges,
            pidfd,
            peer_bells,
            mapping,
            region_fd,
            peer_index: hello.link,
            incarnation: hello.incarnation,
            place: self.process.reserve(peer.uid)?,
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
        let identity = (peer, offer.pidfd.as_ref());
        if !is_sealed || self.process.is_borrowed(offer.incarnation, identity) {
            return;
        }
        let mut offer = *offer;
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
            return;
        }
        let port = port.as_deref();
        let parts = Parts {
            agreed: self.process.agreed,
            region,
            calls: Side::Acceptor,
            peer_bells: offer.peer_bells,
            peer_index: offer.peer_index,
            place: offer.place,
            socket,
            pidfd: offer.pidfd,
            charges: offer.charges,
            peer,
            incarnation: offer.incarnation,
        };
        let Ok(link) = self.process.add_link_granting(parts, port) else {
            crate::guest::tell!(
                warn,
                pid = peer.pid,
                "a link was ended for want of resources"
            );
            return;
        };
        if self.process.welcome(&link, port).is_err() {
            self.process.end_link(&link);
        }
    }
}
