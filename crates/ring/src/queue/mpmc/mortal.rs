//! Memory for tests of death and of stopping.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{self, Relaxed};
use handfast_region::{Memory, Region, Wait};
use std::panic::resume_unwind;
use std::sync::Mutex;

/// Memory whose user dies before its n-th operation, or is stopped there while something else
/// happens. A copy is two operations: half of it may be done.
pub(super) struct Mortal<'a> {
    region: &'a Region,
    left: AtomicU32,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

/// What a dead member unwinds with: no panic hook runs.
pub(super) struct Died;

impl<'a> Mortal<'a> {
    /// Memory whose user lives for ever, until [`Self::set_left`].
    pub(super) fn new(
        region: &'a Region,
        meanwhile: Option<Box<dyn FnOnce() + Send + 'a>>,
    ) -> Self {
        Self {
            region,
            left: AtomicU32::new(u32::MAX),
            meanwhile: Mutex::new(meanwhile),
        }
    }

    /// How many operations are left.
    pub(super) fn set_left(&self, left: u32) {
        // Relaxed: one thread.
        self.left.store(left, Relaxed);
    }

    fn step(&self) {
        // Relaxed: one thread.
        let mut left = self.left.load(Relaxed);
        if left == 0 {
            let Some(meanwhile) = self.meanwhile.lock().unwrap().take() else {
                resume_unwind(Box::new(Died));
            };
            meanwhile();
            left = u32::MAX;
        }
        self.set_left(left - 1);
    }
}

impl Memory for Mortal<'_> {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.step();
        self.region.load(at, order)
    }
    fn store(&self, at: usize, value: u32, order: Ordering) {
        self.step();
        self.region.store(at, value, order);
    }
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.step();
        self.region.swap(at, value, order)
    }
    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.step();
        self.region.fetch_or(at, bits, order)
    }
    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        self.step();
        self.region.compare_exchange(at, current, new)
    }
    fn fence(&self) {
        self.step();
        self.region.fence();
    }
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.step();
        self.region.copy_in(at, first);
        self.step();
        self.region.copy_in(at + first.len(), second);
    }
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.step();
        self.region.copy_out(at, bytes);
        self.step();
    }
    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        self.region.park(at, expected, deadline_ns)
    }
    fn wake(&self, at: usize, count: u32) -> u32 {
        self.region.wake(at, count)
    }
}
