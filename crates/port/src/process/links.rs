//! The links of a process: from their first message to their end.

use super::{NEXT_SERIAL, Process, token};
use crate::again;
use crate::arrivals;
use crate::descriptors::inbox;
use crate::door;
use crate::error::{Exhausted, Resource};
use crate::introduce;
use crate::introduce::ends;
use crate::lending;
use crate::link::{Link, Parts};
use crate::loops;
use crate::moving;
use crate::notice;
use crate::paths;
use crate::per_cpu;
use crate::port::Port;
use crate::quotas;
use crate::redirect;
use crate::relay;
use crate::vine;
use core::sync::atomic::Ordering;
use handfast_channel::bell;
use handfast_layout::part::IS_HANDLE;
use handfast_proto::rights::Target;
use handfast_proto::timers::Timer;
use handfast_sys::poll::Trigger;
use handfast_sys::socket::Peer;
use handfast_sys::{Errno, OwnedFd, process};
use std::sync::Arc;

impl Process {
    /// Sends the peer of a new link its welcome, with a right to `port`. The peer is told if `port` has been dropped since the
    /// welcome was made ready; if it has moved and its trail has ended, there is no welcome, and the peer connects again, to the new
    /// home. Then the peer is told of the ports that are served on each CPU.
    pub(crate) fn welcome(&self, link: &Link, port: Option<&Port>) -> Result<(), Errno> {
        // The lock: a thread that drops the port finds the link there, or this finds the port closing.
        let links = self.links.lock();
        // Relaxed: under the lock.
        let closing = port.filter(|port| port.is_closing.load(Ordering::Relaxed));
        drop(links);
        if let Some(port) = closing {
            // Acquire: pairs with the Release of `depart`.
            if port.is_leaving.load(Ordering::Acquire) {
                return Err(Errno::CONNRESET);
            }
            // The word waits for the welcome.
            let _ = link.tell_closed(port);
        }
        if !link.welcome()? {
            self.schedule(Timer::Backlog);
        }
        if let Some(home) = port.and_then(|port| port.home.get()) {
            // When it told the holders, the link may not have been among them.
            home.exported();
        }
        per_cpu::tell_spread(self, link);
        Ok(())
    }

    /// The links that have not ended.
    pub(crate) fn live_links(&self) -> Vec<Arc<Link>> {
        self.links.lock().iter().flatten().cloned().collect()
    }

    /// Tells all peers that `port` is going; where the node was shut down, the end of its links tells them.
    pub(crate) fn tell_closing(&self, port: &Port) {
        let links = self.links.lock();
        // Release: pairs with the Acquire of callers that go to a domain without a link. Peers look under the lock, as
        // in `welcome`.
        port.is_closing.store(true, Ordering::Release);
        if self.is_over() {
            return;
        }
        let mut here = Vec::new();
        for link in links.iter().flatten() {
            if !link.tell_closed(port) {
                self.schedule(Timer::Backlog);
            }
            here.extend(loops::twin(link));
        }
        drop(links);
        // Before the next port at its receiver: nothing that this process sends to this one comes there. Without the lock:
        // wakers may run.
        here.iter().for_each(|twin| twin.close_port(port.id));
    }

    /// Enters a new link everywhere: table, group, keeper, counters.
    pub(crate) fn add_link(self: &Arc<Self>, parts: Parts) -> Result<Arc<Link>, Resource> {
        self.add_link_granting(parts, None)
    }

    /// As [`Self::add_link`]; the peer has been promised a right to `port`, by the first handle, and may have used it.
    pub(crate) fn add_link_granting(
        self: &Arc<Self>,
        parts: Parts,
        port: Option<&Port>,
    ) -> Result<Arc<Link>, Resource> {
        // Relaxed: a number.
        let serial = NEXT_SERIAL.fetch_add(1, Ordering::Relaxed);
        let link = Arc::new(Link::new(self.clone(), parts, serial, self.rows.take()));
        // No other thread sets it.
        let _ = link.itself.set(Arc::downgrade(&link));
        let limited_by = quotas::limit(self, &link);
        let promised = port.map(|port| notice::export(&link, port, Target::full(port.id, 0)));
        let entered = match promised {
            None | Some(Ok(IS_HANDLE)) => self.enter(&link),
            Some(_) => Err(Resource::Exhausted(Exhausted {
                what: "rights of a peer (set_quotas)",
                limit: link.quotas.rights().into(),
            })),
        };
        if let Err(resource) = entered {
            // Only this thread ends it: it is in no list.
            link.take_down();
            notice::end_exports(&link, None, |receiver| self.port(receiver));
            self.take_out(&link);
            return Err(resource);
        }
        let user = link.peer.uid;
        introduce::provisions(self).belongs(link.identity(), user);
        let mut links = self.links.lock();
        let slot = links
            .iter()
            .position(Option::is_none)
            .unwrap_or(links.len());
        if slot == links.len() {
            links.push(None);
        }
        links[slot] = Some(link.clone());
        drop(links);
        // A thread that starts the strategy finds the link in the list, or this finds it active.
        if arrivals::is_active() {
            let _ = handfast_sys::signal::raise_on_arrival(&link.socket, true);
        }
        if self.is_over() {
            // A shutdown may have looked before.
            self.end_link(&link);
        }
        // A thread that sets other limits finds the link there, or this finds the new limits.
        quotas::limit_again(self, &link, &limited_by);
        if link.is_down() {
            // Cut by a receiver, when there was nothing to end.
            self.attention.raise();
        }
        self.hear_early(&link);
        crate::guest::tell!(debug, pid = link.peer.pid, uid = link.peer.uid, "link made");
        Ok(link)
    }

    /// A peer that has sent its welcome may ring before its link is in the group. A thread that was woken by the ring, or looked
    /// before it slept, has found nothing there, and looks again.
    fn hear_early(&self, link: &Link) {
        // A thread that has looked in vain had the group's lock before this thread: the messages it was rung for (E3), or
        // would have seen after its own fence (E4), are seen here. A thread that looks later finds the link.
        let has_rung =
            |port: &Port| bell::link_rang(&link.region, link.calls.other(), port.receiver);
        for port in self.ports(has_rung) {
            self.rouse(port.receiver);
        }
    }

    /// Enters a link in all tables where it is looked for by number: the code that ends it finds it everywhere.
    fn enter(&self, link: &Arc<Link>) -> Result<(), Resource> {
        link.group.set(link.index, Some(link));
        link.row.set(1, link.peer.pid.into());
        link.row.set(2, link.peer.uid.into());
        link.row.set(0, 1);
        let serial = u64::from(link.serial);
        let mut added = (self.poll).add(&link.socket, token::LINK | serial, Trigger::Level);
        if let (Ok(()), Some(pidfd)) = (&added, &link.pidfd) {
            added = (self.poll).add(pidfd, token::PROCESS | serial, Trigger::Level);
        }
        added.map_err(|errno| Resource::of("epoll_ctl", errno))
    }

    /// Takes a link out of all that. From then on its number may be another's.
    fn take_out(&self, link: &Link) {
        self.poll.remove(&link.socket);
        if let Some(pidfd) = &link.pidfd {
            self.poll.remove(pidfd);
        }
        link.row.end();
        self.groups.free(&link.group, link.index);
    }

    /// Ends a link and forgets it. Threads that still hold it see it down.
    pub(crate) fn end_link(self: &Arc<Self>, link: &Arc<Link>) {
        link.take_down();
        let mut links = self.links.lock();
        let found = links
            .iter_mut()
            .find(|entry| entry.as_ref().is_some_and(|entry| Arc::ptr_eq(entry, link)));
        let Some(entry) = found else { return };
        *entry = None;
        let mut ended = self.ended.lock();
        ended.retain(|link| link.strong_count() > 0);
        ended.push(Arc::downgrade(link));
        drop((ended, links));
        if link.is_cut() {
            inbox::close_unclaimed(link);
        } else {
            let ports = self.ports(|_| true);
            ports.iter().for_each(|port| port.keep_rung(link));
        }
        self.take_out(link);
        // Rights of these names may have become rights of other links that are gone, and those lead back here.
        let unused = link.imports().end();
        redirect::drop_moved(link, unused.into_iter());
        crate::guest::tell!(
            debug,
            pid = link.peer.pid,
            uid = link.peer.uid,
            "link ended"
        );
        // Release: pairs with the Acquire of a receiver that clears out dead lanes.
        self.deaths.fetch_add(1, Ordering::Release);
        // After that: a receiver looks for the messages of the dead before it is told.
        let vine = vine::of(self).get().map(|vine| vine.port.id);
        for badge in notice::end_exports(link, vine, |receiver| self.port(receiver)) {
            vine::vine_ended(self, vine.unwrap_or_default(), badge);
        }
        lending::end_loans(link);
        ends::end_introductions(self, link);
        door::end_questions(self, link);
        moving::end_moves(self, link);
        again::end_kept(self, link);
        paths::end_paths(self, link);
        relay::relay(self);
        self.rouse_all();
    }

    /// Keeper: forgets links that have ended and that no thread holds any more. Until then, some kilobytes of each stay
    /// in memory.
    pub(crate) fn forget_ended(&self) {
        let mut ended = self.ended.lock();
        ended.retain(|link| link.strong_count() > 0);
        if ended.is_empty() {
            *ended = Vec::new();
        }
    }

    /// Keeper: tells of links that were cut.
    pub(crate) fn tell_cuts(&self) {
        let cuts = core::mem::take(&mut *self.cuts.lock());
        for (Peer { pid, uid, .. }, fault) in cuts {
            crate::guest::tell!(warn, pid, uid, %fault, "link cut");
        }
    }

    /// Whether a peer is known to be another process: it has a number here, and not ours.
    pub(crate) fn is_another(&self, peer: Peer) -> bool {
        peer.pid != process::pid() && peer.pid != 0
    }

    /// Whether `incarnation` belongs to another process than `pidfd`, whose identity is `peer`: rights and replies go where an
    /// incarnation says. The kernel decides; where it cannot (before Linux 6.9) the first process that claims the incarnation
    /// has it.
    pub(crate) fn is_borrowed(
        &self,
        incarnation: [u8; 16],
        (peer, pidfd): (Peer, Option<&OwnedFd>),
    ) -> bool {
        pidfd.is_some_and(|pidfd| !process::proves(pidfd, &incarnation))
            || incarnation == self.incarnation && self.is_another(peer)
            || self
                .find_link(|link| link.incarnation == incarnation && link.peer.pid != peer.pid)
                .is_some()
    }

    pub(crate) fn find_link(&self, check: impl Fn(&Link) -> bool) -> Option<Arc<Link>> {
        self.links
            .lock()
            .iter()
            .flatten()
            .find(|link| !link.is_down() && check(link))
            .cloned()
    }
}
