//! The receiving side of a port: which lanes it polls, in which order, and when it may sleep.
//!
//! One thread at a time holds the poller (it is behind a lock that is never held asleep). A look
//! polls the active lanes round robin, takes what the bells say, and admits waiters. This file is the path of a message. `rung` and
//! `bells` make lanes active, `places` says which lanes are polled (by the rota of `handfast-proto`), `idle` puts the receiver to
//! sleep, `upkeep` and `load` are done now and then, and `clearing` lets go of the lanes of the dead.

pub(crate) mod answered;
pub(crate) mod bells;
pub(crate) mod clearing;
pub(crate) mod diverted;
pub(crate) mod gather;
pub(crate) mod idle;
pub(crate) mod in_turn;
pub(crate) mod lane;
pub(crate) mod load;
pub(crate) mod patience;
pub(crate) mod pinned;
pub(crate) mod places;
pub(crate) mod protocols;
pub(crate) mod rung;
pub(crate) mod said;
pub(crate) mod state;
pub(crate) mod through;
pub(crate) mod upkeep;
pub(crate) mod waiting;

use crate::arriving::adopt_one;
use crate::link::Link;
use crate::link::group::Group;
use crate::link::introductions::Named;
use crate::message::Message;
use crate::port::notice::members;
use crate::port::notices::{MembersDue, Notices};
use crate::process::Process;
use crate::request::{Received, Request, notify};
use crate::seal::Seal;
use clearing::Clearing;
use diverted::DivertedPorts;
pub(crate) use gather::Gathers;
use handfast_layout::bell as bell_layout;
use handfast_layout::link::{Kind, LANES};
use handfast_layout::part::is_handle;
use handfast_proto::rota::{Active, Key, Rota};
use handfast_ring::lane::{Header, Unusual};
use handfast_sys::cpu;
use handfast_wait::{FIRST_LOOKS, Waiter, chain};
use in_turn::Look;
use lane::{Lane, wake_for_room};
use pinned::Pinned;
pub(crate) use protocols::{InLane, Protocols, serve_by};
use state::{Clients, Counts, Foreigners, Looks, PassesOn, Seen, Waits};
use std::sync::Arc;
use through::Through;
use waiting::Waiting;

pub(crate) struct Poller {
    receiver: u32,
    /// Index that messages name.
    port: u32,
    process: Arc<Process>,
    protocols: &'static dyn Protocols,
    notices: Arc<Notices>,
    members_due: Arc<MembersDue>,
    groups: Arc<[Arc<Group>]>,
    seen: Seen,
    /// Links with other users that are looked at next.
    foreign: Foreigners,
    clearing: Clearing,
    lanes: Vec<Option<Lane>>,
    /// Places there that no lane has.
    free: Vec<Key>,
    active: Active,
    /// The lane of the last message.
    last: Key,
    rota: Rota,
    /// The buffer of the last request, for the next message.
    spare: Message,
    looks: Looks,
    /// Lanes with a message that waits for the right it names.
    waiting: Waiting,
    clients: Clients,
    passes_on: PassesOn,
    diverted: Arc<DivertedPorts>,
    /// The port is gone: messages that come belong to the next port at its receiver, or to the control thread.
    is_closed: bool,
    /// For one of the receivers of a port that is served on every CPU.
    pinned: Option<Box<Pinned>>,
    pub(crate) waits: Waits,
    counts: Counts,
}

/// Looks between two at the bells while lanes are busy.
const LOOKS_PER_BELL: u32 = 16;

/// How many clients are active at a time if server and clients have so many processors: one for each processor
/// but the server's. With two clients, both: a client that goes to sleep leaves the other one busy.
fn places(cpus: u32) -> usize {
    match cpus {
        0 | 1 => 1,
        2 => 2,
        more => more as usize - 1,
    }
}

impl Poller {
    pub(crate) fn new(
        (receiver, port): (u32, u32),
        process: Arc<Process>,
        (notices, members_due): (Arc<Notices>, Arc<MembersDue>),
        waiter: Waiter,
    ) -> Self {
        let cpus = cpu::shared();
        let cap = places(cpus);
        Self {
            receiver,
            port,
            protocols: protocols::of(&process),
            diverted: diverted::of(&process).clone(),
            process,
            notices,
            members_due,
            groups: Arc::default(),
            seen: Seen {
                groups: u32::MAX,
                deaths: 0,
                leavings: 0,
            },
            foreign: Foreigners::default(),
            clearing: Clearing::default(),
            lanes: Vec::new(),
            free: Vec::new(),
            active: Active::default(),
            last: 0,
            rota: Rota::new(cap),
            spare: Message::default(),
            looks: Looks::default(),
            waiting: Waiting::new(),
            clients: Clients {
                cpu: u32::MAX,
                cpus,
                cap,
                beside: 0,
                shares_only_cpu: false,
                overloaded: false,
                fenceless: false,
            },
            passes_on: PassesOn::Nothing,
            is_closed: false,
            pinned: None,
            waits: Waits {
                eager: waiter.is_eager(),
                has_neighbours: false,
                waiter: Some(Box::new(waiter)),
                since_ns: None,
            },
            counts: Counts::default(),
        }
    }

    /// The next message, if there is one: looks once at every active lane, in turn. Bells and
    /// waiters are looked at when those are empty, and every few looks.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Request> {
        self.looks.count = self.looks.count.wrapping_add(1);
        if self.looks.count.is_multiple_of(LOOKS_PER_BELL) {
            idle::look_around(self);
            // However many messages there are.
            if self.notices.is_due()
                && let Some(notice) = self.take_notice()
            {
                return Some(notice);
            }
        }
        self.make_room();
        if !self.active.is_of_one() {
            return in_turn::next_of_any(self);
        }
        let is_calm = self.rota.is_calm();
        let (lanes, first) = self.active.front();
        let count = lanes.len();
        for step in 0..count {
            let place = first + step;
            let place = if place >= count { place - count } else { place };
            let key = self.active.front().0[place];
            let taken = match in_turn::look_at(self, key, is_calm) {
                Look::Empty => continue,
                // The next look goes on.
                Look::Deferred => return places::admit(self),
                Look::Taken(taken) => taken,
            };
            let next = self.active.goes_on(place);
            if count > 1
                && let Some(next) = self.lanes[next].as_ref()
            {
                // The next lane's line comes while this one's message is worked on.
                next.consumer.prefetch(&next.link.region);
            }
            return match taken {
                Ok((header, len_bytes)) => self.taken(key, header, len_bytes),
                Err(Unusual) => match self.take_unusual(key) {
                    // The others go on meanwhile.
                    None if self.has_parked() => {
                        in_turn::next_in_turn(self).or_else(|| self.next_other())
                    }
                    taken => taken,
                },
            };
        }
        self.next_other()
    }

    /// As [`Self::next`], once the active lanes are empty.
    #[inline(always)]
    fn next_other(&mut self) -> Option<Request> {
        if bells::hear(self)
            && let Some(request) = in_turn::next_in_turn(self)
        {
            return Some(request);
        }
        if self.notices.is_due() {
            return self.next_notice();
        }
        if self.rota.waiting() > 0 {
            return in_turn::admit_due(self);
        }
        match self.looks.long {
            true => in_turn::copy_ahead(self),
            false => None,
        }
    }

    /// A notice, if there is no message, also of the dead.
    #[cold]
    fn next_notice(&mut self) -> Option<Request> {
        clearing::refresh(self);
        in_turn::next_in_turn(self).or_else(|| self.take_notice())
    }

    /// A notice, where what was sent before has been received. Messages of others are not waited for.
    #[cold]
    fn take_notice(&mut self) -> Option<Request> {
        let has_heard = |links| clearing::has_heard(self, links);
        if let Ok(Some(notice)) = self.notices.take(has_heard) {
            return Some(notify(notice, 0));
        }
        // After that has lowered the flag.
        let (notice, has_more) = match members::take(&self.members_due, &self.process, has_heard) {
            Ok(None) => (None, false),
            Ok(notice) => (notice, true),
            Err(_) => (None, true),
        };
        if has_more {
            self.notices.raise();
        }
        let (notice, port) = notice?;
        through::divert(self, (port, None), notify(notice, port))
    }

    /// The right that the peer of a link names by `word`, at this receiver where it is that late.
    fn named(&self, link: &Arc<Link>, word: u32, now_ns: u64) -> Named {
        through::named((self.protocols, &self.process), link, word, now_ns)
    }

    /// Whether there is a notice that [`Self::take_notice`] would find.
    fn has_notice(&self) -> bool {
        let has_heard = |links| clearing::has_heard(self, links);
        self.notices.is_due()
            && (self.notices.has_any(has_heard)
                || members::has_any(&self.members_due, &self.process, has_heard))
    }

    /// Whether the message that was to be taken last waits in its lane.
    const fn has_parked(&mut self) -> bool {
        core::mem::replace(&mut self.looks.parked, false)
    }

    /// Sees that there is a message to take one into.
    #[inline(always)]
    pub(super) fn make_room(&mut self) {
        if !self.spare.has_buffer() {
            self.spare = Message::new();
        }
    }

    /// Takes the message that waits in a lane, whatever it has and whichever right it came through.
    fn take(&mut self, key: Key) -> Option<Request> {
        self.make_room();
        self.take_unusual(key)
    }

    /// As [`Self::take`], of the one that `Self::look_at` has found just now.
    #[cold]
    fn take_unusual(&mut self, key: Key) -> Option<Request> {
        debug_assert!(self.spare.has_buffer(), "the message would be lost");
        let lane = self.lanes[key].as_mut()?;
        // Read once: the header read here is the one that is looked at from here on.
        let (header, meta) = match lane.consumer.peek(&lane.link.region.view()) {
            Ok(peeked) => peeked,
            Err(fault) => return places::poison(self, key, fault),
        };
        let lane = if is_handle(header.port) && self.diverted.is_empty() {
            lane
        } else if let Some(until_ns) = said::until_by(self, key, header) {
            places::park(self, key, until_ns);
            return None;
        } else {
            self.lanes[key].as_mut()?
        };
        // Nothing is waited for.
        (lane.until_ns, self.looks.parked) = (None, false);
        let region = lane.link.region.view();
        if let Err(fault) = lane.link.find_body(&mut lane.consumer, meta) {
            return places::poison(self, key, fault);
        }
        match lane.consumer.take_peeked(&region, meta, &mut self.spare) {
            Ok(_) if header.kind == Kind::CONTROL => {
                self.counts.said += 1;
                said::said(self, key, header)
            }
            Ok(len_bytes) => {
                if header.units > 0 {
                    let (process, message) = (&self.process, &mut self.spare);
                    let moved = |name| self.protocols.arrived_moved(process, &lane.link, name);
                    let adopted = match adopt_one(process, &lane.link, message, moved) {
                        Ok(true) => Ok(()),
                        Ok(false) => match through::adopt_rest(
                            (self.protocols, process, &self.diverted),
                            (&lane.link, header.port, self.receiver),
                            message,
                        ) {
                            Ok(()) if message.is_filled() => return self.taken_long(key, header),
                            adopted => adopted,
                        },
                        Err(fault) => Err(fault),
                    };
                    if let Err(fault) = adopted {
                        return places::poison(self, key, fault);
                    }
                }
                let through = match u64::from(header.port) == lane.usual() {
                    true => Ok(Through::To(lane.seal)),
                    false => through::look_up(self, key, header),
                };
                match through {
                    Err(fault) => places::poison(self, key, fault),
                    Ok(Through::To(seal)) if header.kind == Kind::PASSED => {
                        self.taken_passed(key, header, len_bytes, seal)
                    }
                    Ok(Through::To(_)) => self.taken(key, header, len_bytes),
                    Ok(Through::Rare(seal)) => {
                        through::taken_rare(self, key, (header, len_bytes), seal)
                    }
                    Ok(Through::Dead(why)) => {
                        through::taken_dead(self, key, (header, len_bytes), why)
                    }
                }
            }
            Err(fault) => places::poison(self, key, fault),
        }
    }

    /// Makes a request of the message taken into the spare buffer, through the lane's last right. `None` when the
    /// peer broke a rule.
    #[inline(always)]
    fn taken(&mut self, key: Key, header: Header, len_bytes: usize) -> Option<Request> {
        let lane = self.lanes[key].as_mut()?;
        let is_call = header.kind == Kind::Call;
        if is_call
            && header.reply >= lane.slots
            && let Err(fault) = lane.find_slot(header.reply)
        {
            return places::poison(self, key, fault);
        }
        // A producer may wait then.
        let region = lane.link.region.view();
        if lane.consumer.publish_due(&region) {
            wake_for_room(&lane.link, lane.consumer.place());
        }
        self.last = key;
        self.clients.cpu = header.cpu;
        self.counts.bytes += len_bytes as u64;
        self.counts.sends += u64::from(!is_call);
        lane.called |= is_call;
        let message = core::mem::take(&mut self.spare);
        let right = (header.reply, header.generation);
        Some(if is_call {
            let received = match lane.spare.take() {
                Some(received) => received,
                None => Received::of_lane(Arc::clone(&lane.link), key, self.receiver),
            };
            Request::call(received, (message, lane.seal), right)
        } else {
            Request::one_way((message, lane.seal), &lane.link)
        })
    }

    /// As [`Self::taken`], of a long message. Where its bytes could not be received, a call ends as one that was dropped.
    #[cold]
    fn taken_long(&mut self, key: Key, header: Header) -> Option<Request> {
        let (len_bytes, is_lost) = (self.spare.bytes().len(), self.spare.lost().is_some());
        self.looks.long = true;
        if let Some(lane) = &self.lanes[key] {
            lane.link.parts.fills.came_from(header.cpu);
        }
        let request = match through::look_up(self, key, header) {
            Err(fault) => places::poison(self, key, fault),
            // Where it is lost, its right is told of as unused, and nothing is passed on.
            Ok(Through::Rare(seal)) if !is_lost => {
                through::taken_rare(self, key, (header, len_bytes), seal)
            }
            Ok(Through::To(seal) | Through::Rare(seal)) if header.kind == Kind::PASSED => {
                self.taken_passed(key, header, len_bytes, seal)
            }
            Ok(Through::To(_) | Through::Rare(_)) => self.taken(key, header, len_bytes),
            Ok(Through::Dead(why)) => through::taken_dead(self, key, (header, len_bytes), why),
        };
        if is_lost {
            self.looks.again = true;
            return None;
        }
        request
    }

    /// As [`Self::taken`], of a message with a reply right that was passed on.
    #[inline(always)]
    fn taken_passed(
        &mut self,
        key: Key,
        header: Header,
        len_bytes: usize,
        seal: Seal,
    ) -> Option<Request> {
        let lane = self.lanes[key].as_mut()?;
        chain::noted();
        if lane.consumer.publish_due(&lane.link.region) {
            wake_for_room(&lane.link, lane.consumer.place());
        }
        self.last = key;
        self.clients.cpu = header.cpu;
        self.counts.bytes += len_bytes as u64;
        let message = core::mem::take(&mut self.spare);
        let (last, right) = (lane.passed.take(), (header.reply, header.generation));
        let to = (&*lane.link, key, self.receiver);
        match Request::passed(to, last, (message, seal), right) {
            Ok(Some(request)) => Some(request),
            Ok(None) => {
                // No caller waits for the answer.
                self.looks.again = true;
                None
            }
            Err(fault) => places::poison(self, key, fault),
        }
    }

    /// Whether a message was found and refused since the last question: there may be more.
    pub(crate) const fn look_again(&mut self) -> bool {
        core::mem::replace(&mut self.looks.again, false)
    }

    /// Replaces the strategy.
    pub(crate) fn set_waiter(&mut self, waiter: Waiter) {
        self.waits.eager = waiter.is_eager();
        self.waits.waiter = Some(Box::new(waiter));
    }

    /// Takes the strategy back of a wait that is over.
    pub(crate) fn keep_waiter(&mut self, waiter: Option<Box<Waiter>>) {
        let has_neighbours = waiter
            .as_ref()
            .is_some_and(|waiter| waiter.has_neighbours());
        (self.waits.waiter, self.waits.has_neighbours) = (waiter, has_neighbours);
    }

    /// How often to look before asking the strategy.
    #[inline]
    pub(crate) fn first_looks(&self) -> u32 {
        if !self.waits.eager {
            0
        } else if self.clients.shares_only_cpu || self.waits.has_neighbours && chain::is_next() {
            1
        } else if self.clients.cpu != cpu::recent() || self.active.len() > 1 {
            FIRST_LOOKS
        } else {
            1
        }
    }

    /// Whether the one client being served, or all of them, run on this thread's CPU.
    pub(crate) fn shares_processor(&self) -> bool {
        self.clients.shares_only_cpu || self.active.len() <= 1 && self.clients.cpu == cpu::current()
    }
}

const _: () = assert!(
    LANES < 32 && bell_layout::RECEIVERS < 255,
    "both fit a byte, plus one"
);
