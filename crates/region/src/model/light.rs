//! A model memory as the light thread of an asymmetric fence uses it.

use super::{ModelMemory, Points};
use crate::{Memory, Wait};
use core::cell::Cell;
use core::sync::atomic::Ordering;

/// Counts operations, so that the fence of others can fall between any two of them. Not a
/// [`super::Hooked`] memory: it holds a store back, where a hook only runs before one.
pub struct Light<'a> {
    memory: &'a ModelMemory,
    points: &'a Points,
    /// A word whose stores are held back until after the next load: for models that must fail.
    late: Option<usize>,
    held_back: Cell<Option<(usize, u32, Ordering)>>,
}

// SAFETY: one model thread uses it, and loom runs all of them on one thread.
unsafe impl Send for Light<'_> {}
// SAFETY: as above.
unsafe impl Sync for Light<'_> {}

impl<'a> Light<'a> {
    /// `memory`, with stores to `late` after the load that follows them.
    #[must_use]
    pub fn new(memory: &'a ModelMemory, points: &'a Points, late: Option<usize>) -> Self {
        let held_back = Cell::new(None);
        Self {
            memory,
            points,
            late,
            held_back,
        }
    }

    fn next(&self) -> &'a ModelMemory {
        self.points.before_operation();
        self.memory
    }
}

impl Memory for Light<'_> {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        let value = self.next().load(at, order);
        if let Some((at, value, order)) = self.held_back.take() {
            self.next().store(at, value, order);
        }
        value
    }

    fn store(&self, at: usize, value: u32, order: Ordering) {
        if self.late == Some(at) {
            self.held_back.set(Some((at, value, order)));
        } else {
            self.next().store(at, value, order);
        }
    }

    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.next().swap(at, value, order)
    }

    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.next().fetch_or(at, bits, order)
    }

    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        self.next().compare_exchange(at, current, new)
    }

    fn fence(&self) {
        self.next().fence();
    }

    fn fence_others(&self) -> bool {
        unreachable!("the light thread makes nobody fence")
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.next().copy_in(at, bytes);
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.next().copy_out(at, bytes);
    }

    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        self.next().park(at, expected, deadline_ns)
    }

    fn wake(&self, at: usize, count: u32) -> u32 {
        self.next().wake(at, count)
    }
}
