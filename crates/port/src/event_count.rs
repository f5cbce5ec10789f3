//! A count of events in memory of this process alone, in which threads sleep until there is another one: whatever peers do to the other
//! words in which those threads sleep.

use core::sync::atomic::Ordering;
use handfast_region::{Memory, Region};

const BYTES: usize = 64;

/// See the module text.
pub(crate) struct EventCount(Region);

impl Default for EventCount {
    fn default() -> Self {
        Self(Region::heap(BYTES))
    }
}

impl EventCount {
    /// The count to give to [`Self::word`], read before a thread looks for the last time.
    pub(crate) fn count(&self) -> u32 {
        // Acquire: a count seen brings what came before it.
        self.0.load(0, Ordering::Acquire)
    }

    /// The word to sleep in, while it holds the count.
    pub(crate) const fn word(&self, count: u32) -> (&Region, usize, u32) {
        (&self.0, 0, count)
    }

    /// Counts an event: a thread that is about to sleep finds another count.
    pub(crate) fn advance(&self) {
        // Relaxed: the exchange decides. It releases what the sleeper shall find.
        let mut count = self.0.load(0, Ordering::Relaxed);
        while let Err(found) = self.0.compare_exchange(0, count, count.wrapping_add(1)) {
            count = found;
        }
    }

    /// Between a count and a look at those that sleep.
    pub(crate) fn fence(&self) {
        self.0.fence();
    }

    /// Wakes so many of those that sleep here.
    pub(crate) fn wake(&self, threads: u32) {
        self.0.wake(0, threads);
    }

    /// Counts an event, and wakes all.
    pub(crate) fn wake_all(&self) {
        self.advance();
        self.fence();
        self.wake(u32::MAX);
    }
}
