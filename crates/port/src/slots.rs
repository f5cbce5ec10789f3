//! Reply slots of calls, our side.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};
use handfast_layout::link::{LANES, REPLIES};
use handfast_sys::clock;

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
    /// When the call in `watched` was entered there, in milliseconds, of which the upper bits are left out: it is asked how
    /// long a short time is.
    entered_ms: AtomicU16,
    pub(crate) generation: AtomicU32,
    pub(crate) position: AtomicU32,
    /// Generation of the call that the control thread looks after.
    watched: AtomicU32,
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

const MS: u64 = 1_000_000;

const fn lower(ms: u64) -> u16 {
    (ms & 0xffff) as u16
}

fn now_ms() -> u16 {
    lower(clock::ticks_ns() / MS)
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
    /// Enters its call as one that the control thread looks after. Whether it was not entered yet.
    pub(crate) fn enter(&self) -> bool {
        // Relaxed throughout: each is a hint, and the control thread looks again.
        let generation = self.generation.load(Ordering::Relaxed);
        let before = self.watched.load(Ordering::Relaxed);
        if before == generation {
            return false;
        }
        self.entered_ms.store(now_ms(), Ordering::Relaxed);
        // The control thread may come late: the slot's next call has entered itself by then.
        let _ =
            self.watched
                .compare_exchange(before, generation, Ordering::Relaxed, Ordering::Relaxed);
        true
    }

    /// For how long its call has been entered, in nanoseconds; of one from long ago it may say less.
    pub(crate) fn entered_for_ns(&self) -> u64 {
        let entered_ms = self.entered_ms.load(Ordering::Relaxed);
        u64::from(now_ms().wrapping_sub(entered_ms)) * MS
    }

    /// Whether the outcome of its last call has been taken, and no other has it.
    pub(crate) fn is_free(&self) -> bool {
        // Acquire: pairs with `call_slots::free`. Its generation is not zero once it has had a call.
        self.state.load(Ordering::Acquire) == Self::FREE
            && self.generation.load(Ordering::Relaxed) != 0
    }

    pub(crate) const FREE: u8 = 0;
    pub(crate) const BUSY: u8 = 1;
    /// Claimed for the lane's next call, which has not been posted.
    pub(crate) const CLAIMED: u8 = 3;
    /// The control thread takes its outcome, which no thread wants.
    pub(crate) const REFUSED: u8 = 4;
    /// Its caller gave up; free again once the reply has come.
    pub(crate) const ABANDONED: u8 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_entered_once_and_counts_from_then() {
        let slot = SlotState::default();
        slot.generation.store(7, Ordering::Relaxed);
        assert!(slot.enter());
        assert!(!slot.enter());
        let before_ms = now_ms().wrapping_sub(90);
        slot.entered_ms.store(before_ms, Ordering::Relaxed);
        assert!(!slot.enter(), "as one that has just come");
        assert!((90 * MS..1_000 * MS).contains(&slot.entered_for_ns()));
        slot.generation.store(8, Ordering::Relaxed);
        assert!(slot.enter(), "the next call is another");
        assert!(slot.entered_for_ns() < 90 * MS);
    }

    /// Milliseconds are kept by their lower bits.
    #[test]
    fn a_short_time_is_one_also_where_the_clock_comes_round() {
        assert_eq!(lower(0x1_0005).wrapping_sub(lower(0xfff0)), 0x15);
    }
}
