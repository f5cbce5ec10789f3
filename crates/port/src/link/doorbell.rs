//! How this process rings the bells of the peer, and looks after what has been rung for.

use super::rouse::{self, ROUSED_MAX};
use super::{Link, backlog, tasks};
use crate::peer_bells::PeerBells;
use crate::process::{SLEEPS_NS, WATCH_NS, WATCH_NS_MAX};
use crate::slots::{SLOTS_PER_LANE, SlotState};
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_channel::reply::Slot;
use handfast_channel::{arm, bell, stamp};
use handfast_layout::bell as bell_layout;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{LANES, Side};
use handfast_region::{Memory, Region};
use handfast_ring::lane::Place;
use handfast_wait::word;

/// The peer's bells.
pub(super) struct Doorbell {
    bells: Region,
    /// Only the peer writes them.
    is_published: bool,
    /// Our bit there.
    index: u32,
    /// Lanes that had to ring: since the control thread's last look, and at that.
    rung: AtomicU32,
    rung_before: AtomicU32,
}

impl Doorbell {
    pub(super) fn new(peer: PeerBells, index: u32) -> Self {
        Self {
            bells: peer.region,
            is_published: peer.is_published,
            index,
            rung: AtomicU32::new(0),
            rung_before: AtomicU32::new(0),
        }
    }

    pub(super) const fn bells_mut(&mut self) -> &mut Region {
        &mut self.bells
    }

    /// Others that share the bells may take the wake-up away: the control thread looks whether a lane still holds what it rang for.
    fn rings(&self, lane: u32) {
        // Relaxed, here and below: a lane that is missed is looked at next time.
        self.rung.fetch_or(1 << lane, Ordering::Relaxed);
    }

    fn has_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed) | self.rung_before.load(Ordering::Relaxed) != 0
    }

    /// Lanes that have rung since the last look, and those that had at it.
    fn next_rung(&self) -> (u32, u32) {
        let rung = self.rung.swap(0, Ordering::Relaxed);
        (rung, self.rung_before.swap(rung, Ordering::Relaxed))
    }
}

/// The peer's bells.
#[inline]
pub(crate) const fn bells(link: &Link) -> &Region {
    &link.doorbell.bells
}

/// Our bit in the peer's bells.
pub(crate) const fn peer_index(link: &Link) -> u32 {
    link.doorbell.index
}

/// Tells the callee of a post to `lane`, if it does not poll it. Returns whether this made a
/// wake-up call.
#[inline]
pub(crate) fn ring(link: &Link, lane: u32, receiver: u32) -> bool {
    let place = Place::of(link.calls, lane);
    if !arm::must_ring(&link.region.view(), place, link.agreed) {
        return false;
    }
    ring_armed(link, lane, receiver)
}

/// Wakes a thread that sleeps at a receiver of a peer of this user, which finds nothing yet. At most one system call.
#[cold]
pub(crate) fn wake_early(link: &Link, receiver: u32) {
    let sleep = bell_layout::bell(receiver) + bell_layout::SLEEP;
    let Doorbell {
        bells,
        is_published,
        ..
    } = &link.doorbell;
    // Relaxed: a hint.
    if !is_published && bells.load(sleep, Ordering::Relaxed) == word::ASLEEP {
        bells.wake(sleep, 1);
    }
}

#[cold]
fn ring_armed(link: &Link, lane: u32, receiver: u32) -> bool {
    link.doorbell.rings(lane);
    link.process.watch_sleepers();
    let at = (link.calls, lane);
    let sleep = bell_layout::bell(receiver);
    let Doorbell { bells, index, .. } = &link.doorbell;
    if link.doorbell.is_published {
        return ring_published(link, at, receiver);
    }
    match bell::ring(&link.region, bells, at, receiver, *index) {
        Some(word::ASLEEP) => {
            stamp(bells, sleep + bell_layout::STAMP);
            bells.wake(sleep + bell_layout::SLEEP, 1);
            true
        }
        Some(_) => {
            stamp(bells, sleep + bell_layout::STAMP);
            backlog::tell(
                link,
                ControlMessage::Ring {
                    receiver: receiver as u8,
                },
            );
            true
        }
        None => false,
    }
}

/// As [`ring_armed`], to a process of another user.
fn ring_published(link: &Link, at: (Side, u32), receiver: u32) -> bool {
    let sleep = bell_layout::bell(receiver) + bell_layout::SLEEP;
    let bells = &link.doorbell.bells;
    match bell::ring_published(&link.region, bells, at, receiver) {
        word::AWAKE => return false,
        word::ASLEEP if bells.wake(sleep, 1) > 0 => return true,
        // Another thread has woken it; or it is about to sleep, and its control thread will see to it.
        _ if bells.load(sleep, Ordering::Relaxed) == word::AWAKE => return false,
        _ => backlog::tell(
            link,
            ControlMessage::Ring {
                receiver: receiver as u8,
            },
        ),
    }
    true
}

/// Nudges the server for each call whose caller has slept for [`WATCH_NS`], and wakes the caller if it has been answered.
/// Returns in how many nanoseconds the next look is due, if calls are in flight or lanes have rung.
pub(crate) fn watch(link: &Link) -> Option<u64> {
    let mut next_ns = None;
    let mut late = 0u32;
    for (index, slot) in link.slots.iter().enumerate() {
        // Relaxed throughout: a call that comes or goes meanwhile is looked at next time.
        if slot.state.load(Ordering::Relaxed) != SlotState::BUSY {
            continue;
        }
        // A task's call is entered here.
        let slept_ns = match slot.enter() {
            true => None,
            false => Some(slot.entered_for_ns()),
        };
        let due_ns = match slept_ns {
            None => WATCH_NS,
            Some(slept_ns) if slept_ns < WATCH_NS => SLEEPS_NS - slept_ns,
            // A server that takes long is woken less and less often.
            Some(slept_ns) => slept_ns.min(WATCH_NS_MAX),
        };
        next_ns = Some(next_ns.map_or(due_ns, |next_ns: u64| next_ns.min(due_ns)));
        if slept_ns.is_some_and(|slept_ns| slept_ns >= WATCH_NS) {
            let generation = slot.generation.load(Ordering::Relaxed);
            let reply = Slot::of(link.calls, index as u32);
            if reply.is_answered(&link.region, generation) {
                // The server has left the wake-up for later, and does something else.
                rouse::rouse(link, reply.wait());
                link.waiters.roused.wake_all();
                crate::arrivals::rouse();
            } else {
                late |= 1 << (index as u32 / SLOTS_PER_LANE);
            }
        }
    }
    for lane in 0..LANES {
        let space = Place::of(link.calls, lane).space();
        let waits_for_room = link.region.load(space, Ordering::Relaxed) != word::AWAKE;
        if (late & (1 << lane) != 0 || waits_for_room)
            && let Some(receiver) = link.map.receiver_of(lane)
        {
            nudge(link, lane, receiver);
        }
    }
    tasks::watch(link);
    match watch_rung(link) {
        true => Some(WATCH_NS),
        false => next_ns,
    }
}

/// Whether the control thread is to look after it.
pub(crate) fn is_watched(link: &Link) -> bool {
    link.doorbell.has_rung() || link.waiters.parked.any()
}

/// Nudges the receivers of lanes that had rung at the last look already, and that still hold what they rang for. Returns
/// whether others have.
fn watch_rung(link: &Link) -> bool {
    let (rung, before) = link.doorbell.next_rung();
    for lane in (0..LANES).filter(|lane| before & 1 << lane != 0) {
        if arm::holds_unpolled(&link.region, Place::of(link.calls, lane))
            && let Some(receiver) = link.map.receiver_of(lane)
        {
            nudge(link, lane, receiver);
        }
    }
    rung != 0
}

/// Rings for `lane` again and wakes `receiver`, whatever its bell says.
#[cold]
fn nudge(link: &Link, lane: u32, receiver: u32) {
    let at = (link.calls, lane);
    let (own, bells) = (&link.region, &link.doorbell.bells);
    let sleep = bell_layout::bell(receiver) + bell_layout::SLEEP;
    if link.doorbell.is_published {
        let _ = bell::ring_published(own, bells, at, receiver);
    } else {
        let _ = bell::ring(own, bells, at, receiver, link.doorbell.index);
        bells.swap(sleep, word::AWAKE, Ordering::AcqRel);
    }
    // The control thread of the peer wakes the sleepers that this does not find.
    bells.wake(sleep, ROUSED_MAX);
    backlog::tell(
        link,
        ControlMessage::Ring {
            receiver: receiver as u8,
        },
    );
}
