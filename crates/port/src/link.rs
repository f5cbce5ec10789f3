//! A link: everything one pair of processes shares, seen from one of the two.

use crate::again::Key;
use crate::arena::Out;
use crate::descriptors::UnderWay;
use crate::error::{Gone, PeerFault, SendError};
use crate::give_back::GivenBack;
use crate::group::Group;
use crate::lanes::{self, LaneMap};
use crate::notice::DeathNotice;
use crate::origin::Claimed;
use crate::parked::Parked;
use crate::paths::Passing;
use crate::port::Port;
use crate::quotas::{Heard, InForce};
use crate::redirect::Redirects;
use crate::returns::Returns;
use crate::send::{SLOTS_PER_LANE, SendRight};
use crate::slots::{SlotState, Slots};
use crate::spread::Told;
use crate::tasks::Tasks;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use handfast_channel::reply::Slot;
use handfast_channel::{arm, bell, stamp};
use handfast_layout::link::{LANES, REPLIES, Side};
use handfast_layout::part::receiver_of;
use handfast_layout::{bell as bell_layout, introduction};
use handfast_proto::introductions::{Claims, Keeping, Remembered};
use handfast_proto::loans::Lent;
use handfast_proto::rights::{Exports, Handle, Imports};
use handfast_region::{Memory, Region};
use handfast_ring::Fault;
use handfast_ring::lane::{Consumer, Place, Producer};
use handfast_sys::lock::{Lock, OwnedLock};
use handfast_sys::socket::Peer;
use handfast_sys::{BorrowedFd, Errno, OwnedFd, socket};
use handfast_wait::word;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

pub(crate) mod control;
mod tables;

/// See the module text. Fields in the order in which a call meets them.
pub(crate) struct Link {
    pub(crate) region: Region,
    /// The side on which we call; the peer calls on the other.
    pub(crate) calls: Side,
    /// This process passes the fences others ask for (E12).
    agreed: bool,
    pub(crate) lanes: [OwnedLock<Outgoing>; LANES as usize],
    pub(crate) map: LaneMap,
    pub(crate) slots: Box<Slots>,
    /// Counts events a waiting caller must look at: death, fault, a closed port.
    pub(crate) trouble: AtomicU32,
    /// Threads parked on words of this link.
    pub(crate) parked: Parked,
    pub(crate) slot_freed: (Mutex<u32>, Condvar),
    /// Those that wait as futures.
    pub(crate) tasks: Tasks,
    /// Ports of the peer that have a receiver for each CPU.
    pub(crate) spread: Told,

    pub(crate) peer_bells: Region,
    /// Our bit in the peer's bells.
    pub(crate) peer_index: u32,
    pub(crate) group: Arc<Group>,
    /// The peer's bit in our bells, and our row of the counters.
    pub(crate) index: u32,
    /// Receiver of ours, plus one, that each of the peer's lanes addresses.
    pub(crate) owners: [AtomicU8; LANES as usize],
    /// That receiver's own name for the lane.
    pub(crate) keys: [AtomicU32; LANES as usize],
    /// Lanes that the peer does not use any more and that a receiver may have still; a bit each.
    pub(crate) leaving: AtomicU32,
    /// Consumers of the peer's lanes while no receiver holds them.
    consumers: [Mutex<Option<Consumer>>; LANES as usize],

    pub(crate) socket: OwnedFd,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) peer: Peer,
    pub(crate) incarnation: [u8; 16],
    /// Number of this link in its process, never used again, not in a forked child either: what the keeper's
    /// events and threads' memories name. An index could have passed to another link meanwhile.
    pub(crate) serial: u32,
    /// The fork epoch of its process; in a forked child its region is not mapped.
    epoch: u32,
    /// The other end, of a link of this process with itself.
    pub(crate) twin: OnceLock<Weak<Self>>,
    /// Send rights of this process that use the link, and what is known of the last: see [`crate::unused`].
    pub(crate) uses: AtomicU32,
    pub(crate) last_use: AtomicU8,
    pub(crate) unused_ns: AtomicU64,
    /// The peer has got a port of ours through this link.
    pub(crate) granted: AtomicBool,
    /// The peer has its end of the link; one that connects has not before its welcome.
    pub(crate) is_welcomed: AtomicBool,
    /// The peer, which asked for a link when it had this one, has been told to look again.
    pub(crate) crossed: AtomicBool,
    pub(crate) heard: Mutex<Heard>,
    pub(crate) quotas: InForce,
    pub(crate) counters: Mutex<Option<OwnedFd>>,
    /// Rights to our ports that the peer has, and to its ports that we have.
    exports: Lock<Exports>,
    /// How many of the former have ended.
    pub(crate) ended: AtomicU32,
    imports: Lock<Imports>,
    /// Some of the latter have been revoked.
    pub(crate) has_revoked: AtomicBool,
    /// Those of ours whose ports have moved; whether there are any, and any that are others now.
    pub(crate) redirects: Mutex<Redirects>,
    pub(crate) has_redirects: AtomicBool,
    pub(crate) has_moved: AtomicBool,
    /// Control messages that must not be lost, to a peer that does not read.
    unsaid: Mutex<VecDeque<Vec<u8>>>,
    /// Reply rights passed on, by us to the peer and by the peer to us.
    pub(crate) passing: Mutex<Passing>,
    /// How often a way to the peer, or a party of the peer's, was forgotten.
    pub(crate) ways: AtomicU32,
    pub(crate) parties: AtomicU32,
    /// Those who may still take messages from it: see [`crate::hearing`].
    pub(crate) hearers: AtomicU32,
    /// What the peer names what it was provided with by others by.
    pub(crate) claims: Mutex<Claims>,
    /// What we have claimed from the peer, and it may not have answered: each takes one of our return slots.
    pub(crate) awaited: Mutex<Vec<Weak<Claimed>>>,
    pub(crate) redeeming: Mutex<()>,
    /// What we have provided to the peer: links with exporters, and our numbers.
    pub(crate) unheard: Mutex<VecDeque<(Weak<Self>, u64)>>,
    /// What of others' the peer has been given, and what is kept for it of what it has given.
    pub(crate) told: Mutex<Remembered<Key>>,
    pub(crate) keeping: Mutex<Keeping<SendRight>>,
    /// A right to a port of the peer was given to others.
    pub(crate) is_introduced: AtomicBool,
    /// Return slots of ours.
    pub(crate) returns: Mutex<Returns>,
    /// Who wants to be told when a port of the peer is gone.
    death_notices: Mutex<Vec<DeathNotice>>,
    /// Rights the peer has and that were revoked, to be told as soon as the socket takes it.
    pub(crate) revoked: Mutex<VecDeque<u32>>,
    /// Rights to be given back, as soon as the socket takes it.
    pub(crate) owed: Mutex<VecDeque<(Handle, u32)>>,
    /// Rights the peer has given back, until unread replies have been read.
    pub(crate) back: Mutex<VecDeque<GivenBack>>,
    /// Descriptors that go with messages, both ways.
    pub(crate) under_way: UnderWay,
    /// Blocks of our arenas that the peer has.
    pub(crate) lent: Mutex<Lent<Out>>,
    pub(crate) down: AtomicBool,
    fault: OnceLock<PeerFault>,
    /// The last port of each receiver of the peer that is gone; zero for none.
    closed: [AtomicU32; bell_layout::RECEIVERS as usize],
}

/// What a link is made of, besides what it makes itself.
pub(crate) struct Parts {
    pub(crate) region: Region,
    pub(crate) calls: Side,
    pub(crate) peer_bells: Region,
    pub(crate) peer_index: u32,
    pub(crate) group: Arc<Group>,
    pub(crate) index: u32,
    pub(crate) socket: OwnedFd,
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
    /// Whom it leads to; or nobody. And the same for who posts at once, but where others wait for it.
    pub(crate) leads_to: u32,
    pub(crate) receiver: u32,
}

impl Link {
    pub(crate) fn new(parts: Parts, serial: u32) -> Self {
        let calls = parts.calls;
        let pidfd = socket::peer_pidfd(&parts.socket).ok();
        Self {
            region: parts.region,
            calls,
            agreed: parts.agreed,
            lanes: core::array::from_fn(|lane| {
                OwnedLock::new(Outgoing {
                    producer: Producer::new(Place::of(calls, lane as u32)),
                    claimed: None,
                    leads_to: lanes::NOBODY,
                    receiver: lanes::NOBODY,
                })
            }),
            map: LaneMap::default(),
            slots: Box::default(),
            trouble: AtomicU32::new(0),
            parked: Parked::default(),
            slot_freed: Default::default(),
            tasks: Tasks::default(),
            spread: Told::default(),
            peer_bells: parts.peer_bells,
            peer_index: parts.peer_index,
            group: parts.group,
            index: parts.index,
            owners: Default::default(),
            keys: Default::default(),
            leaving: AtomicU32::new(0),
            consumers: core::array::from_fn(|lane| {
                Mutex::new(Some(Consumer::new(Place::of(calls.other(), lane as u32))))
            }),
            socket: parts.socket,
            pidfd,
            peer: parts.peer,
            incarnation: parts.incarnation,
            serial,
            epoch: handfast_sys::process::fork_epoch(),
            twin: OnceLock::new(),
            uses: AtomicU32::new(0),
            last_use: AtomicU8::new(0),
            unused_ns: AtomicU64::new(0),
            // Who connected has a right.
            crossed: AtomicBool::new(false),
            granted: AtomicBool::new(calls == Side::Acceptor),
            is_welcomed: AtomicBool::new(calls == Side::Connector),
            heard: Mutex::default(),
            quotas: InForce::default(),
            counters: Mutex::default(),
            exports: Lock::default(),
            ended: AtomicU32::new(0),
            imports: Lock::default(),
            has_revoked: AtomicBool::new(false),
            redirects: Mutex::default(),
            has_redirects: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            unsaid: Mutex::default(),
            passing: Mutex::default(),
            ways: AtomicU32::new(0),
            parties: AtomicU32::new(0),
            hearers: AtomicU32::new(0),
            claims: Mutex::default(),
            awaited: Mutex::default(),
            redeeming: Mutex::default(),
            unheard: Mutex::default(),
            told: Mutex::default(),
            keeping: Mutex::default(),
            is_introduced: AtomicBool::new(false),
            returns: Mutex::default(),
            death_notices: Mutex::default(),
            revoked: Mutex::default(),
            owed: Mutex::default(),
            back: Mutex::default(),
            under_way: UnderWay::default(),
            lent: Mutex::default(),
            down: AtomicBool::new(false),
            fault: OnceLock::new(),
            closed: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// The peer, as others are told of it: what it says, and what the kernel says.
    pub(crate) fn identity(&self) -> [u8; 20] {
        introduction::process(self.incarnation, self.peer.pid)
    }

    /// Whether the peer is that process, and the kernel says so: one that cannot be seen from here is nobody.
    pub(crate) fn is_with(&self, process: [u8; 20]) -> bool {
        self.peer.pid != 0 && self.identity() == process
    }

    pub(crate) fn death_notices(&self) -> MutexGuard<'_, Vec<DeathNotice>> {
        self.death_notices
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
        // Before: who sees the port closed asks for this.
        self.end_moved(port);
        let closed = &self.closed[(port % bell_layout::RECEIVERS) as usize];
        // Acquire and Release: pairs with the load in `failure`.
        let _ = closed.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            (last == 0 || is_later(port, last)).then_some(port)
        });
        self.disturb();
        self.tell_deaths();
    }

    /// Cuts the link because the peer broke a rule.
    pub(crate) fn poison(&self, fault: Fault) -> PeerFault {
        let fault = PeerFault::from(fault);
        tracing::warn!(pid = self.peer.pid, uid = self.peer.uid, %fault, "link cut");
        let fault = *self.fault.get_or_init(|| fault);
        self.take_down();
        fault
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

    /// Makes every thread of this process that waits on the link look again.
    pub(crate) fn disturb(&self) {
        // AcqRel: what the waiter shall find was stored before.
        self.trouble.fetch_add(1, Ordering::AcqRel);
        self.slot_freed.1.notify_all();
        self.wake_tasks();
        // E4 wake: orders the count above before this look at who sleeps. Pairs with the fence in
        // `announce`: a thread that is not counted yet sees the trouble before it sleeps.
        self.region.fence();
        if !self.parked.any() {
            return;
        }
        for index in 0..REPLIES {
            self.rouse(Slot::of(self.calls, index).wait());
        }
        for lane in 0..LANES {
            self.rouse(Place::of(self.calls, lane).space());
        }
        for sleeper in self.returns().sleepers() {
            self.rouse(sleeper);
        }
        crate::notify::rouse();
    }

    /// Wakes whoever sleeps on a word, whatever it says: the peer may have died after it took the
    /// announcement away and before it woke the sleeper.
    fn rouse(&self, at: usize) {
        // AcqRel: as in `word::taken`.
        self.region.swap(at, word::AWAKE, Ordering::AcqRel);
        self.region.wake(at, u32::MAX);
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
        let at = (self.calls, lane);
        let sleep = bell_layout::bell(receiver);
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
                self.tell(control::RING, receiver as u8);
                true
            }
            None => false,
        }
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
                    self.rouse(reply.wait());
                    crate::notify::rouse();
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
        moved
    }

    /// Rings for `lane` again and wakes `receiver`, whatever its bell says.
    #[cold]
    fn nudge(&self, lane: u32, receiver: u32) {
        let at = (self.calls, lane);
        let (own, bells) = (&self.region, &self.peer_bells);
        let _ = bell::ring(own, bells, at, receiver, self.peer_index);
        let sleep = bell_layout::bell(receiver) + bell_layout::SLEEP;
        bells.swap(sleep, word::AWAKE, Ordering::AcqRel);
        bells.wake(sleep, u32::MAX);
        self.tell(control::RING, receiver as u8);
    }

    /// The consumer of the peer's lane `index`, for the receiver that owns the lane.
    pub(crate) fn take_consumer(&self, index: u32) -> Consumer {
        let mut consumer = self.consumers[index as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        consumer
            .take()
            .unwrap_or_else(|| Consumer::new(Place::of(self.calls.other(), index)))
    }

    /// As long as no receiver holds the consumer of lane `index`.
    pub(crate) fn with_consumer(&self, index: u32, each: impl FnOnce(&mut Consumer)) {
        let mut place = self.consumers[index as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(consumer) = place.as_mut() {
            each(consumer);
        }
    }

    /// Gives a consumer back, at the position it has reached.
    pub(crate) fn return_consumer(&self, index: u32, consumer: Consumer) {
        let mut place = self.consumers[index as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(consumer);
    }

    /// Tells the peer that `port` is gone, and with it those that were bound before it at its receiver, but for one that has
    /// moved: what it has not read of those is not said any more. So who reads nothing makes no more of it wait than there are
    /// receivers. `false`: it does not read; the keeper tells it later.
    #[must_use]
    pub(crate) fn tell_closed(&self, port: &Port) -> bool {
        let mut unsaid = self.unsaid.lock().unwrap_or_else(PoisonError::into_inner);
        unsaid.retain(|bytes| match bytes[..] {
            [control::CLOSED, 0, a, b, c, d] => {
                receiver_of(u32::from_le_bytes([a, b, c, d])) != port.receiver
            }
            _ => true,
        });
        // Relaxed: set by who drops the port now, or it is not set.
        let has_moved = port.is_leaving.load(Ordering::Relaxed).into();
        let [a, b, c, d] = port.id.to_le_bytes();
        unsaid.push_back(vec![control::CLOSED, has_moved, a, b, c, d]);
        self.say_all(&mut unsaid)
    }

    /// Sends a control message that must not be lost. `false`: the peer does not read; the keeper
    /// sends it later.
    #[must_use]
    pub(crate) fn say(&self, bytes: &[u8]) -> bool {
        let mut unsaid = self.unsaid.lock().unwrap_or_else(PoisonError::into_inner);
        unsaid.push_back(bytes.to_vec());
        self.say_all(&mut unsaid)
    }

    /// Sends a control message with descriptors, after all others, or not at all.
    pub(crate) fn say_now(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut unsaid = self.unsaid.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.say_all(&mut unsaid) {
            return Err(Errno::AGAIN);
        }
        socket::send(&self.socket, bytes, fds)
    }

    /// Whether so many control messages, all of these kinds, wait for the peer to read.
    pub(crate) fn has_unsaid(&self, count: usize, is_one: impl Fn(u8) -> bool) -> bool {
        let unsaid = self.unsaid.lock().unwrap_or_else(PoisonError::into_inner);
        let are_there = unsaid.len() >= count;
        are_there && unsaid.iter().filter(|bytes| is_one(bytes[0])).count() >= count
    }

    /// Whether the peer has left so much unread that nothing more is done that it will be told of.
    pub(crate) fn is_behind(&self) -> bool {
        let unsaid = self.unsaid.lock().unwrap_or_else(PoisonError::into_inner);
        unsaid.len() >= UNSAID_MAX
    }

    /// Keeper: sends what could not be sent. Returns whether all has been.
    pub(crate) fn say_again(&self) -> bool {
        self.say_all(&mut self.unsaid.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn say_all(&self, unsaid: &mut VecDeque<Vec<u8>>) -> bool {
        while let Some(bytes) = unsaid.front() {
            if matches!(
                socket::send(&self.socket, bytes, &[]),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM)
            ) {
                return false;
            }
            unsaid.pop_front();
        }
        true
    }

    /// Sends a control message; lost if the peer is gone.
    pub(crate) fn tell(&self, what: u8, argument: u8) {
        let _ = socket::send(&self.socket, &[what, argument], &[]);
    }
}

/// Control messages that wait for a peer to read, beyond which it may ask for nothing.
pub(crate) const UNSAID_MAX: usize = 4096;

/// Whether `port` was bound after `other`, at the same receiver: the generation is in the 23 bits above
/// the receiver and wraps around.
const fn is_later(port: u32, other: u32) -> bool {
    ((port & !0xff) << 1)
        .wrapping_sub((other & !0xff) << 1)
        .cast_signed()
        > 0
}
