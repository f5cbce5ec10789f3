//! A link: everything one pair of processes shares, seen from one of the two.

use crate::again::Again;
use crate::arena::Out;
use crate::descriptors::UnderWay;
use crate::error::{Gone, PeerFault, SendError};
use crate::give_back::Releases;
use crate::group::{Group, Reserved};
use crate::introduce::Introductions;
use crate::lanes::{self, LaneMap};
use crate::notice::DeathNotice;
use crate::origin::Claimed;
use crate::parked::Parked;
use crate::paths::Passing;
use crate::peer_bells::PeerBells;
use crate::process::Process;
use crate::quotas::InForce;
use crate::rank;
use crate::redirect::Redirects;
use crate::returns::Returns;
use crate::revoke::Revoked;
use crate::rows::Row;
use crate::slots::SLOTS_PER_LANE;
use crate::slots::{LINES_BYTES, SlotState, Slots};
use crate::spread::Told;
use crate::tasks::Tasks;
use crate::unused::LastUse;
use crate::users::{Charge, Foreign};

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use handfast_channel::reply::Slot;
use handfast_channel::{arm, bell, stamp};
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{LANE_HEAD_BYTES, LANES, Meta, Side};
use handfast_layout::part::receiver_of;
use handfast_layout::{bell as bell_layout, hello};
use handfast_proto::loans::Lent;
use handfast_proto::rights::{Exports, Imports};
use handfast_proto::timers::Timer;
use handfast_proto::users::Quota;
use handfast_region::{Memory, Region};
use handfast_ring::lane::{Consumer, Place, Producer};
use handfast_ring::{Fault, Rule};
use handfast_sys::lock::{Lock, OwnedLock};
use handfast_sys::socket::Peer;
use handfast_sys::sync::{Condvar, Mutex, MutexGuard};
use handfast_sys::{OwnedFd, socket};
use handfast_wait::word;
use std::sync::{Arc, OnceLock, Weak};

mod backlog;
mod counters;
mod rouse;
mod tables;

pub(crate) use backlog::{Backlog, UNSAID_MAX};
use counters::PeerCounters;
use rouse::ROUSED_MAX;

/// See the module text. Fields in the order in which a call meets them.
pub(crate) struct Link {
    pub(crate) region: Region,
    /// The side on which we call; the peer calls on the other.
    pub(crate) calls: Side,
    /// This process passes the fences others ask for (E12).
    agreed: bool,
    pub(crate) lanes: [OwnedLock<Outgoing, rank::Lane>; LANES as usize],
    pub(crate) map: LaneMap,
    pub(crate) slots: Box<Slots>,
    /// Counts events a waiting caller must look at: death, fault, a closed port.
    pub(crate) trouble: AtomicU32,
    /// Lanes that had to ring: since the keeper's last look, and at that.
    rung: AtomicU32,
    rung_before: AtomicU32,
    /// The process whose keeper looks after them: its own, until the link has ended.
    pub(crate) process: Arc<Process>,
    /// Threads parked on words of this link.
    pub(crate) parked: Parked,
    /// A thread is about to wake all that sleep on its words; and the link, for that one.
    rouses: AtomicBool,
    pub(crate) itself: OnceLock<Weak<Self>>,
    pub(crate) slot_freed: (Mutex<u32, rank::SlotFreed>, Condvar),
    /// The waiters that are futures.
    pub(crate) tasks: Tasks,
    /// Ports of the peer that have a receiver for each CPU.
    pub(crate) spread: Told,

    pub(crate) peer_bells: Region,
    /// The peer's bells are read-only here.
    is_published: bool,
    /// Our bit in the peer's bells.
    pub(crate) peer_index: u32,
    pub(crate) group: Arc<Group>,
    /// The peer's bit in our bells.
    pub(crate) index: u32,
    /// The link's row of this process's counters.
    pub(crate) row: Row,
    /// Receiver of ours, plus one, that each of the peer's lanes addresses.
    pub(crate) owners: [AtomicU8; LANES as usize],
    /// The receiver's own name for the lane.
    pub(crate) keys: [AtomicU32; LANES as usize],
    /// Lanes that the peer does not use any more and that a receiver may have still; a bit each.
    pub(crate) leaving: AtomicU32,
    /// The peer has asked what has been taken, and not every lane could be looked at.
    pub(crate) is_asked: AtomicBool,
    /// Consumers of the peer's lanes while no receiver holds them.
    consumers: [Mutex<Option<Consumer>, rank::Consumers>; LANES as usize],

    pub(crate) socket: Arc<Foreign>,
    pub(crate) pidfd: Option<OwnedFd>,
    /// The charges to the peer's user.
    charges: Vec<Charge>,
    pub(crate) peer: Peer,
    pub(crate) incarnation: [u8; 16],
    /// Number of this link in its process, never used again, not in a forked child either: the name for it in
    /// the keeper's events and threads' memories. An index could have passed to another link meanwhile.
    pub(crate) serial: u32,
    /// The fork epoch of its process; in a forked child its region is not mapped.
    epoch: u32,
    /// The other end, of a link of this process with itself.
    pub(crate) twin: OnceLock<Weak<Self>>,
    /// Send rights of this process that use the link, and what is known of the last.
    pub(crate) uses: AtomicU32,
    pub(crate) last_use: LastUse,
    /// The peer has got a port of ours through this link.
    pub(crate) granted: AtomicBool,
    /// The peer, which asked for a link when it had this one, has been told to look again.
    pub(crate) crossed: AtomicBool,
    pub(crate) quotas: InForce,
    pub(crate) counters: PeerCounters,
    /// Rights to our ports that the peer has, and to its ports that we have.
    exports: Lock<Exports, rank::Exports>,
    /// How many of the former have ended.
    pub(crate) ended: AtomicU32,
    imports: Lock<Imports, rank::Imports>,
    pub(crate) revoked: Revoked,
    /// Rights of ours whose ports have moved; whether there are any, and any that are others now.
    pub(crate) redirects: Mutex<Redirects, rank::Redirects>,
    pub(crate) has_redirects: AtomicBool,
    pub(crate) has_moved: AtomicBool,
    /// Messages that the peer has not read.
    backlog: Mutex<Backlog, rank::Backlog>,
    /// Reply rights passed on, by us to the peer and by the peer to us.
    pub(crate) passing: Mutex<Passing, rank::Passing>,
    /// How often a way to the peer, or a party of the peer's, was forgotten.
    pub(crate) ways: AtomicU32,
    pub(crate) parties: AtomicU32,
    /// Threads that may still take messages from it: see [`crate::hearing`].
    pub(crate) hearers: AtomicU32,
    pub(crate) introductions: Introductions,
    /// Our claims that the peer may not have answered: each takes one of our return slots.
    pub(crate) awaited: Mutex<Vec<Weak<Claimed>>, rank::Awaited>,
    /// Rights of third processes that come again.
    pub(crate) again: Again,
    /// Return slots of ours.
    pub(crate) returns: Mutex<Returns, rank::Returns>,
    /// The notices to give when a port of the peer is gone.
    death_notices: Mutex<Vec<DeathNotice>, rank::DeathNotices>,
    pub(crate) releases: Releases,
    /// Descriptors that go with messages, both ways.
    pub(crate) under_way: UnderWay,
    /// Blocks of our arenas that the peer has.
    pub(crate) lent: Mutex<Lent<Out>, rank::Lent>,
    pub(crate) down: AtomicBool,
    fault: OnceLock<PeerFault>,
    /// The last port of each receiver of the peer that is gone; zero for none.
    closed: [AtomicU32; bell_layout::RECEIVERS as usize],
    /// The latest port of each that this process has sent to.
    newest: [AtomicU32; bell_layout::RECEIVERS as usize],
}

/// The parts of a link that it does not make itself.
pub(crate) struct Parts {
    pub(crate) region: Region,
    pub(crate) calls: Side,
    pub(crate) peer_bells: PeerBells,
    pub(crate) peer_index: u32,
    pub(crate) place: Reserved,
    pub(crate) socket: Foreign,
    /// The pidfd of the peer, by the kernel's word.
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) charges: Vec<Charge>,
    pub(crate) peer: Peer,
    pub(crate) incarnation: [u8; 16],
    /// This process passes the fences others ask for.
    pub(crate) agreed: bool,
}

/// Our side of a lane. On lines of its own: another lane's thread is on another CPU.
#[repr(align(128))]
pub(crate) struct Outgoing {
    pub(crate) producer: Producer,
    /// A reply slot for its next call, with the generation there: claimed while the last call was
    /// under way, when there is nothing better to do.
    pub(crate) claimed: Option<(u32, u32)>,
    /// The position after the last message that had rights beside its bytes; the first one if there was none.
    pub(crate) named: u32,
    /// The receiver it leads to, or none. And the same for a thread that posts at once, except where others
    /// wait for the lane.
    pub(crate) leads_to: u32,
    pub(crate) receiver: u32,
}

impl Link {
    pub(crate) fn new(process: Arc<Process>, parts: Parts, serial: u32, row: Row) -> Self {
        let calls = parts.calls;
        let (group, index) = parts.place.take();
        let users = &parts.socket.users().clone();
        let backlog = Mutex::new(Backlog::new(
            users,
            parts.peer.uid,
            calls == Side::Connector,
        ));
        let consumers = core::array::from_fn(|lane| {
            let place = Place::of(calls.other(), lane as u32);
            Mutex::new(Some(consumer_of(place, &parts.region)))
        });
        Self {
            region: parts.region,
            calls,
            agreed: parts.agreed,
            lanes: core::array::from_fn(|lane| {
                OwnedLock::new(Outgoing {
                    producer: Producer::new(Place::of(calls, lane as u32)),
                    claimed: None,
                    named: 0,
                    leads_to: lanes::NOBODY,
                    receiver: lanes::NOBODY,
                })
            }),
            map: LaneMap::default(),
            slots: Box::default(),
            rung: AtomicU32::new(0),
            rung_before: AtomicU32::new(0),
            process,
            trouble: AtomicU32::new(0),
            parked: Parked::default(),
            rouses: AtomicBool::new(false),
            itself: OnceLock::new(),
            slot_freed: Default::default(),
            tasks: Tasks::default(),
            spread: Told::default(),
            peer_bells: parts.peer_bells.region,
            is_published: parts.peer_bells.is_published,
            peer_index: parts.peer_index,
            row,
            group,
            index,
            owners: Default::default(),
            keys: Default::default(),
            leaving: AtomicU32::new(0),
            is_asked: AtomicBool::new(false),
            consumers,
            socket: Arc::new(parts.socket),
            pidfd: parts.pidfd,
            charges: parts.charges,
            peer: parts.peer,
            incarnation: parts.incarnation,
            serial,
            epoch: handfast_sys::process::fork_epoch(),
            twin: OnceLock::new(),
            uses: AtomicU32::new(0),
            last_use: LastUse::default(),
            // A peer that connected has a right.
            crossed: AtomicBool::new(false),
            granted: AtomicBool::new(calls == Side::Acceptor),
            quotas: InForce::default(),
            counters: PeerCounters::default(),
            exports: Lock::default(),
            ended: AtomicU32::new(0),
            imports: Lock::default(),
            revoked: Revoked::default(),
            redirects: Mutex::default(),
            has_redirects: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            backlog,
            passing: Mutex::default(),
            ways: AtomicU32::new(0),
            parties: AtomicU32::new(0),
            hearers: AtomicU32::new(0),
            introductions: Introductions::new(users.nothing(parts.peer.uid, Quota::Claims)),
            awaited: Mutex::default(),
            again: Again::default(),
            returns: Mutex::default(),
            death_notices: Mutex::default(),
            releases: Releases::default(),
            under_way: UnderWay::new(users, parts.peer.uid),
            lent: Mutex::default(),
            down: AtomicBool::new(false),
            fault: OnceLock::new(),
            closed: core::array::from_fn(|_| AtomicU32::new(0)),
            newest: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// The peer's identity as told to others: the part it gives, and the part the kernel gives.
    pub(crate) fn identity(&self) -> [u8; 20] {
        hello::process(self.incarnation, self.peer.pid)
    }

    /// Whether the peer is that process, and the kernel says so: a process that cannot be seen from here
    /// matches none.
    pub(crate) fn is_with(&self, process: [u8; 20]) -> bool {
        self.peer.pid != 0 && self.identity() == process
    }

    pub(crate) fn death_notices(&self) -> MutexGuard<'_, Vec<DeathNotice>, rank::DeathNotices> {
        self.death_notices.lock()
    }

    /// Whether nothing can be answered through it: it has ended, or is the link of this process's parent.
    pub(crate) fn is_over(&self) -> bool {
        self.is_down() || self.is_forked()
    }

    /// Whether it is the link of this process's parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.epoch != handfast_sys::process::fork_epoch()
    }

    /// Whether the link has ended. One load of private memory.
    #[inline]
    pub(crate) fn is_down(&self) -> bool {
        // Acquire: pairs with the exchange in `take_down`, so the fault is visible.
        self.down.load(Ordering::Acquire)
    }

    /// The rule the peer broke, if that has ended it.
    pub(crate) fn fault(&self) -> Option<PeerFault> {
        self.fault.get().copied()
    }

    /// Whether it has ended because the peer broke a rule.
    pub(crate) fn is_cut(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Why nothing more can be sent to `port`, if so.
    pub(crate) fn failure(&self, port: u32) -> Option<SendError> {
        if self.is_down() {
            return Some(
                self.fault
                    .get()
                    .map_or(SendError::Gone(Gone::Process), |fault| {
                        SendError::Fault(*fault)
                    }),
            );
        }
        // Acquire: pairs with the exchange in `close_port`.
        let last = self.closed[(port % bell_layout::RECEIVERS) as usize].load(Ordering::Acquire);
        (last != 0 && !is_later(port, last)).then_some(SendError::Gone(Gone::Port))
    }

    /// The peer has said that its `port` is gone. It may say so late, when the receiver has another
    /// port already: all up to this one are.
    pub(crate) fn close_port(&self, port: u32) {
        // Before: a thread that sees the port closed asks for this.
        self.end_moved(port);
        self.close_up_to(port);
    }

    fn close_up_to(&self, port: u32) {
        let closed = &self.closed[(port % bell_layout::RECEIVERS) as usize];
        // Acquire and Release: pairs with the load in `failure`.
        let is_new = closed.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            (last == 0 || is_later(port, last)).then_some(port)
        });
        self.disturb();
        if is_new.is_ok() {
            self.pass_over(receiver_of(port));
        }
        self.tell_deaths();
    }

    /// This process sends to `port`, as the peer itself has told it: of two ports at one receiver the earlier one is gone,
    /// whether the peer's announcement has come or not. Messages to the earlier port would lie in the way of messages to
    /// the later one.
    pub(crate) fn sends_to(&self, port: u32) {
        let newest = &self.newest[(port % bell_layout::RECEIVERS) as usize];
        // Relaxed: numbers; the closing publishes itself.
        let other = newest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| {
            (newest == 0 || is_later(port, newest)).then_some(port)
        });
        match other {
            Ok(0) => {}
            Ok(earlier) => self.close_up_to(earlier),
            Err(same) if same == port => {}
            Err(_) => self.close_up_to(port),
        }
    }

    /// Cuts the link because the peer broke a rule.
    pub(crate) fn poison(&self, fault: Fault) -> PeerFault {
        let new = PeerFault::from(fault);
        let is_first = self.fault.set(new).is_ok();
        self.take_down();
        // This thread may hold locks, and the application is told.
        if is_first {
            self.process.cuts.lock().push((self.peer, new));
            self.process.attention.raise();
        }
        self.fault().unwrap_or(new)
    }

    /// Sees that an answer in one of the peer's reply slots costs no pages.
    pub(crate) fn find_slot(&self, index: u32) -> Result<(), Fault> {
        let slot = Slot::of(self.calls.other(), index);
        match slot.is_there(&self.region) {
            true => Ok(()),
            false => Err(untouched(slot.inline_bytes())),
        }
    }

    /// Sees that what a message of the peer's has outside its slot costs no pages.
    #[inline]
    pub(crate) fn find_body(&self, consumer: &mut Consumer, meta: Meta) -> Result<(), Fault> {
        let Some((at, len_bytes)) = consumer.body_to_find(&self.region, meta) else {
            return Ok(());
        };
        if !self.region.is_there(at, len_bytes) {
            return Err(untouched(at));
        }
        consumer.found((at, len_bytes));
        Ok(())
    }

    /// Whether the peer has touched its lane `index`, which costs no pages then.
    pub(crate) fn has_lane(&self, index: u32) -> bool {
        let at = self.calls.other().lane(index);
        self.region.is_there(at, LANE_HEAD_BYTES)
    }

    /// Ends the link: no more posts, every waiter of this process leaves, the peer sees the
    /// socket close. Returns whether this call ended it.
    pub(crate) fn take_down(&self) -> bool {
        // AcqRel: pairs with the load in `is_down`.
        let first = !self.down.swap(true, Ordering::AcqRel);
        socket::shutdown(&self.socket);
        self.disturb();
        self.tell_deaths();
        first
    }

    /// Tells the callee of a post to `lane`, if it does not poll it. Returns whether this made a
    /// wake-up call.
    #[inline]
    pub(crate) fn ring(&self, lane: u32, receiver: u32) -> bool {
        let place = Place::of(self.calls, lane);
        if !arm::must_ring(&self.region.view(), place, self.agreed) {
            return false;
        }
        self.ring_armed(lane, receiver)
    }

    #[cold]
    fn ring_armed(&self, lane: u32, receiver: u32) -> bool {
        // Others that share the bells may take the wake-up away. Relaxed: a lane that is missed is looked at next
        // time.
        self.rung.fetch_or(1 << lane, Ordering::Relaxed);
        self.process.watch_sleepers();
        let at = (self.calls, lane);
        let sleep = bell_layout::bell(receiver);
        if self.is_published {
            return self.ring_published(at, receiver);
        }
        match bell::ring(
            &self.region,
            &self.peer_bells,
            at,
            receiver,
            self.peer_index,
        ) {
            Some(word::ASLEEP) => {
                stamp(&self.peer_bells, sleep + bell_layout::STAMP);
                self.peer_bells.wake(sleep + bell_layout::SLEEP, 1);
                true
            }
            Some(_) => {
                stamp(&self.peer_bells, sleep + bell_layout::STAMP);
                self.tell(ControlMessage::Ring {
                    receiver: receiver as u8,
                });
                true
            }
            None => false,
        }
    }

    /// As [`Self::ring_armed`], to a process of another user.
    fn ring_published(&self, at: (Side, u32), receiver: u32) -> bool {
        let sleep = bell_layout::bell(receiver) + bell_layout::SLEEP;
        match bell::ring_published(&self.region, &self.peer_bells, at, receiver) {
            word::AWAKE => return false,
            word::ASLEEP if self.peer_bells.wake(sleep, 1) > 0 => return true,
            // Another thread has woken it; or it is about to sleep, and its keeper will see to it.
            _ if self.peer_bells.load(sleep, Ordering::Relaxed) == word::AWAKE => return false,
            _ => self.tell(ControlMessage::Ring {
                receiver: receiver as u8,
            }),
        }
        true
    }

    /// Nudges the server for each call that was in flight at the last look already, and wakes its
    /// caller if it has been answered. Returns whether
    /// there are calls that were not, so that the next look should come soon.
    pub(crate) fn watch(&self) -> bool {
        let mut moved = false;
        let mut late = 0u32;
        for (index, slot) in self.slots.iter().enumerate() {
            // Relaxed throughout: a call that comes or goes meanwhile is looked at next time.
            if slot.state.load(Ordering::Relaxed) != SlotState::BUSY {
                continue;
            }
            let generation = slot.generation.load(Ordering::Relaxed);
            if slot.watched.swap(generation, Ordering::Relaxed) == generation {
                let reply = Slot::of(self.calls, index as u32);
                if reply.is_answered(&self.region, generation) {
                    // The server has left the wake-up for later, and does something else.
                    // Others that sleep there are looked after next time.
                    self.rouse(reply.wait(), ROUSED_MAX);
                    crate::arrivals::rouse();
                } else {
                    late |= 1 << (index as u32 / SLOTS_PER_LANE);
                }
            } else {
                moved = true;
            }
        }
        for lane in 0..LANES {
            let space = Place::of(self.calls, lane).space();
            let waits_for_room = self.region.load(space, Ordering::Relaxed) != word::AWAKE;
            if (late & (1 << lane) != 0 || waits_for_room)
                && let Some(receiver) = self.map.receiver_of(lane)
            {
                self.nudge(lane, receiver);
            }
        }
        self.watch_tasks();
        self.watch_rung() || moved
    }

    /// Whether the keeper is to look after it.
    pub(crate) fn is_watched(&self) -> bool {
        // Relaxed, both: as in `ring_armed`.
        let rung = self.rung.load(Ordering::Relaxed) | self.rung_before.load(Ordering::Relaxed);
        rung != 0 || self.parked.any()
    }

    /// Nudges the receivers of lanes that had rung at the last look already, and that still hold what they rang for. Returns
    /// whether others have.
    fn watch_rung(&self) -> bool {
        // Relaxed, both: as in `ring_armed`.
        let rung = self.rung.swap(0, Ordering::Relaxed);
        let mut before = self.rung_before.swap(rung, Ordering::Relaxed);
        while before != 0 {
            let lane = before.trailing_zeros();
            before &= before - 1;
            if arm::holds_unpolled(&self.region, Place::of(self.calls, lane))
                && let Some(receiver) = self.map.receiver_of(lane)
            {
                self.nudge(lane, receiver);
            }
        }
        rung != 0
    }

    /// Rings for `lane` again and wakes `receiver`, whatever its bell says.
    #[cold]
    fn nudge(&self, lane: u32, receiver: u32) {
        let at = (self.calls, lane);
        let (own, bells) = (&self.region, &self.peer_bells);
        let sleep = bell_layout::bell(receiver) + bell_layout::SLEEP;
        if self.is_published {
            let _ = bell::ring_published(own, bells, at, receiver);
        } else {
            let _ = bell::ring(own, bells, at, receiver, self.peer_index);
            bells.swap(sleep, word::AWAKE, Ordering::AcqRel);
        }
        // The keeper of the peer wakes the sleepers that this does not find.
        bells.wake(sleep, ROUSED_MAX);
        self.tell(ControlMessage::Ring {
            receiver: receiver as u8,
        });
    }

    /// The consumer of the peer's lane `index`, for the receiver that owns the lane.
    pub(crate) fn take_consumer(&self, index: u32) -> Consumer {
        let mut consumer = self.consumers[index as usize].lock();
        consumer.take().unwrap_or_else(|| {
            let place = Place::of(self.calls.other(), index);
            consumer_of(place, &self.region)
        })
    }

    /// With the consumer of lane `index`, if no receiver holds it and the peer has used that; where no receiver takes it
    /// meanwhile. Without its lock; a thread that panics gives it back, too.
    pub(crate) fn with_consumer(&self, index: u32, each: impl FnOnce(&mut Consumer)) {
        struct Borrowed<'a>(&'a Link, u32, Option<Consumer>);
        impl Drop for Borrowed<'_> {
            fn drop(&mut self) {
                let Self(link, index, consumer) = self;
                if let Some(consumer) = consumer.take() {
                    link.return_consumer(*index, consumer);
                }
            }
        }
        if self.has_lane(index) {
            let consumer = self.consumers[index as usize].lock().take();
            let mut borrowed = Borrowed(self, index, consumer);
            if let Some(consumer) = borrowed.2.as_mut() {
                each(consumer);
            }
        }
    }

    /// Gives a consumer back, at the position it has reached.
    pub(crate) fn return_consumer(&self, index: u32, consumer: Consumer) {
        let mut place = self.consumers[index as usize].lock();
        *place = Some(consumer);
    }
}

// The lanes' locks share no line with another's.
const _: () = assert!(align_of::<OwnedLock<Outgoing, rank::Lane>>() == LINES_BYTES);

/// Size of the empty region that replaces one that has gone elsewhere.
const EMPTY_BYTES: usize = 64;

impl Drop for Link {
    /// The thread that lets go of a link last may be a receiver, and links end together by the hundred. Unmapping a region, which
    /// may be the end of its file, takes some 0.3 ms: its user's closing thread does that, and the user is charged until then.
    /// The keeper lets go of the rest, [its place in the list of the dead](Process::forget_ended).
    fn drop(&mut self) {
        let users = self.socket.users().clone();
        if !users.is_forked() {
            self.process.schedule(Timer::EndedLinks);
        }
        // Where the peer's user is charged for nothing, the number of links that wait there would be unlimited.
        let is_one_of_many = || users.has_many_links(self.peer.uid);
        if users.is_forked() || self.charges.is_empty() || !is_one_of_many() {
            return;
        }
        let regions = [&mut self.region, &mut self.peer_bells];
        let regions = regions.map(|region| core::mem::replace(region, Region::heap(EMPTY_BYTES)));
        let charges = core::mem::take(&mut self.charges);
        users.free(self.peer.uid, (regions, charges));
    }
}

/// The peer has this process touch what it has not touched itself.
pub(crate) const fn untouched(offset: usize) -> Fault {
    let rule = Rule::Untouched;
    Fault { rule, offset }
}

/// The consumer of an unused lane.
fn consumer_of(place: Place, region: &Region) -> Consumer {
    let consumer = Consumer::new(place);
    match region.looks_for_pages() {
        true => consumer.of_another_user(),
        false => consumer,
    }
}

/// Whether `port` was bound after `other`, at the same receiver: the generation is in the 23 bits above
/// the receiver and wraps around.
const fn is_later(port: u32, other: u32) -> bool {
    ((port & !0xff) << 1)
        .wrapping_sub((other & !0xff) << 1)
        .cast_signed()
        > 0
}
