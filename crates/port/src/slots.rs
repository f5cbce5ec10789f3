//! Reply slots of calls, our side.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use handfast_layout::link::{LANES, REPLIES};

/// The reply slot of a call, and its generation there; for another message, its position in the lane.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

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
pub(crate) const LINES_BYTES: usize = 128;

/// Reply slots of one lane.
pub(crate) const SLOTS_PER_LANE: u32 = REPLIES / LANES;
const _: () = assert!(SLOTS_PER_LANE * LANES == REPLIES);

// A lane's slots share no line with another's.
const _: () =
    assert!((SLOTS_PER_LANE as usize * size_of::<SlotState>()).is_multiple_of(LINES_BYTES));

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
