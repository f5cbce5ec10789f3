//! Which lane is let go of, and when.

use super::{Free, LANE_NS, NOBODY, WANTED, sent};
use crate::link::{Link, Outgoing};
use crate::slots::{SLOTS_PER_LANE, SlotState};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{LANES, lane};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::clock;

/// The fate of a message to a lane that others wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The message may be posted.
    Goes,
    /// The message waits for those under way in the lane.
    Waits,
    /// The lane is another's now.
    Gone,
}

/// How long a lane that has been waited for stays with its receiver though it is not used.
const KEPT_NS: u64 = 10_000_000;
/// When no lane could be let go of for so long, a thread that posts to a lane waits until no message is under way in
/// it; for so long.
pub(super) const PAUSE_AFTER_NS: u64 = 10_000_000;
const PAUSE_NS: u64 = 20_000_000;
/// How often a peer is asked what it has taken, and lanes are marked.
const ASK_NS: u64 = 1_000_000;

/// Lets go of a lane that is not in use: the next one that has been at rest since the last look, or the next one.
/// Returns the message for the peer.
pub(super) fn let_go(link: &Link, free: &mut Free) -> Option<ControlMessage<'static>> {
    if free.has_one() {
        return None;
    }
    let now_ns = clock::ticks_ns();
    if let Some(lane) = next_idle(link, free, now_ns) {
        return Some(has_left(link, free, lane));
    }
    let (since_ns, last_ns) = free.without_ns;
    let goes_on = now_ns.saturating_sub(last_ns) <= LANE_NS;
    free.without_ns = (if goes_on { since_ns } else { now_ns }, now_ns);
    if now_ns.saturating_sub(free.marked_ns) > ASK_NS {
        free.marked_ns = now_ns;
        for lane in &link.lanes {
            let mut outgoing = lane.lock();
            if outgoing.leads_to != NOBODY {
                outgoing.receiver = WANTED;
            }
        }
    }
    ask(free, now_ns)
}

/// Asks the peer what it has taken, but not all the time. Returns the message for it.
pub(super) fn ask(free: &mut Free, now_ns: u64) -> Option<ControlMessage<'static>> {
    let is_new = now_ns.saturating_sub(free.asked_ns) > ASK_NS;
    free.asked_ns = if is_new { now_ns } else { free.asked_ns };
    is_new.then_some(ControlMessage::LaneWanted)
}

/// Lets go of a lane that is not in use, one at a time, though there are some that nobody has. Returns the message for the peer.
pub(super) fn gather(link: &Link, free: &mut Free) -> Option<ControlMessage<'static>> {
    if free.leaving != 0 {
        return None;
    }
    let now_ns = clock::ticks_ns();
    match next_idle(link, free, now_ns) {
        Some(lane) => Some(has_left(link, free, lane)),
        None => ask(free, now_ns),
    }
}

/// A lane that is not in use; it leads nowhere from now on.
fn next_idle(link: &Link, free: &mut Free, now_ns: u64) -> Option<u32> {
    let (mut first, mut found) = (None, None);
    for lane in (0..LANES).map(|step| (free.next + step) % LANES) {
        let outgoing = link.lanes[lane as usize].lock();
        let position = outgoing.producer.position();
        let before = core::mem::replace(&mut free.seen[lane as usize], position);
        if may_leave(link, free, lane, &outgoing, now_ns) {
            first = first.or(Some(lane));
            if before == position {
                found = Some(lane);
                break;
            }
        }
    }
    let lane = found.or(first)?;
    free.next = (lane + 1) % LANES;
    let mut outgoing = link.lanes[lane as usize].lock();
    if !may_leave(link, free, lane, &outgoing, now_ns) {
        return None;
    }
    lead_nowhere(link, lane, &mut outgoing);
    Some(lane)
}

fn lead_nowhere(link: &Link, lane: u32, outgoing: &mut Outgoing) {
    let last = outgoing.producer.position().wrapping_sub(1);
    if !outgoing.producer.has_arrived(&link.region) && !sent::is_answered(link, lane, last) {
        // Relaxed: before the lane is free, and others are, behind the lock of the lanes.
        (link.map.passing).fetch_or(1 << outgoing.leads_to, Ordering::Relaxed);
    }
    outgoing.lead(NOBODY);
    // Relaxed: before the word that it is free, through the socket.
    let place = Place::of(link.calls, lane);
    link.region
        .store(place.receiver(), lane::NO_RECEIVER, Ordering::Relaxed);
}

/// No thread has the lane any more, which leads nowhere. Returns the message for the peer.
fn has_left(link: &Link, free: &mut Free, lane: u32) -> ControlMessage<'static> {
    free.without_ns = (0, 0);
    for entry in &link.map.lanes {
        // Relaxed: a thread that has read it finds whose the lane is.
        if u32::from(entry.load(Ordering::Relaxed)) == lane + 1 {
            entry.store(0, Ordering::Relaxed);
        }
    }
    free.leaving |= 1 << lane;
    ControlMessage::LaneFree { lane: lane as u8 }
}

/// Before more is posted to a lane that others wait for: the lane is let go of, if no message is under way in it. If
/// they have waited for long, the new message waits for those under way, for a while since `paused_ns`.
#[cold]
pub(crate) fn give_way(
    link: &Link,
    (lane, receiver): (u32, u32),
    paused_ns: &mut Option<u64>,
) -> Way {
    let mut free = link.map.free();
    let now_ns = clock::ticks_ns();
    let mut outgoing = link.lanes[lane as usize].lock();
    if outgoing.leads_to != receiver {
        return Way::Gone;
    }
    let is_needed = !free.has_one() && free.queue.is_waited_in();
    if is_needed && may_leave(link, &free, lane, &outgoing, now_ns) {
        lead_nowhere(link, lane, &mut outgoing);
        drop(outgoing);
        let said = has_left(link, &mut free, lane);
        drop(free);
        link.say(said);
        return Way::Gone;
    }
    if !is_needed {
        outgoing.receiver = receiver;
    }
    let (since_ns, last_ns) = free.without_ns;
    let is_pausing = is_needed
        && last_ns.saturating_sub(since_ns) > PAUSE_AFTER_NS
        && now_ns.saturating_sub(*paused_ns.get_or_insert(now_ns)) < PAUSE_NS
        && !has_untaken(link, lane);
    match is_pausing {
        true => Way::Waits,
        false => Way::Goes,
    }
}

/// Whether a lane is not in use, nor kept for a party that has waited for it.
fn may_leave(link: &Link, free: &Free, lane: u32, outgoing: &Outgoing, now_ns: u64) -> bool {
    let (position, given_ns) = free.given[lane as usize];
    let is_new =
        outgoing.producer.position() == position && now_ns.saturating_sub(given_ns) < KEPT_NS;
    let party = free.parties[lane as usize];
    !is_new && !free.queue.has_threads(party) && is_idle(link, lane, outgoing)
}

/// Whether a call of a lane has been answered, and no thread has looked at the answer.
fn has_untaken(link: &Link, lane: u32) -> bool {
    let of_lane = lane * SLOTS_PER_LANE..(lane + 1) * SLOTS_PER_LANE;
    let mut slots = of_lane.map(|index| (index, &link.slots[index as usize]));
    // Relaxed: a hint.
    slots.any(|(index, slot)| {
        slot.state.load(Ordering::Relaxed) == SlotState::BUSY
            && Slot::of(link.calls, index)
                .is_answered(&link.region, slot.generation.load(Ordering::Relaxed))
    })
}

/// Whether all messages posted to a lane have been taken by their receivers, and none of its calls is to be
/// answered.
fn is_idle(link: &Link, lane: u32, outgoing: &Outgoing) -> bool {
    let (first, count) = (lane * SLOTS_PER_LANE, SLOTS_PER_LANE);
    let mut slots = link.slots.iter().skip(first as usize).take(count as usize);
    let last = outgoing.producer.position().wrapping_sub(1);
    outgoing.leads_to != NOBODY
        && (outgoing.producer.is_taken(&link.region) || sent::is_answered(link, lane, last))
        // Relaxed: a call that is posted meanwhile needs the lock of its lane.
        && slots.all(|slot| slot.state.load(Ordering::Relaxed) != SlotState::BUSY)
}
