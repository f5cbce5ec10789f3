//! A link: everything one pair of processes shares, seen from one of the two.

use crate::error::{Gone, PeerFault, SendError};
use crate::peer_bells::PeerBells;
use crate::process::Process;
use crate::rank;
use crate::rows::Row;
use crate::slots::{LINES_BYTES, Slots};
use crate::users::{Charge, Foreign};

use core::sync::atomic::{AtomicU32, Ordering};
use handfast_channel::reply::Slot;
use handfast_layout::hello;
use handfast_layout::link::{LANE_HEAD_BYTES, LANES, Meta, Side};
use handfast_layout::part::{is_member, receiver_of};
use handfast_proto::timers::Timer;
use handfast_proto::users::Quota;
use handfast_region::Region;
use handfast_ring::lane::{Consumer, Place, Producer};
use handfast_ring::{Fault, Rule};
use handfast_sys::lock::OwnedLock;
use handfast_sys::socket::Peer;
use handfast_sys::sync::{Mutex, MutexGuard};
use std::sync::Arc;

pub(crate) mod again;
pub(crate) mod backlog;
pub(crate) mod connection;
pub(crate) mod counters;
pub(crate) mod deaths;
pub(crate) mod doorbell;
pub(crate) mod fills;
pub(crate) mod group;
pub(crate) mod hearing;
pub(crate) mod held;
pub(crate) mod in_force;
pub(crate) mod inbox;
pub(crate) mod incoming;
pub(crate) mod introductions;
pub(crate) mod lanes;
pub(crate) mod life;
pub(crate) mod long;
pub(crate) mod parts;
pub(crate) mod passing;
pub(crate) mod peer_ports;
pub(crate) mod redirects;
pub(crate) mod releases;
pub(crate) mod returns;
pub(crate) mod revoked;
pub(crate) mod rouse;
pub(crate) mod spread;
pub(crate) mod tables;
pub(crate) mod tasks;
pub(crate) mod usage;
pub(crate) mod wake;

pub(crate) use backlog::{Backlog, UNSAID_MAX};
use connection::{Connection, PeerProcess};
use counters::PeerCounters;
use deaths::DeathNotice;
use doorbell::Doorbell;
use group::{Group, Reserved};
use in_force::InForce;
pub(crate) use incoming::Incoming;
use lanes::LaneMap;
use life::Life;
use parts::PartsUnderWay;
use rouse::Waiters;
use tables::Rights;
pub(crate) use tasks::What;

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
    /// The process whose control thread looks after them: its own, until the link has ended.
    pub(crate) process: Arc<Process>,
    doorbell: Doorbell,
    pub(crate) group: Arc<Group>,
    /// The peer's bit in our bells.
    pub(crate) index: u32,
    /// The link's row of this process's counters.
    pub(crate) row: Row,
    /// The lanes on which the peer calls.
    pub(crate) incoming: Incoming,
    pub(crate) connection: Connection,
    pub(crate) peer: Peer,
    pub(crate) incarnation: [u8; 16],
    /// Number of this link in its process, never used again, not in a forked child either: the name for it in
    /// the control thread's events and threads' memories. An index could have passed to another link meanwhile.
    pub(crate) serial: u32,
    pub(crate) quotas: InForce,
    pub(crate) counters: PeerCounters,
    /// Messages that the peer has not read.
    backlog: Mutex<Backlog, rank::Backlog>,
    pub(crate) rights: Rights,
    pub(crate) waiters: Waiters,
    pub(crate) parts: PartsUnderWay,
    pub(crate) life: Life,
}

/// Something that was claimed of the peer.
pub(crate) trait IsAwaited: Send + Sync {
    /// Whether its answer is awaited still. Takes one that has come, which frees its slot.
    fn is_awaited(&self) -> bool;

    /// Whether no answer is awaited any more.
    fn is_over(&self) -> bool;
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
    pub(crate) process: Option<PeerProcess>,
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

impl Outgoing {
    /// A lane that leads nowhere.
    fn new(place: Place) -> Self {
        Self {
            producer: Producer::new(place),
            claimed: None,
            named: 0,
            leads_to: lanes::NOBODY,
            receiver: lanes::NOBODY,
        }
    }
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
        let incoming = Incoming::new(&parts.region, calls.other());
        Self {
            region: parts.region,
            calls,
            agreed: parts.agreed,
            lanes: core::array::from_fn(|lane| {
                OwnedLock::new(Outgoing::new(Place::of(calls, lane as u32)))
            }),
            map: LaneMap::default(),
            slots: Box::default(),
            process,
            trouble: AtomicU32::new(0),
            doorbell: Doorbell::new(parts.peer_bells, parts.peer_index),
            row,
            group,
            index,
            incoming,
            connection: Connection::new(parts.socket, parts.process),
            peer: parts.peer,
            incarnation: parts.incarnation,
            serial,
            quotas: InForce::default(),
            counters: PeerCounters::default(),
            backlog,
            rights: Rights::new(
                [(); 2].map(|()| users.nothing(parts.peer.uid, Quota::Claims)),
                users.nothing(parts.peer.uid, Quota::Backlog),
            ),
            waiters: Waiters::default(),
            parts: PartsUnderWay::new(users, parts.peer.uid),
            life: Life::new(parts.charges, calls == Side::Acceptor),
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
        self.rights.death_notices.lock()
    }

    /// The link's other end, if that is here, too.
    pub(crate) fn twin(&self) -> Option<Arc<Self>> {
        self.life.twin.get()?.upgrade()
    }

    /// Whether its other end is in this process.
    #[inline]
    pub(crate) fn is_loop(&self) -> bool {
        self.life.twin.get().is_some()
    }

    /// Whether nothing can be answered through it: it has ended, or is the link of this process's parent.
    pub(crate) fn is_over(&self) -> bool {
        self.is_down() || self.is_forked()
    }

    /// Whether it is the link of this process's parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.life.epoch != handfast_sys::process::fork_epoch()
    }

    /// Whether the link has ended. One load of private memory.
    #[inline]
    pub(crate) fn is_down(&self) -> bool {
        // Acquire: pairs with the exchange in `take_down`, so the fault is visible.
        self.life.down.load(Ordering::Acquire)
    }

    /// The rule the peer broke, if that has ended it.
    pub(crate) fn fault(&self) -> Option<PeerFault> {
        self.life.fault.get().copied()
    }

    /// Whether it has ended because the peer broke a rule.
    pub(crate) fn is_cut(&self) -> bool {
        self.life.fault.get().is_some()
    }

    /// Why nothing comes or goes through it any more, if so.
    pub(crate) fn end(&self) -> Option<SendError> {
        self.is_down()
            .then(|| match (self.process.check(), self.fault()) {
                (Err(misuse), _) => SendError::Misuse(misuse),
                (Ok(()), Some(fault)) => SendError::Fault(fault),
                (Ok(()), None) => SendError::Gone(Gone::Process),
            })
    }

    /// Why nothing more can be sent to `port`, if so.
    pub(crate) fn failure(&self, port: u32) -> Option<SendError> {
        if let Some(end) = self.end() {
            return Some(end);
        }
        let is_gone = self.rights.peer_ports.is_gone(port);
        is_gone.then_some(SendError::Gone(Gone::Port))
    }

    /// The peer has said that its `port` is gone. It may say so late, when the receiver has another
    /// port already: all up to this one are.
    pub(crate) fn close_port(&self, port: u32) {
        // Before: a thread that sees the port closed asks for this.
        redirects::end_moved(self, port);
        self.close_up_to(port);
    }

    fn close_up_to(&self, port: u32) {
        let is_news = self.rights.peer_ports.go(port);
        self.disturb();
        if is_news {
            lanes::pass_over(self, receiver_of(port));
        }
        deaths::tell(self);
    }

    /// This process sends to `port`, as the peer itself has told it: of two ports at one receiver the earlier one is gone,
    /// whether the peer's announcement has come or not. Messages to the earlier port would lie in the way of messages to
    /// the later one.
    pub(crate) fn sends_to(&self, port: u32) {
        if is_member(port) {
            return;
        }
        if let Some(gone) = self.rights.peer_ports.gone_by_use_of(port) {
            self.close_up_to(gone);
        }
    }

    /// Cuts the link because the peer broke a rule.
    pub(crate) fn poison(&self, fault: Fault) -> PeerFault {
        let fault = self.condemn(fault);
        if crate::guest::is_control() {
            self.take_down();
        } else {
            self.disturb_threads();
        }
        fault
    }

    /// As [`Self::poison`], where this thread may hold any lock: the control thread, which takes the link down, wakes those that wait
    /// for something of the link.
    pub(crate) fn condemn(&self, fault: Fault) -> PeerFault {
        let new = PeerFault::from(fault);
        let is_first = self.life.fault.set(new).is_ok();
        self.mark_down();
        // This thread may hold locks, and the application is told: by the control thread.
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
    /// socket close. Returns whether this call ended it. Calls wakers of the application.
    pub(crate) fn take_down(&self) -> bool {
        let first = self.mark_down();
        self.disturb();
        deaths::tell(self);
        first
    }

    /// From now on nothing is posted. Takes the lock of the connection, which is among the last.
    fn mark_down(&self) -> bool {
        // AcqRel: pairs with the load in `is_down`.
        let first = !self.life.down.swap(true, Ordering::AcqRel);
        self.connection.shut_down();
        first
    }

    /// The consumer of the peer's lane `index`, for the receiver that owns the lane.
    pub(crate) fn take_consumer(&self, index: u32) -> Consumer {
        let consumer = self.incoming.take_consumer(index);
        consumer.unwrap_or_else(|| {
            let place = Place::of(self.calls.other(), index);
            incoming::consumer_of(place, &self.region)
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
            let consumer = self.incoming.take_consumer(index);
            let mut borrowed = Borrowed(self, index, consumer);
            if let Some(consumer) = borrowed.2.as_mut() {
                each(consumer);
            }
        }
    }

    /// Gives a consumer back, at the position it has reached.
    pub(crate) fn return_consumer(&self, index: u32, consumer: Consumer) {
        self.incoming.return_consumer(index, consumer);
    }
}

// The lanes' locks share no line with another's.
const _: () = assert!(align_of::<OwnedLock<Outgoing, rank::Lane>>() == LINES_BYTES);

/// Size of the empty region that replaces one that has gone elsewhere.
const EMPTY_BYTES: usize = 64;

impl Drop for Link {
    /// The thread that lets go of a link last may be a receiver, and links end together by the hundred. Unmapping a region, which
    /// may be the end of its file, takes some 0.3 ms: its user's closing thread does that, and the user is charged until then.
    /// The control thread lets go of the rest, [its place in the list of the dead](crate::links::forget_ended).
    fn drop(&mut self) {
        let users = self.users().clone();
        if !users.is_forked() {
            self.process.schedule(Timer::EndedLinks);
        }
        // Where the peer's user is charged for nothing, the number of links that wait there would be unlimited.
        let is_one_of_many = || users.has_many_links(self.peer.uid);
        if users.is_forked() || self.life.charges.is_empty() || !is_one_of_many() {
            return;
        }
        let regions = [&mut self.region, self.doorbell.bells_mut()];
        let regions = regions.map(|region| core::mem::replace(region, Region::heap(EMPTY_BYTES)));
        let charges = core::mem::take(&mut self.life.charges);
        users.free(self.peer.uid, (regions, charges));
    }
}

/// The peer has this process touch what it has not touched itself.
pub(crate) const fn untouched(offset: usize) -> Fault {
    let rule = Rule::Untouched;
    Fault { rule, offset }
}
