//! loom: a thread is about to sleep until a lock is free, while another lets go of it (E18).
//!
//! The releasing thread is the light thread of the asymmetric fence: see `handfast_region::model`.

use super::{FREE, HELD, Words, enter, leave};
use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use handfast_region::Memory;
use handfast_region::model::{Light, ModelMemory, Points, every_point, must_fail};
use loom::cell::UnsafeCell;
use loom::sync::Arc;

const LOCK: usize = 0;
const SLEEPERS: usize = 4;

/// The order that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    No,
    /// `enter` without its fence.
    Membarrier,
    /// `leave` looks for sleepers before the lock is free.
    Order,
    /// `leave` frees the lock without Release.
    Release,
}

struct Thread<'a, M> {
    memory: &'a M,
    parks: Option<&'a ModelMemory>,
    broken: Broken,
    /// The value that was seen too early.
    seen: Cell<Option<u32>>,
}

impl<'a, M: Memory> Thread<'a, M> {
    fn new(memory: &'a M, parks: Option<&'a ModelMemory>, broken: Broken) -> Self {
        let seen = Cell::new(None);
        Self {
            memory,
            parks,
            broken,
            seen,
        }
    }
}

impl<M: Memory> Words for Thread<'_, M> {
    fn take(&self) -> bool {
        self.memory.compare_exchange(LOCK, FREE, HELD).is_ok()
    }

    fn take_soon(&self) -> bool {
        false
    }

    fn free(&self) {
        if self.broken == Broken::Order {
            self.seen.set(Some(self.memory.load(SLEEPERS, Relaxed)));
        }
        let order = match self.broken {
            Broken::Release => Relaxed,
            _ => Release,
        };
        self.memory.store(LOCK, FREE, order);
    }

    fn sleepers(&self) -> u32 {
        let seen = self.seen.take();
        seen.unwrap_or_else(|| self.memory.load(SLEEPERS, Relaxed))
    }

    fn count(&self, change: i32) {
        // One thread's: nobody else counts.
        let order = if change > 0 { Relaxed } else { AcqRel };
        self.memory.swap(SLEEPERS, u32::from(change > 0), order);
    }

    fn sleep(&self) {
        let parks = self.parks.expect("only one of the two sleeps");
        parks.park_any(&[(LOCK, HELD)]);
    }

    fn wake(&self) {
        self.memory.wake(LOCK, 1);
    }

    fn fence_light(&self) {}

    fn fence_own_threads(&self) {
        if self.broken != Broken::Membarrier {
            self.memory.fence_others();
        }
    }
}

/// One thread has the lock, lets go of it and takes it once more if it can; another waits for it.
fn holder_and_sleeper(broken: Broken) {
    every_point(2, move |barrier, points| {
        let mut memory = ModelMemory::new(&[LOCK, SLEEPERS], &[]);
        memory.membarrier = Some(barrier.clone());
        memory.store(LOCK, HELD, Relaxed);
        let shared = Arc::new((memory, UnsafeCell::new(0)));
        let change = |value: &UnsafeCell<u32>| {
            value.with_mut(|value| {
                // SAFETY: loom has just checked that no other thread accesses the cell.
                unsafe { *value += 1 };
            });
        };
        let (theirs, calls) = (shared.clone(), barrier.clone());
        let holder = loom::thread::spawn(move || {
            let points = Points::new(calls, points);
            let light = Light::new(&theirs.0, &points, None);
            let words = Thread::new(&light, None, broken);
            change(&theirs.1);
            leave(&words);
            if words.take() {
                change(&theirs.1);
                leave(&words);
            }
            points.finish()
        });
        let words = Thread::new(&shared.0, Some(&shared.0), broken);
        enter(&words);
        change(&shared.1);
        leave(&words);
        barrier.over();
        holder.join().unwrap()
    });
}

#[test]
fn e18_who_sleeps_until_the_lock_is_free_is_woken() {
    holder_and_sleeper(Broken::No);
}

#[test]
fn e18_without_the_fence_it_sleeps_beside_the_free_lock() {
    must_fail("deadlock", || holder_and_sleeper(Broken::Membarrier));
}

#[test]
fn e18_without_the_order_it_sleeps_beside_the_free_lock() {
    must_fail("deadlock", || holder_and_sleeper(Broken::Order));
}

#[test]
fn e9_without_the_release_two_change_the_value_at_once() {
    must_fail("Causality violation", || {
        holder_and_sleeper(Broken::Release)
    });
}
