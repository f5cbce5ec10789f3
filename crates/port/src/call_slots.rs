//! Reply slots of a lane: taking one for a call, giving it back.

use crate::give_back;
use crate::send::SendRight;
use crate::slots::{SLOTS_PER_LANE, SlotState};
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_ring::lane::Producer;

/// Takes a reply slot of the lane; the caller holds the lane's lock.
#[inline(always)]
pub(crate) fn claim(right: &SendRight, lane: u32, producer: &mut Producer) -> Option<(u32, u32)> {
    let first = lane * SLOTS_PER_LANE;
    for index in first..first + SLOTS_PER_LANE {
        let state = &right.link().slots[index as usize];
        // Relaxed: this slot's last user has stored it before it freed the slot.
        let generation = state.generation.load(Ordering::Relaxed);
        // E8 slot, load half. Acquire: the last user is done with the slot. Store half:
        // `free`.
        match state.state.load(Ordering::Acquire) {
            SlotState::FREE => {}
            SlotState::ABANDONED => {
                let slot = Slot::of(right.link().calls, index);
                if !slot.is_answered(&right.link().region, generation) {
                    continue;
                }
                if !slot.is_plain(&right.link().region)
                    && !give_back::is_refused(right.link(), right.process(), index, generation)
                {
                    continue;
                }
            }
            _ => continue,
        }
        if generation != 0 {
            // The reply to its last message frees that message's place.
            producer.taken_through(state.position.load(Ordering::Relaxed));
        } else {
            Slot::of(right.link().calls, index).make(&right.link().region);
        }
        // Zero is what an unused slot's generation word holds.
        let generation = generation.wrapping_add(1).max(1);
        // Relaxed, both: claims happen under the lane's lock.
        state.generation.store(generation, Ordering::Relaxed);
        state.state.store(SlotState::CLAIMED, Ordering::Relaxed);
        return Some((index, generation));
    }
    None
}

/// Gives a reply slot back.
#[inline(always)]
pub(crate) fn free(right: &SendRight, index: u32) {
    // E8 slot, store half. Release: the copy out of the slot is done before its next use.
    // Load half: `claim`.
    right.link().slots[index as usize]
        .state
        .store(SlotState::FREE, Ordering::Release);
}
