//! Whether what was sent last in a lane has been taken.

use crate::link::Link;
use crate::slots::{SLOTS_PER_LANE, SlotState, Ticket};
use core::sync::atomic::Ordering;
use handfast_region::Memory;
use handfast_ring::lane::Place;

/// The last item sent there.
#[derive(Clone, Copy)]
pub(crate) enum Sent {
    /// Something of the lane's.
    Something,
    /// A message at this position.
    Message(u32),
    Call(Ticket),
}

/// Whether what was posted to a lane there was a call that has been answered.
pub(crate) fn is_answered(link: &Link, lane: u32, position: u32) -> bool {
    let (first, count) = (lane * SLOTS_PER_LANE, SLOTS_PER_LANE);
    let mut slots = link.slots.iter().skip(first as usize).take(count as usize);
    slots.any(|slot| slot.is_free() && slot.position.load(Ordering::Relaxed) == position)
}

/// How many calls there is room for in a lane. A hint.
pub(super) fn free_slots(link: &Link, lane: u32) -> usize {
    let (first, count) = (lane * SLOTS_PER_LANE, SLOTS_PER_LANE);
    let slots = link.slots.iter().skip(first as usize).take(count as usize);
    // Relaxed: a hint. Never used, or used before.
    let is_free = |slot: &&SlotState| slot.state.load(Ordering::Relaxed) == SlotState::FREE;
    slots.filter(is_free).count()
}

/// Whether the receiver of a lane has taken what was posted there.
pub(crate) fn is_taken(link: &Link, lane: u32, sent: Sent) -> bool {
    let last = match sent {
        Sent::Something => {
            let outgoing = link.lanes[lane as usize].lock();
            let last = outgoing.producer.position().wrapping_sub(1);
            if is_answered(link, lane, last) {
                return true;
            }
            last
        }
        Sent::Message(position) => position,
        Sent::Call(Ticket { index, generation }) => {
            let slot = &link.slots[index as usize];
            // A thread that frees the slot, or claims it again, has its outcome. Relaxed, both: at least as new
            // as when this thread posted the call.
            if slot.is_free() || slot.generation.load(Ordering::Relaxed) != generation {
                return true;
            }
            slot.position.load(Ordering::Relaxed)
        }
    };
    // Acquire: pairs with the Release of the consumer, as in `Producer::look_at_head`. A peer that says what is not
    // so has its own messages overtaken.
    let head = link
        .region
        .load(Place::of(link.calls, lane).head(), Ordering::Acquire);
    // The posted position is at most a lane's length ahead of the taken one.
    head.wrapping_sub(last.wrapping_add(1)).cast_signed() >= 0
}
