//! The accepting half of the handshake.

use super::{Keeper, Pending, map_peer_bells};
use crate::door::DOOR;
use crate::error::Resource;
use crate::link::{Link, Parts};
use crate::port::Port;
use core::sync::atomic::Ordering;
use handfast_layout::hello::{HELLO_BYTES, Hello, Malformed, Status, Welcome};
use handfast_layout::link::{REGION_BYTES, Side};
use handfast_proto::rights::{Refused, Target};
use handfast_region::Region;
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_sys::{AsFd, Errno, OwnedFd, socket};
use std::sync::Arc;

impl Keeper {
    /// Reads a hello and answers it.
    pub(super) fn greet(&mut self, index: usize) {
        let Some(pending) = &self.pending[index] else {
            return;
        };
        let mut bytes = [0; HELLO_BYTES + 1];
        let received = socket::receive(&pending.socket, &mut bytes, 1);
        if matches!(received, Err(Errno::AGAIN | Errno::INTR)) {
            return;
        }
        let Some(Pending {
            socket, receiver, ..
        }) = self.pending[index].take()
        else {
            return;
        };
        self.process.poll.remove(&socket);
        let refuse = |status, limit| {
            let welcome = Welcome::refusal(self.process.incarnation, status, limit);
            let _ = socket::send(&socket, &welcome.to_bytes(), &[]);
        };
        let (len, fds) = match received {
            Ok((0, _)) => return,
            Ok(received) => received,
            Err(Errno::MFILE) => {
                let limit = handfast_sys::process::descriptor_limit();
                return refuse(Status::Exhausted, u32::try_from(limit).unwrap_or(u32::MAX));
            }
            // Of another release, perhaps.
            Err(Errno::MSGSIZE) => (bytes.len(), Vec::new()),
            Err(_) => return,
        };
        let hello = match Hello::parse(&bytes[..len]) {
            Ok(hello) => hello,
            Err(Malformed::Version { .. }) => return refuse(Status::Version, 0),
            Err(_) => return refuse(Status::Malformed, 0),
        };
        let is_it = |port: &Arc<Port>| port.name == hello.name;
        // By the door there is no port.
        let port = self.process.port(receiver).filter(is_it);
        if port.is_none() && receiver != DOOR {
            return refuse(Status::NoSuchPort, 0);
        }
        // Acquire: pairs with the Release of `unlisten`. Its name is another process's by now.
        if port
            .as_ref()
            .is_some_and(|port| port.is_leaving.load(Ordering::Acquire))
        {
            return refuse(Status::Crossed, 0);
        }
        let Ok(peer) = socket::peer(&socket) else {
            return;
        };
        if self.process.is_borrowed(hello.incarnation, peer) {
            return refuse(Status::Malformed, 0);
        }
        let mut welcome = Welcome::refusal(self.process.incarnation, Status::Known, 0);
        welcome.port = port.as_ref().map_or(0, |port| port.id);
        // Held until there is a link, so that no thread that connects to this peer meanwhile
        // makes a second.
        let connecting = self.process.connecting.taken();
        let connects = connecting.iter().any(|to| to.pid == peer.pid);
        let found = self
            .process
            .hold_any(|link| link.incarnation == hello.incarnation && link.peer.pid == peer.pid);
        if let Some(link) = &found
            && hello.known
        {
            if link.is_left() {
                // It has been told that this process does not use the link, and will say that it does, or end it.
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
        let port = port.as_deref();
        let welcomed = self.welcome((socket, peer), port, &hello, &their_bells, welcome);
        if let Ok(link) = &welcomed {
            self.process.welcomed(link, port);
        }
        if let Err(resource) = welcomed {
            let limit = match resource {
                Resource::Exhausted(exhausted) => exhausted.limit,
                Resource::NoMemoryFiles(_) | Resource::Os(_) => 0,
            };
            tracing::warn!(
                pid = peer.pid,
                limit,
                "a connection was refused for want of resources"
            );
        }
    }

    /// Whether a hello has crossed with one of ours to the same process, so that there is, or will
    /// be, another link than the one it asks for. Of two that connect to each other at the same
    /// moment, the one with the lower incarnation makes the link.
    fn crosses(&self, hello: &Hello, connects: bool, found: Option<&Link>) -> bool {
        match found {
            // It has this link too by now, unless it has ended it, and that has not been heard yet.
            // Told once: it may see us under another user than we were when the link was made.
            Some(link) if !hello.known && !socket::is_closed(&link.socket) => {
                !link.crossed.swap(true, Ordering::Relaxed)
            }
            // What it knows of is ours to come; or has ended, and it will hear of that.
            _ => connects && (hello.known || self.process.incarnation < hello.incarnation),
        }
    }

    /// Makes a link and sends its descriptors. On failure the connector has been told.
    fn welcome(
        &self,
        (socket, peer): (OwnedFd, socket::Peer),
        port: Option<&Port>,
        hello: &Hello,
        their_bells: &OwnedFd,
        mut welcome: Welcome,
    ) -> Result<Arc<Link>, Resource> {
        let made = self.make(peer, their_bells);
        let (group, index, region_fd, region, peer_bells) = match made {
            Ok(made) => made,
            Err(resource) => {
                let limit = match &resource {
                    Resource::Exhausted(exhausted) => exhausted.limit,
                    Resource::NoMemoryFiles(_) | Resource::Os(_) => 0,
                };
                let limit = u32::try_from(limit).unwrap_or(u32::MAX);
                let refusal = Welcome::refusal(welcome.incarnation, Status::Exhausted, limit);
                let _ = socket::send(&socket, &refusal.to_bytes(), &[]);
                return Err(resource);
            }
        };
        welcome.status = Status::Linked;
        welcome.link = index;
        let link = self.process.add_link(Parts {
            agreed: self.process.agreed,
            region,
            calls: Side::Acceptor,
            peer_bells,
            peer_index: hello.link,
            group: group.clone(),
            index,
            socket,
            peer,
            incarnation: hello.incarnation,
        })?;
        if crate::notify::is_active() {
            let _ = handfast_sys::signal::raise_on_arrival(&link.socket, true);
        }
        welcome.handle = port
            .and_then(|port| link.export(port, Target::full(port.id, 0)).ok())
            .unwrap_or_default();
        let fds = [region_fd.as_fd(), group.fd.as_fd()];
        if socket::send(&link.socket, &welcome.to_bytes(), &fds).is_err() {
            self.process.end_link(&link);
        }
        Ok(link)
    }

    #[allow(
        clippy::type_complexity,
        reason = "the parts of one link, named at the only caller"
    )]
    fn make(
        &self,
        peer: socket::Peer,
        their_bells: &OwnedFd,
    ) -> Result<(Arc<crate::group::Group>, u32, OwnedFd, Region, Region), Resource> {
        let os = |call| move |errno| Resource::of(call, errno);
        let peer_bells = map_peer_bells(their_bells)?;
        let region_fd = create_sealed("handfast link", REGION_BYTES).map_err(os("memfd_create"))?;
        let mapping =
            Mapping::new(&region_fd, REGION_BYTES, Access::ReadWrite).map_err(os("mmap"))?;
        let group = self.process.group(peer.uid)?;
        let index = group.reserve()?;
        Ok((group, index, region_fd, Region::mapped(mapping), peer_bells))
    }
}
