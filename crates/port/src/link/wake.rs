//! Wake-ups of single threads of the peer, after something was published for them.

use super::{Link, backlog};
use core::sync::atomic::Ordering;
use handfast_channel::arm;
use handfast_channel::reply::Slot;
use handfast_layout::control::{ControlMessage, NOBODY};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_wait::word;

#[cold]
pub(crate) fn wake_producer(link: &Link, place: Place) {
    if arm::wake_producer(&link.region, place) {
        backlog::tell(link, ControlMessage::Ring { receiver: NOBODY });
    }
}

/// Threads that sleep for one reply: its caller, and a little more.
const SLEEPERS_MAX: u32 = 4;

/// After a reply was published: wakes its caller if it sleeps. Returns whether it did.
#[inline]
pub(crate) fn wake_caller(link: &Link, slot: Slot) -> bool {
    let Some(how) = word::fence_then_taken(&link.region, slot.wait()) else {
        return false;
    };
    handfast_channel::stamp(&link.region, slot.stamp());
    if how == word::DESCRIPTOR {
        backlog::tell(link, ControlMessage::Ring { receiver: NOBODY });
    } else {
        // Wakes the caller, and no other sleeper on a word of the peer's.
        link.region.wake(slot.wait(), SLEEPERS_MAX);
    }
    true
}

/// Wakes a caller that sleeps, which finds no answer yet. At most one system call.
#[cold]
pub(crate) fn wake_caller_early(link: &Link, slot: Slot) {
    // Relaxed: a hint.
    if link.region.load(slot.wait(), Ordering::Relaxed) == word::ASLEEP {
        link.region.wake(slot.wait(), SLEEPERS_MAX);
    }
}
