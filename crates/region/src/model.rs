//! Memory for loom: the same protocols, every interleaving.
//!
//! Each word is a loom atomic and each message area a loom cell, so loom reports a copy that the
//! protocol should have excluded, as well as a sleeper that nobody wakes (a deadlock). The futex
//! is a mutex and a condition variable: look, then sleep, in one step.

mod broken;
mod hooked;
mod light;
mod membarrier;

pub use broken::{OVERLAP, must_fail, must_panic};
pub use hooked::{Countdown, Hook, Hooked, Operation, until_killed};
pub use light::Light;
pub use membarrier::{Membarrier, Points, every_point};

use crate::{Memory, Wait};
use core::sync::atomic::Ordering;
use handfast_layout::link::{lane, slot, slot_offset};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex};
use std::collections::BTreeMap;

/// Model memory with the given words and message areas.
pub struct ModelMemory {
    words: BTreeMap<usize, (AtomicU32, Condvar)>,
    areas: BTreeMap<usize, UnsafeCell<Vec<u8>>>,
    /// The words that a thread sleeps in which sleeps in several.
    sleepers: Mutex<Vec<usize>>,
    several: Condvar,
    /// Leaves out every fence: for models that must fail.
    pub without_fence: bool,
    /// Sleeps without a look whether the word is still what the sleeper expects: for models that must fail.
    pub without_compare: bool,
    /// Which exchanges, by offset, expected and new value, order nothing: for models that must
    /// fail.
    pub relaxed_exchange: fn(usize, u32, u32) -> bool,
    /// A wake-up of a few sleepers, not of all, wakes one: for models that have no more threads than those.
    pub wakes_one: bool,
    /// The function that [`Memory::fence_others`] calls; without one it does nothing and says that it did.
    pub membarrier: Option<Arc<Membarrier>>,
}

// SAFETY: loom checks every access to the cells at run time; that is the point of the model.
unsafe impl Send for ModelMemory {}
// SAFETY: as above.
unsafe impl Sync for ModelMemory {}

impl ModelMemory {
    /// Zeroed words at `words`, message areas starting at `areas`. Call inside `loom::model`.
    #[must_use]
    pub fn new(words: &[usize], areas: &[usize]) -> Self {
        Self {
            words: words
                .iter()
                .map(|at| (*at, (AtomicU32::new(0), Condvar::new())))
                .collect(),
            areas: areas
                .iter()
                .map(|at| (*at, UnsafeCell::new(Vec::new())))
                .collect(),
            sleepers: Mutex::new(Vec::new()),
            several: Condvar::new(),
            without_fence: false,
            without_compare: false,
            relaxed_exchange: |_, _, _| false,
            wakes_one: false,
            membarrier: None,
        }
    }

    /// The words and message areas of a lane at `base` whose first `slots` slots are used.
    #[must_use]
    pub fn lane(base: usize, slots: u32) -> (Vec<usize>, Vec<usize>) {
        let control = [
            lane::STREAMING,
            lane::POLLED,
            lane::HEAD,
            lane::SPACE,
            lane::PASSED_ON,
        ];
        let header = [
            slot::SEQUENCE,
            slot::META,
            slot::PORT,
            slot::REPLY,
            slot::GENERATION,
            slot::ARENA,
        ];
        let slots = (0..slots).map(|position| base + slot_offset(position));
        let words = slots.clone().flat_map(|at| header.map(|word| at + word));
        let words = control.map(|word| base + word).into_iter().chain(words);
        (words.collect(), slots.map(|at| at + slot::BYTES).collect())
    }

    fn entry(&self, at: usize) -> &(AtomicU32, Condvar) {
        self.words
            .get(&at)
            .unwrap_or_else(|| panic!("the model has no word at {at}"))
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        &self.entry(at).0
    }

    fn area(&self, at: usize) -> &UnsafeCell<Vec<u8>> {
        self.areas
            .get(&at)
            .unwrap_or_else(|| panic!("the model has no message area at {at}"))
    }
}

impl ModelMemory {
    /// As [`crate::park_any`], for one sleeper in several words at a time, and nobody else in those.
    pub fn park_any(&self, words: &[(usize, u32)]) -> Wait {
        let mut guard = self.sleepers.lock().unwrap();
        // SeqCst: the kernel counts the sleeper, passes a full barrier, and only then compares
        // (kernel/futex/waitwake.c, the comment on barriers (A) and (B)).
        fence(Ordering::SeqCst);
        for (at, expected) in words {
            if !self.without_compare && self.word(*at).load(Ordering::Acquire) != *expected {
                return Wait::Changed;
            }
        }
        let idle = |on| self.membarrier.iter().for_each(|calls| calls.idle(on));
        idle(true);
        if let [(at, _)] = words {
            drop(self.entry(*at).1.wait(guard).unwrap());
        } else {
            guard.extend(words.iter().map(|(at, _)| *at));
            while !guard.is_empty() {
                guard = self.several.wait(guard).unwrap();
            }
        }
        idle(false);
        Wait::Woken
    }
}

impl Memory for ModelMemory {
    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.word(at).load(order)
    }

    fn store(&self, at: usize, value: u32, order: Ordering) {
        self.word(at).store(value, order);
    }

    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.word(at).swap(value, order)
    }

    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.word(at).fetch_or(bits, order)
    }

    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        let (done, failed) = if (self.relaxed_exchange)(at, current, new) {
            (Ordering::Relaxed, Ordering::Relaxed)
        } else {
            (Ordering::AcqRel, Ordering::Acquire)
        };
        self.word(at).compare_exchange(current, new, done, failed)
    }

    fn fence(&self) {
        if !self.without_fence {
            fence(Ordering::SeqCst);
        }
    }

    fn fence_others(&self) -> bool {
        if let Some(membarrier) = &self.membarrier {
            membarrier.call();
        }
        true
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.area(at).with_mut(|area| {
            // SAFETY: loom has just checked that no other thread accesses the cell.
            unsafe { *area = bytes.to_vec() };
        });
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.area(at).with(|area| {
            // SAFETY: loom has just checked that no other thread writes the cell.
            let area = unsafe { &*area };
            let len = bytes.len().min(area.len());
            bytes[..len].copy_from_slice(&area[..len]);
        });
    }

    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        if deadline_ns.is_none() {
            return self.park_any(&[(at, expected)]);
        }
        if self.load(at, Ordering::SeqCst) != expected {
            return Wait::Changed;
        }
        Wait::TimedOut
    }

    fn wake(&self, at: usize, count: u32) -> u32 {
        let mut sleepers = self.sleepers.lock().unwrap();
        if sleepers.contains(&at) {
            sleepers.clear();
            self.several.notify_one();
        } else if count == 1 || self.wakes_one && count < u32::MAX {
            self.entry(at).1.notify_one();
        } else {
            self.entry(at).1.notify_all();
        }
        1
    }
}
