//! The assignment of lanes: each calling thread has one for each receiver of the peer that it sends to, and keeps it while there
//! are enough. When there are none left, one that is not in use is given to another receiver:
//!
//! ```text
//! sender   -> receiver   what has been taken? (where none seems to be free)
//! sender   -> receiver   nothing comes in this lane any more
//! receiver -> sender     nobody here looks at it any more
//! ```
//!
//! A message to a lane is posted under its lock, to the receiver that the lane names; a late ring, from a thread whose message
//! has been taken long since, finds that the lane leads elsewhere now (`Place::receiver`).
//!
//! Receivers without a lane have turns ([`Queue`]). When all lanes are in use they are marked: the next thread that
//! posts to a lane first gives it away, if no message is under way in it.

use super::{backlog, tasks};
use crate::link::{Link, Outgoing};
use crate::rank;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use handfast_layout::bell as bell_layout;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{LANE_HEAD_BYTES, LANES};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_ring::{Fault, Rule};
use handfast_sys::clock;
use handfast_sys::lock::{APART, OwnedLock, thread_number};
use handfast_sys::sync::{Mutex, MutexGuard};
use queue::Queue;

pub(crate) mod leaving;
pub(crate) mod queue;
pub(crate) mod sent;

pub(crate) use leaving::Way;
pub(crate) use sent::Sent;

/// Which lane each calling thread uses for each receiver of the peer: while it has one, its messages to one port stay in
/// order, and a lane is given to another when all of them have been taken.
pub(crate) struct LaneMap {
    /// Lane plus one, by receiver and thread.
    lanes: Box<[AtomicU8]>,
    free: Mutex<Free, rank::LaneMap>,
    /// Receivers whose ports have moved, and whose former lanes belong to others now: messages that came in those lanes
    /// may be on their way to the new homes. A bit each.
    passing: AtomicU64,
}

/// The lanes that no receiver has.
#[derive(Default)]
struct Free {
    /// So many have been given out once.
    used: u32,
    /// The given-out lanes that have come back; a bit each.
    back: u32,
    /// The given-out lanes that the peer has been told of, and has not answered yet.
    leaving: u32,
    /// When the peer was asked what has been taken.
    asked_ns: u64,
    /// Since when, and when last, none could be let go of.
    without_ns: (u64, u64),
    /// The one that is looked at next, and where each was at the last look.
    next: u32,
    seen: [u32; LANES as usize],
    /// The parties whose turn comes next.
    queue: Queue,
    /// The introducers that lanes were taken for, and those lanes.
    introduced: Vec<(u64, u32)>,
    /// The party each lane was given to.
    parties: [Party; LANES as usize],
    /// Where each was when it was given to a party that had waited for it, and when.
    given: [(u32, u64); LANES as usize],
    /// When the last one was, and when lanes were marked last.
    given_ns: u64,
    marked_ns: u64,
}

impl Free {
    /// Whether one is there, or on its way.
    const fn has_one(&self) -> bool {
        self.leaving | self.back != 0
    }

    /// How many nobody has.
    const fn left(&self) -> u32 {
        LANES - self.used + self.back.count_ones()
    }

    /// Whether no more lanes may be taken for claims because of this introducer.
    fn has_many_of(&self, introducer: u64) -> bool {
        let by_it = (self.introduced.iter()).filter(|(by, _)| *by == introducer);
        by_it.count() >= INTRODUCER_LANES_MAX || self.introduced.len() >= INTRODUCED_LANES_MAX
    }
}

/// The lanes of a receiver, which stay all there are for as long as this does.
pub(crate) struct HeldLanes<'a> {
    lanes: Vec<u32>,
    _given: MutexGuard<'a, Free, rank::LaneMap>,
}

impl HeldLanes<'_> {
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, u32> {
        self.lanes.iter()
    }
}

/// How long a sender waits for a lane while all are in use and none is on its way.
pub(crate) const LANE_NS: u64 = 1_000_000_000;

/// In the place of a receiver: it has no lanes.
pub(crate) const NOBODY: u32 = bell_layout::RECEIVERS;
/// In the place of the receiver to which may be posted at once: others wait for the lane.
const WANTED: u32 = NOBODY + 1;

/// Threads told apart; more share lanes. The first place is for threads that share theirs only with each other: the
/// threads that pass on messages that come to the old homes of ports.
const THREADS: usize = LANES as usize;

const _: () = assert!(THREADS == APART as usize);

fn thread() -> usize {
    thread_number() as usize % THREADS
}

/// The owner of lanes: a receiver, as [its usual](party_of) threads or those apart send to it.
type Party = u32;

fn party_of(receiver: u32, thread: usize) -> Party {
    receiver
        + if thread == 0 {
            bell_layout::RECEIVERS
        } else {
            0
        }
}

/// Lanes that are kept for receivers that have none at all.
const RESERVE: u32 = LANES / 4;

/// Lanes of one link that are taken because one process introduces rights to ports of the peer's, and because any does:
/// a quarter, and three eighths.
const INTRODUCER_LANES_MAX: usize = LANES as usize / 4;
const INTRODUCED_LANES_MAX: usize = LANES as usize * 3 / 8;

impl Default for LaneMap {
    fn default() -> Self {
        let entries = bell_layout::RECEIVERS as usize * THREADS;
        Self {
            lanes: (0..entries).map(|_| AtomicU8::new(0)).collect(),
            free: Mutex::default(),
            passing: AtomicU64::new(0),
        }
    }
}

impl LaneMap {
    fn free(&self) -> MutexGuard<'_, Free, rank::LaneMap> {
        self.free.lock()
    }

    /// The lane that this thread has for `receiver`, if it has one.
    #[inline]
    pub(crate) fn known(&self, receiver: u32) -> Option<u32> {
        let thread = thread();
        let entry = self.lanes.get(receiver as usize * THREADS + thread)?;
        // Relaxed: a number; the lane itself says whose it is, behind its lock.
        u32::from(entry.load(Ordering::Relaxed)).checked_sub(1)
    }

    /// A lane that leads there, of this thread if there is one.
    fn given(&self, receiver: u32) -> Option<u32> {
        let thread = thread();
        let (before, from_own) = self.row(receiver).split_at(thread);
        // Relaxed: as in `known`.
        let mut lanes = (from_own.iter().chain(before)).map(|lane| lane.load(Ordering::Relaxed));
        let lane = lanes.find(|lane| *lane != 0)?;
        Some(u32::from(lane) - 1)
    }

    fn row(&self, receiver: u32) -> &[AtomicU8] {
        &self.lanes[receiver as usize * THREADS..][..THREADS]
    }

    /// The receiver that `lane` was given to.
    pub(crate) fn receiver_of(&self, lane: u32) -> Option<u32> {
        let is_lane = |entry: &AtomicU8| u32::from(entry.load(Ordering::Relaxed)) == lane + 1;
        let place = self.lanes.iter().position(is_lane)?;
        Some((place / THREADS) as u32)
    }

    /// The lanes that lead to `receiver`. No others are given out while it is held.
    pub(crate) fn hold(&self, receiver: u32) -> HeldLanes<'_> {
        let given = self.free();
        // Relaxed: entries change only under the lock.
        let lanes = (self.row(receiver).iter()).map(|entry| entry.load(Ordering::Relaxed));
        let mut lanes: Vec<_> = lanes.filter(|lane| *lane != 0).collect();
        lanes.sort_unstable();
        lanes.dedup();
        HeldLanes {
            lanes: lanes.iter().map(|lane| u32::from(*lane) - 1).collect(),
            _given: given,
        }
    }

    /// Whether a lane that has been asked for may come: one is on its way, or all have been in use only for a short time.
    /// The receivers that have taken the messages in them may say so at any moment.
    pub(crate) fn may_come(&self) -> bool {
        let free = self.free();
        let (since_ns, last_ns) = free.without_ns;
        free.has_one() || last_ns.saturating_sub(since_ns) <= LANE_NS
    }

    /// Whether all messages that this thread has sent to `receiver` have been received by their port, as far as
    /// lanes show that it does not have any more.
    pub(crate) fn has_arrived_before(&self, receiver: u32) -> bool {
        // The lock: a thread that has found its lane gone also finds what is said of that here.
        let _free = self.free();
        !self.is_passing(receiver)
    }

    /// As [`Self::has_arrived_before`], for a thread that has locked the lane that it has now.
    #[inline]
    pub(crate) fn is_passing(&self, receiver: u32) -> bool {
        // Relaxed: it has got that lane, and passed the lock of the lanes, since it lost the one before.
        self.passing.load(Ordering::Relaxed) & 1 << receiver != 0
    }

    /// The port that has moved from `receiver` is gone.
    pub(crate) fn passes_no_more(&self, receiver: u32) {
        // Relaxed: messages on their way have been passed on, or never will be.
        (self.passing).fetch_and(!(1 << receiver), Ordering::Relaxed);
    }

    /// Whether lanes still go round: a thread that has waited since then may go on. A lane that the peer has been told of
    /// comes when the peer runs again.
    pub(crate) fn go_round(&self, since_ns: u64) -> bool {
        let free = self.free();
        let from_ns = since_ns.max(free.given_ns);
        free.has_one() || clock::ticks_ns().saturating_sub(from_ns) <= LANE_NS
    }

    /// This thread waits for a lane to `receiver`, until it says [`Self::waits_no_more`].
    pub(crate) fn waits(&self, receiver: u32) {
        self.free().queue.enter(party_of(receiver, thread()));
    }

    pub(crate) fn waits_no_more(&self, receiver: u32) {
        self.free().queue.leave(party_of(receiver, thread()));
    }
}

impl Outgoing {
    const fn lead(&mut self, receiver: u32) {
        (self.leads_to, self.receiver) = (receiver, receiver);
    }
}

/// The lane of this thread for `receiver`; `None` when other receivers have all, which asks for one that they do
/// not use, and for [`NOBODY`].
#[inline]
pub(crate) fn to(link: &Link, receiver: u32) -> Option<u32> {
    match link.map.known(receiver) {
        None if receiver < NOBODY => assign(link, receiver, None),
        known => known,
    }
}

/// A lane to claim a right to a port of `receiver` in, introduced by the process, or user, of this number: this thread's
/// lane, or any that leads there. A new lane is taken for few receivers of each introducer, so that enough stay
/// for this process: an introducer may name any port.
pub(crate) fn to_claim(link: &Link, receiver: u32, introducer: u64) -> Option<u32> {
    match link.map.given(receiver) {
        None if receiver < NOBODY => assign(link, receiver, Some(introducer)),
        given => given,
    }
}

/// A lane, and the receiver it leads to, for a claim on the word of this user, by which nothing is sent before it is answered:
/// so it may go to any receiver. Only where no lane leads anywhere, one is taken, of which a user has few.
pub(crate) fn to_claim_on_word(link: &Link, receiver: u32, user: u32) -> Option<(u32, u32)> {
    if let Some(lane) = link.map.given(receiver) {
        return Some((lane, receiver));
    }
    let any = (0..LANES).find_map(|lane| Some((lane, link.map.receiver_of(lane)?)));
    any.or_else(|| {
        // No process has such a number.
        let of_user = 1 << 32 | u64::from(user);
        Some((to_claim(link, receiver, of_user)?, receiver))
    })
}

/// As [`to`], or any that leads there: for a statement made once, in no order with others.
pub(crate) fn any(link: &Link, receiver: u32) -> Option<u32> {
    link.map.given(receiver).or_else(|| to(link, receiver))
}

/// Takes a lane for `receiver`, for a claim because of this introducer, if there is one.
#[cold]
fn assign(link: &Link, receiver: u32, introducer: Option<u64>) -> Option<u32> {
    let thread = thread();
    let row = link.map.row(receiver);
    let mut free = link.map.free();
    // Relaxed throughout: entries change only under the lock.
    let own = row[thread].load(Ordering::Relaxed);
    if own != 0 {
        return Some(u32::from(own) - 1);
    }
    // Another thread may have got one since the look without the lock.
    if introducer.is_some()
        && let Some(lane) = link.map.given(receiver)
    {
        return Some(lane);
    }
    let shared = if thread == 0 { &row[..1] } else { &row[1..] };
    let mut lanes = shared.iter().map(|entry| entry.load(Ordering::Relaxed));
    let first = lanes.find(|lane| *lane != 0);
    let reserve = if first.is_some() { RESERVE } else { 0 };
    let lane = match first {
        None if introducer.is_some_and(|by| free.has_many_of(by)) => return None,
        _ if free.left() > reserve => {
            let (lane, _) = take_left(link, &mut free, (receiver, thread));
            free.introduced.extend(introducer.map(|by| (by, lane)));
            lane as u8 + 1
        }
        Some(first) => first,
        None => {
            (free.queue).ask(party_of(receiver, thread), clock::ticks_ns());
            let ask = leaving::let_go(link, &mut free);
            drop(free);
            ask.inspect(|message| link.say(*message));
            return None;
        }
    };
    row[thread].store(lane, Ordering::Relaxed);
    Some(u32::from(lane) - 1)
}

/// Gives a lane that nobody has, of which one is left, to a receiver and a thread. The lane, and where it is.
fn take_left(link: &Link, free: &mut Free, (receiver, thread): (u32, usize)) -> (u32, u32) {
    let lane = match free.back.trailing_zeros() {
        u32::BITS => {
            let lane = free.used;
            free.used += 1;
            link.region.make(link.calls.lane(lane), LANE_HEAD_BYTES);
            lane
        }
        lane => lane,
    };
    free.back &= !(1 << lane);
    free.parties[lane as usize] = party_of(receiver, thread);
    (lane, lead(link, lane, receiver))
}

/// Has this thread another lane for `receiver`, since its present one, which it shares, has as many calls under way as there can be? Gives it one
/// that nobody has, or one of another thread with room; where there is none, lets go of one that is at rest, so that there is one later. Not before
/// the peer has taken all that was sent in the present one, so that nothing is overtaken.
#[cold]
pub(crate) fn another(link: &Link, (lane, receiver): (u32, u32)) -> bool {
    let thread = thread();
    if thread == 0 || receiver >= NOBODY {
        return false;
    }
    let row = link.map.row(receiver);
    let mut free = link.map.free();
    // Relaxed, both: entries change only under the lock.
    if u32::from(row[thread].load(Ordering::Relaxed)) != lane + 1 {
        return true;
    }
    let own = row[1..].iter().map(|entry| entry.load(Ordering::Relaxed));
    let own = own.filter_map(|entry| u32::from(entry).checked_sub(1));
    let own = own.fold(0_u32, |all, lane| all | 1 << lane);
    let present = link.lanes[lane as usize].lock();
    let has_arrived = present.producer.has_arrived(&link.region);
    drop(present);
    let may_have_more = own.count_ones() < LANES - RESERVE;
    let others = (0..LANES).filter(|other| own & 1 << other != 0 && *other != lane);
    let free_slots = |other: &u32| sent::free_slots(link, *other);
    let roomiest = others.max_by_key(free_slots);
    let (mut given, mut said) = (None, None);
    if !has_arrived {
        said = leaving::ask(&mut free, clock::ticks_ns());
    } else if may_have_more && free.left() > RESERVE {
        let (lane, position) = take_left(link, &mut free, (receiver, thread));
        free.given[lane as usize] = (position, clock::ticks_ns());
        given = Some(lane);
    } else if let Some(other) = roomiest.filter(|other| free_slots(other) > 0) {
        given = Some(other);
    } else if may_have_more {
        said = leaving::gather(link, &mut free);
    }
    if let Some(lane) = given {
        row[thread].store(lane as u8 + 1, Ordering::Relaxed);
    }
    drop(free);
    said.inspect(|message| link.say(*message));
    given.is_some()
}

/// Whether this thread has a lane for `receiver`, or gets one, in which there is room for a call. A hint.
pub(crate) fn has_slots(link: &Link, receiver: u32) -> bool {
    to(link, receiver).is_some_and(|lane| sent::free_slots(link, lane) > 0)
}

/// Has a lane that leads nowhere lead to a receiver. Where it is.
fn lead(link: &Link, lane: u32, receiver: u32) -> u32 {
    let mut outgoing = link.lanes[lane as usize].lock();
    outgoing.lead(receiver);
    // Relaxed: before the first message that is posted under this lock, and its ring (E3).
    let place = Place::of(link.calls, lane);
    link.region
        .store(place.receiver(), receiver + 1, Ordering::Relaxed);
    outgoing.producer.position()
}

/// Control thread of the sender: no receiver there looks any more at a lane that was free. It is given to the party that has
/// waited longest.
pub(crate) fn hear_back(link: &Link, lane: u8) -> Result<(), Fault> {
    let lane = u32::from(lane);
    {
        let mut free = link.map.free();
        if lane >= LANES || free.leaving & 1 << lane == 0 {
            return Err(Rule::LaneReceiver.broken());
        }
        free.introduced.retain(|(_, of)| *of != lane);
        free.leaving &= !(1 << lane);
        let now_ns = clock::ticks_ns();
        match free.queue.next(now_ns) {
            Some(party) => {
                let receiver = party % bell_layout::RECEIVERS;
                let position = lead(link, lane, receiver);
                free.given[lane as usize] = (position, now_ns);
                free.parties[lane as usize] = party;
                // One of the places of the threads that share it.
                let place = usize::from(party == receiver);
                // Relaxed: as in `assign`.
                link.map.row(receiver)[place].store(lane as u8 + 1, Ordering::Relaxed);
            }
            None => free.back |= 1 << lane,
        }
        free.given_ns = now_ns;
    }
    link.waiters.slot_freed.1.notify_all();
    tasks::wake_for_room(link);
    Ok(())
}

/// A port at this receiver is known to be gone. When this returns no more messages for it come into any lane; the peer is
/// asked to take out those that have: its receiver may have another port already, from which no thread has received.
pub(crate) fn pass_over(link: &Link, receiver: u32) {
    let is_untaken = |lane: &OwnedLock<Outgoing, rank::Lane>| {
        // The lock: a thread that posts after it looks up the port's present state.
        let outgoing = lane.lock();
        outgoing.leads_to == receiver && !outgoing.producer.is_taken(&link.region)
    };
    // All of them.
    let is_asked = link.lanes.iter().filter(|lane| is_untaken(lane)).count() > 0;
    let has_said = || backlog::has_unsaid(link, 1, |message| message == ControlMessage::LaneWanted);
    if is_asked && !link.is_down() && !has_said() {
        link.say(ControlMessage::LaneWanted);
    }
}

#[cfg(test)]
pub(crate) mod tests;
