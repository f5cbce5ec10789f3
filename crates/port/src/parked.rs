//! How many threads sleep at a link: counted for each lane on lines of its own, so that callers on different CPUs, each
//! with its lane, write to none in common.

use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::link::LANES;

/// A value on cache lines of its own: two, since the neighbour is fetched with it on many machines.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Lines<T>(pub(crate) T);

/// See the module text.
#[derive(Default)]
pub(crate) struct Parked([Lines<AtomicU32>; LANES as usize]);

impl Parked {
    /// The count of sleepers for the sake of `lane`; others are counted with the first.
    pub(crate) const fn of(&self, lane: u32) -> &AtomicU32 {
        &self.0[(lane % LANES) as usize].0
    }

    /// Whether any do.
    pub(crate) fn any(&self) -> bool {
        // Acquire: pairs with the additions.
        let mut counts = self.0.iter();
        counts.any(|count| count.0.load(Ordering::Acquire) > 0)
    }
}

const _: () = assert!(size_of::<Parked>() == 128 * LANES as usize);
