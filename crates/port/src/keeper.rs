//! The keeper: the one quiet thread of a process with links.
//!
//! It sleeps in one poll set of listeners, link sockets and process descriptors. It makes the
//! accepting half of handshakes, turns the end of a peer into typed failures, and passes on what
//! comes through control sockets. The data path never needs it.

use crate::descriptors::{CONTROL_BYTES_MAX, Unheard};
use crate::error::Resource;
use crate::link::{Link, control};
use crate::process::{Process, WATCH_NS, token};
use handfast_layout::bell;
use handfast_layout::hello::{Status, Welcome};
use handfast_region::Region;
use handfast_ring::Fault;
use handfast_sys::memory::{Access, Mapping, is_sealed};
use handfast_sys::poll::{Event, Trigger};
use handfast_sys::{AsFd, Errno, OwnedFd, clock, socket};
use std::sync::{Arc, PoisonError};

mod greet;

/// A handshake under way.
struct Pending {
    socket: OwnedFd,
    receiver: u32,
    deadline_ns: u64,
}

/// Handshakes under way at once; the oldest gives way.
const PENDING_MAX: usize = 64;
/// How long a connector may take to say hello.
const HELLO_TIMEOUT_NS: u64 = 2_000_000_000;
/// Control messages taken from one link before others get their turn.
const CONTROL_BUDGET: usize = 64;
/// The longest between two looks at callers that sleep.
const WATCH_NS_MAX: u64 = 10_000_000_000;
/// How soon rights are looked at again that could not be given back yet, or end.
const GIVE_BACK_AGAIN_NS: u64 = 2_000_000;
/// The longest between two looks at rights that messages under way still use.
const UNSETTLED_NS_MAX: u64 = 8_000_000;
/// The longest between two attempts to tell a peer that does not read.
const UNHEARD_NS_MAX: u64 = 100_000_000;
/// How soon connections are taken again that could be neither taken nor refused.
const LISTEN_AGAIN_NS: u64 = 100_000_000;
/// How often waiters of a dead link are woken again, until they have left.
const ROUSE_EVERY_NS: u64 = 1_000_000;

struct Keeper {
    process: Arc<Process>,
    pending: Vec<Option<Pending>>,
    /// How long until sleeping callers are looked at again.
    watch_ns: u64,
    /// How long until peers that do not read are told again.
    again_ns: u64,
    /// Dead links whose waiters have not all left.
    leaving: Vec<Arc<Link>>,
    /// Closed and reopened to refuse a connection when descriptors have run out.
    spare: Option<OwnedFd>,
    /// Links out of the poll set, by serial, and until when: their peers have said too much.
    muted: Vec<(u64, u32)>,
    /// When the listeners, which are out of the poll set, come back.
    deaf_until_ns: Option<u64>,
}

/// Starts the keeper thread. It ends with the process.
pub(crate) fn start(process: Arc<Process>) -> std::io::Result<()> {
    let mut keeper = Keeper {
        process,
        pending: (0..PENDING_MAX).map(|_| None).collect(),
        watch_ns: WATCH_NS,
        again_ns: GIVE_BACK_AGAIN_NS,
        leaving: Vec::new(),
        spare: spare(),
        muted: Vec::new(),
        deaf_until_ns: None,
    };
    std::thread::Builder::new()
        .name("handfast-keeper".into())
        .stack_size(256 * 1024)
        .spawn(move || keeper.run())
        .map(|_| ())
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

impl Keeper {
    fn run(&mut self) {
        handfast_sys::signal::block_all();
        let mut events = Vec::new();
        loop {
            events.clear();
            self.process.poll.wait(self.next_deadline(), &mut events);
            for event in &events {
                self.handle(*event);
            }
            self.expire();
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let handshakes = self.pending.iter().flatten();
        let rouse = (!self.leaving.is_empty()).then(|| clock::now_ns() + ROUSE_EVERY_NS);
        handshakes
            .map(|pending| pending.deadline_ns)
            .chain(rouse)
            .chain(self.deaf_until_ns)
            .chain(self.muted.iter().map(|(until_ns, _)| *until_ns))
            .min()
    }

    fn expire(&mut self) {
        let now_ns = clock::now_ns();
        for entry in &mut self.pending {
            if entry
                .as_ref()
                .is_some_and(|pending| pending.deadline_ns <= now_ns)
            {
                // Dropping the socket takes it out of the poll set.
                *entry = None;
            }
        }
        // A hostile peer may have put a waiter back to sleep: again, until all have left.
        self.leaving.retain(|link| {
            link.disturb();
            link.parked.any()
        });
        let over = self
            .muted
            .extract_if(.., |(until_ns, _)| *until_ns <= now_ns);
        let over: Vec<_> = over.map(|(_, serial)| serial).collect();
        for link in over.into_iter().filter_map(|serial| self.link(serial)) {
            let listening = token::LINK | u64::from(link.serial);
            let _ = (self.process.poll).add(&link.socket, listening, Trigger::Level);
        }
        if self
            .deaf_until_ns
            .is_some_and(|until_ns| until_ns <= now_ns)
        {
            self.listen_again();
        }
    }

    fn handle(&mut self, event: Event) {
        let index = (event.token & !token::KIND) as usize;
        match event.token & token::KIND {
            token::ATTENTION => {
                self.process.attention.lower();
                self.collect_dead();
                self.listen_to_unheard();
                self.process.relay();
            }
            token::WATCH => self.watch(),
            token::RELEASES => self.give_back(),
            token::LISTENER => self.accept(index as u32),
            token::PENDING => self.greet(index),
            token::PROCESS => self.end(index as u32),
            _ => self.listen(index as u32, event),
        }
    }

    fn link(&self, serial: u32) -> Option<Arc<Link>> {
        let links = self
            .process
            .links
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        links
            .iter()
            .flatten()
            .find(|link| link.serial == serial)
            .cloned()
    }

    fn end(&mut self, serial: u32) {
        if let Some(link) = self.link(serial) {
            self.process.end_link(&link);
            self.leaving.push(link);
        }
    }

    fn collect_dead(&mut self) {
        let dead: Vec<_> = {
            let links = self
                .process
                .links
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            links
                .iter()
                .flatten()
                .filter(|link| link.is_down())
                .cloned()
                .collect()
        };
        for link in dead {
            self.process.end_link(&link);
            self.leaving.push(link);
        }
    }

    /// Looks after callers that sleep. A server that takes long is woken less and less often.
    fn watch(&mut self) {
        self.process.watch.clear();
        let links: Vec<_> = {
            let links = self.process.links.lock();
            let links = links.unwrap_or_else(PoisonError::into_inner);
            let asleep = |link: &&Arc<Link>| link.parked.any();
            links.iter().flatten().filter(asleep).cloned().collect()
        };
        if links.is_empty() {
            self.watch_ns = WATCH_NS;
            return;
        }
        let moved = links.iter().fold(false, |moved, link| link.watch() | moved);
        self.watch_ns = if moved {
            WATCH_NS
        } else {
            (self.watch_ns * 2).min(WATCH_NS_MAX)
        };
        self.process.watch_in(self.watch_ns);
    }

    /// Gives back the rights nobody holds any more, and ends those that peers have given back.
    fn give_back(&mut self) {
        self.process.gives_back();
        let links: Vec<_> = {
            let links = self.process.links.lock();
            let links = links.unwrap_or_else(PoisonError::into_inner);
            links.iter().flatten().cloned().collect()
        };
        let mut again = self.process.refuse_unbound();
        again |= self.process.start_workers();
        let mut is_unheard = false;
        for link in links {
            again |= self.process.leave_unused(&link);
            is_unheard |= !link.say_again();
            is_unheard |= !link.tell_revoked() || !link.give_back(&self.process);
            is_unheard |= link.refuse_replies(&self.process) | self.process.leave(&link);
            link.settle(&self.process);
            match link.leave_lanes(&self.process) {
                Ok(some_left) => again |= some_left,
                Err(fault) => {
                    link.poison(fault);
                    self.process.attention.raise();
                }
            }
            // Replies to calls that were given up have made room.
            link.wake_for_room();
            again |= link.has_unsettled();
        }
        self.process.claim_late();
        self.process.tell_new_holders();
        for port in self.process.ports(|port| port.served.get().is_some()) {
            port.served.get().inspect(|local| local.publish(&port));
        }
        if let Some(from_now_ns) = self.process.call_due() {
            self.process.give_back_in(from_now_ns);
        }
        is_unheard |= self.process.switch_again();
        is_unheard |= self.process.leave_paths() | self.process.expire_provisions();
        if self.process.relays().has_pieces() {
            self.process.relay();
        }
        // Not for ever so often at a peer that is stopped.
        self.again_ns = match (again, is_unheard) {
            (true, _) => (self.again_ns * 2).min(UNSETTLED_NS_MAX),
            (false, true) => (self.again_ns * 2).min(UNHEARD_NS_MAX),
            (false, false) => GIVE_BACK_AGAIN_NS,
        };
        if again || is_unheard {
            self.process.give_back_in(self.again_ns);
        }
    }

    /// Takes the control messages that others have read in search of descriptors.
    fn listen_to_unheard(&mut self) {
        let unheard: Vec<_> = {
            let links = self.process.links.lock();
            let links = links.unwrap_or_else(PoisonError::into_inner);
            let has_unheard = |link: &&Arc<Link>| link.has_unheard();
            let unheard = links.iter().flatten().filter(has_unheard);
            unheard.map(|link| link.serial).collect()
        };
        for serial in unheard {
            let event = Event {
                token: token::LINK | u64::from(serial),
                readable: true,
                writable: false,
                hung_up: false,
            };
            self.listen(serial, event);
            if self.link(serial).is_some_and(|link| link.has_unheard()) {
                self.process.attention.raise();
            }
        }
    }

    /// Takes control messages of a link, as many as its peer may send.
    fn listen(&mut self, serial: u32, event: Event) {
        let Some(link) = self.link(serial) else {
            return;
        };
        let mut count = 0;
        self.listen_to(&link, event, &mut count);
        let until_ns = link.heard_enough(&self.process, count);
        let is_muted = self.muted.iter().any(|(_, muted)| *muted == serial);
        if let Some(until_ns) = until_ns.filter(|_| !link.is_down() && !is_muted) {
            // Its death is told by its process descriptor meanwhile.
            self.process.poll.remove(&link.socket);
            self.muted.push((until_ns, serial));
        }
    }

    fn listen_to(&mut self, link: &Arc<Link>, event: Event, count: &mut u32) {
        let serial = link.serial;
        let mut bytes = [0; CONTROL_BYTES_MAX];
        for _ in 0..CONTROL_BUDGET {
            match link.hear(&mut bytes) {
                Ok((0, _)) => return self.end(serial),
                Err(Unheard::Fault(fault)) => {
                    link.poison(fault);
                    return self.end(serial);
                }
                Ok((len, fds)) => {
                    *count += 1;
                    if let Err(fault) = self.control(link, &bytes[..len], fds) {
                        link.poison(fault);
                        return self.end(serial);
                    }
                }
                Err(Unheard::Os(Errno::AGAIN)) if event.hung_up && !event.readable => {
                    return self.end(serial);
                }
                Err(Unheard::Os(Errno::AGAIN | Errno::INTR)) => return,
                // Without room for its descriptor a message is lost, and only that.
                Err(Unheard::Os(Errno::MFILE)) => {}
                Err(Unheard::Os(Errno::MSGSIZE)) => {
                    tracing::warn!(
                        pid = link.peer.pid,
                        "control message out of bounds, link cut"
                    );
                    return self.end(serial);
                }
                Err(_) => return self.end(serial),
            }
        }
    }

    fn control(&self, link: &Arc<Link>, bytes: &[u8], mut fds: Vec<OwnedFd>) -> Result<(), Fault> {
        match *bytes {
            [control::RING, receiver] => {
                link.wake_answered();
                self.process.raise_sets();
                self.process.rung(receiver.into());
                self.process.relay();
            }
            [control::STAT, _] => {
                let message = [control::COUNTERS, 0];
                let _ = socket::send(&link.socket, &message, &[self.process.tally_fd.as_fd()]);
            }
            [control::COUNTERS, _] => {
                let mut counters = link.counters.lock().unwrap_or_else(PoisonError::into_inner);
                *counters = fds.pop();
                link.slot_freed.1.notify_all();
            }
            // It ends at the next event.
            [control::UNUSED, _] if self.process.hear_unused(link) => {
                self.process.attention.raise()
            }
            [control::USED, _] => link.stays_in_use(),
            [control::FREE, _] => self.process.hear_free(link),
            [control::LANE_FREE, lane] => link.hear_lane_free(&self.process, lane)?,
            [control::LANE_WANTED, _] => link.say_taken(&self.process),
            [control::LANE_BACK, lane] => {
                link.hear_lane_back(lane)?;
                self.process.has_lane();
            }
            [control::CLOSED, _, a, b, c, d] => link.close_port(u32::from_le_bytes([a, b, c, d])),
            [control::REVOKED, _, ref words @ ..] => link.hear_revoked(words),
            [control::SPREAD, _, ref rest @ ..] => link.hear_spread(rest)?,
            [control::RELEASE, _, ref releases @ ..] => {
                link.take_back(&self.process, releases)?;
            }
            [
                kind @ control::PATH_ASK..=control::PATH_DROP,
                _,
                ref rest @ ..,
            ] => {
                self.process.take_path_message(link, kind, rest)?;
            }
            [
                kind @ (control::PROVISION_VOID | control::DECLINED),
                _,
                ref rest @ ..,
            ] => {
                self.process.take_introduction_message(link, kind, rest)?;
            }
            [
                kind @ control::DOOR_WHERE..=control::DOOR_OF,
                _,
                ref rest @ ..,
            ] => {
                self.process
                    .take_door_message(link, (kind, rest), fds.pop())?;
            }
            [kind @ control::ARRIVED..=control::MOVED, _, ref rest @ ..] => {
                self.process.take_moving_message(link, (kind, rest))?;
            }
            [kind @ control::KEPT..=control::LEFT, _, ref rest @ ..] => {
                self.process.take_again_message(link, kind, rest)?;
            }
            // Unknown messages of a later release are passed over.
            _ => {}
        }
        Ok(())
    }

    /// Takes waiting connections of the listener of `receiver`.
    fn accept(&mut self, receiver: u32) {
        let listener = {
            let listeners = self
                .process
                .listeners
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            listeners
                .iter()
                .find(|(of, _)| *of == receiver)
                .map(|(_, fd)| fd.clone())
        };
        let Some(listener) = listener else { return };
        for _ in 0..PENDING_MAX {
            match socket::accept(&*listener) {
                Ok(socket) => self.begin(socket, receiver),
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.refuse_for_descriptors(&listener);
                    return;
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(_) => return self.be_deaf(),
            }
        }
    }

    /// Without a free descriptor a waiting connection can be neither taken nor told; one is kept
    /// for this.
    fn refuse_for_descriptors(&mut self, listener: &OwnedFd) {
        self.spare = None;
        if let Ok(socket) = socket::accept(listener) {
            let limit = handfast_sys::process::descriptor_limit();
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            let welcome = Welcome::refusal(self.process.incarnation, Status::Exhausted, limit);
            let _ = socket::send(&socket, &welcome.to_bytes(), &[]);
        }
        self.spare = spare();
        if self.spare.is_none() {
            // Another thread was faster.
            self.be_deaf();
        }
    }

    /// Takes the listeners out of the poll set for a while: a waiting connection that can be neither
    /// taken nor refused would be reported again at once, and again.
    fn be_deaf(&mut self) {
        tracing::warn!("connections wait: no descriptor is free to take or refuse them");
        self.deaf_until_ns = Some(clock::now_ns() + LISTEN_AGAIN_NS);
        let listeners = self.process.listeners.lock();
        let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        for (_, listener) in listeners.iter() {
            self.process.poll.remove(&**listener);
        }
    }

    /// Puts the listeners back, if there is a descriptor to refuse a connection with.
    fn listen_again(&mut self) {
        self.spare = self.spare.take().or_else(spare);
        if self.spare.is_none() {
            self.deaf_until_ns = Some(clock::now_ns() + LISTEN_AGAIN_NS);
            return;
        }
        self.deaf_until_ns = None;
        let listeners = self.process.listeners.lock();
        let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        for (receiver, listener) in listeners.iter() {
            let listening = token::LISTENER | u64::from(*receiver);
            // One that was bound meanwhile is there already.
            let _ = (self.process.poll).add(&**listener, listening, Trigger::Level);
        }
    }

    fn begin(&mut self, socket: OwnedFd, receiver: u32) {
        let free = self.pending.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            let oldest = self.pending.iter().enumerate();
            oldest
                .min_by_key(|(_, pending)| pending.as_ref().map(|pending| pending.deadline_ns))
                .map_or(0, |(index, _)| index)
        });
        let deadline_ns = clock::now_ns() + HELLO_TIMEOUT_NS;
        let added = self
            .process
            .poll
            .add(&socket, token::PENDING | index as u64, Trigger::Level);
        if added.is_ok() {
            self.pending[index] = Some(Pending {
                socket,
                receiver,
                deadline_ns,
            });
        }
    }
}

/// Maps the bells a peer sent, after checking that the file cannot shrink under us.
pub(crate) fn map_peer_bells(fd: &OwnedFd) -> Result<Region, Resource> {
    let os = |call| move |errno| Resource::of(call, errno);
    if !is_sealed(fd, bell::REGION_BYTES).map_err(os("fcntl(F_GET_SEALS)"))? {
        return Err(Resource::of("fcntl(F_GET_SEALS)", Errno::PERM));
    }
    let mapping = Mapping::new(fd, bell::REGION_BYTES, Access::ReadWrite).map_err(os("mmap"))?;
    Ok(Region::mapped(mapping))
}
