//! Reply slots of a lane: taking one for a call, giving it back.

use crate::link::Outgoing;
use crate::rank;
use crate::send::{SLOTS_PER_LANE, SendRight};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use handfast_channel::reply::Slot;
use handfast_layout::link::REPLIES;
use handfast_ring::lane::Producer;
use handfast_sys::lock::OwnedLock;

/// Our side of a reply slot. The slot's current call writes it; claims happen under its lane's
/// lock.
#[derive(Default)]
pub(crate) struct SlotState {
    pub(crate) state: AtomicU8,
    pub(crate) generation: AtomicU32,
    pub(crate) position: AtomicU32,
    /// Generation of the call that was in flight at the keeper's last look.
    pub(crate) watched: AtomicU32,
}

/// The slots of all calls; a lane's on lines of their own.
#[repr(align(128))]
pub(crate) struct Slots([SlotState; REPLIES as usize]);

impl Default for Slots {
    fn default() -> Self {
        Self(core::array::from_fn(|_| SlotState::default()))
    }
}

impl core::ops::Deref for Slots {
    type Target = [SlotState; REPLIES as usize];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Bytes that a processor fetches together.
const LINES_BYTES: usize = 128;

// A lane's slots share no line with another's.
const _: () = assert!(
    (SLOTS_PER_LANE as usize * size_of::<SlotState>()).is_multiple_of(LINES_BYTES)
        && align_of::<OwnedLock<Outgoing, rank::Lane>>() == LINES_BYTES
);

impl SlotState {
    /// Whether the outcome of its last call has been taken, and no other has it.
    pub(crate) fn is_free(&self) -> bool {
        // Acquire: pairs with `SendRight::free`. Its generation is not zero once it has had a call.
        self.state.load(Ordering::Acquire) == Self::FREE
            && self.generation.load(Ordering::Relaxed) != 0
    }

    pub(crate) const FREE: u8 = 0;
    pub(crate) const BUSY: u8 = 1;
    /// Claimed for the lane's next call, which has not been posted.
    pub(crate) const CLAIMED: u8 = 3;
    /// The keeper takes its outcome, which no thread wants.
    pub(crate) const REFUSED: u8 = 4;
    /// Its caller gave up; free again once the reply has come.
    pub(crate) const ABANDONED: u8 = 2;
}

impl SendRight {
    /// Takes a reply slot of the lane; the caller holds the lane's lock.
    #[inline(always)]
    pub(crate) fn claim(&self, lane: u32, producer: &mut Producer) -> Option<(u32, u32)> {
        let first = lane * SLOTS_PER_LANE;
        for index in first..first + SLOTS_PER_LANE {
            let state = &self.link().slots[index as usize];
            // Relaxed: this slot's last user has stored it before it freed the slot.
            let generation = state.generation.load(Ordering::Relaxed);
            // E8 slot, load half. Acquire: the last user is done with the slot. Store half:
            // `free`.
            match state.state.load(Ordering::Acquire) {
                SlotState::FREE => {}
                SlotState::ABANDONED => {
                    let slot = Slot::of(self.link().calls, index);
                    if !slot.is_answered(&self.link().region, generation) {
                        continue;
                    }
                    if !slot.is_plain(&self.link().region)
                        && !self.link().is_refused(self.process(), index, generation)
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
                Slot::of(self.link().calls, index).make(&self.link().region);
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
    pub(crate) fn free(&self, index: u32) {
        // E8 slot, store half. Release: the copy out of the slot is done before its next use.
        // Load half: `claim`.
        self.link().slots[index as usize]
            .state
            .store(SlotState::FREE, Ordering::Release);
    }
}
