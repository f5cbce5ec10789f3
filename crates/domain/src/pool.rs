//! Pools: the stacks of one CPU, or one that is held, and how they are used.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32};

/// Counters that the calls of one CPU write while more than one of its stacks is in use. Only hints.
#[repr(C, align(128))]
pub(crate) struct Pool {
    /// Stacks that have a guard.
    built: AtomicU32,
    /// Stacks that may have memory.
    touched: AtomicU32,
    /// How many of those were used since the count began.
    peak: AtomicU32,
    /// Calls since the count began.
    calls: AtomicU32,
}

impl Pool {
    /// A pool with so many built stacks, of which one may have memory.
    pub(crate) const fn new(built: u32) -> Self {
        Self {
            built: AtomicU32::new(built),
            touched: AtomicU32::new(1),
            peak: AtomicU32::new(1),
            calls: AtomicU32::new(0),
        }
    }

    /// Whether a stack other than the first one may have memory.
    #[inline(always)]
    pub(crate) fn has_idle(&self) -> bool {
        // Relaxed, here and below: hints of one CPU's, wrong at worst by a call or two when threads move.
        self.touched.load(Relaxed) != 1
    }

    /// Counts a call that has used the first `used` stacks. Whether the count has come to its end.
    #[inline]
    pub(crate) fn count(&self, used: u32) -> bool {
        // Memory whose mark is lost would stay: another thread may count a stack further up in between.
        if used > self.touched.load(Relaxed) {
            self.mark(used);
        }
        if used > self.peak.load(Relaxed) {
            self.peak.store(used, Relaxed);
        }
        let calls = self.calls.load(Relaxed) + 1;
        self.calls.store(calls, Relaxed);
        calls >= WINDOW
    }

    /// How many stacks were used during the count, which forgets them.
    #[inline]
    pub(crate) fn take_peak(&self) -> u32 {
        self.peak.swap(1, Relaxed)
    }

    /// Begins the next count.
    #[inline]
    pub(crate) fn restart_count(&self) {
        self.calls.store(0, Relaxed);
    }

    /// Begins to give memory back: the stacks beyond the first `keep` that may have some. Forgets them: whoever finds one of them in
    /// use marks it again, and so does each call that ends on one from now on, whether that one is given back before or after.
    #[inline]
    pub(crate) fn forget_idle(&self, keep: u32) -> Range<u32> {
        keep..self.touched.swap(keep, Relaxed)
    }

    /// The first `used` stacks may have memory.
    #[inline]
    pub(crate) fn mark(&self, used: u32) {
        self.touched.fetch_max(used, Relaxed);
    }

    /// A call takes the stack at `index`: if that is the last built one, the stacks that the caller is to build.
    #[inline]
    pub(crate) fn grow(&self, index: usize) -> Option<Range<usize>> {
        let built = self.built.load(Relaxed);
        if index + 1 < built as usize || built as usize >= PER_CPU {
            return None;
        }
        let wanted = (built * 2).min(PER_CPU as u32);
        // Relaxed: the thread that moves the count builds; the flags publish the stacks it builds.
        self.built
            .compare_exchange(built, wanted, Relaxed, Relaxed)
            .ok()?;
        Some(built as usize..wanted as usize)
    }
}

/// The place of a stack in its pool: zero for the one that a CPU's calls use while they are one at a time, and for a held one.
#[inline(always)]
pub(crate) const fn index_of(number: u32) -> u32 {
    number % PER_CPU as u32
}

/// Stacks of one CPU: their flags fill two cache lines, which processors fetch in pairs.
pub(crate) const PER_CPU: usize = 64;
const _: () = assert!(PER_CPU * size_of::<AtomicU16>() == 128);
/// Stacks of a group that can be held. Each is the first and only one of a pool, so that no two share a cache line.
pub(crate) const HELD: usize = 32;
/// CPUs that have pools; the others use the first one's. A group of so many reserves 16 GiB of addresses.
pub(crate) const CPUS_MAX: usize = 1024;
/// The most stacks that a group has.
pub(crate) const STACKS_MAX: usize = (CPUS_MAX + HELD) * PER_CPU;
/// Stacks of a pool that are built at first: one for a call and one for a call in it.
pub(crate) const BUILT_FIRST: usize = 2;
/// After so many calls of a CPU, stacks that none of them used give their memory back.
const WINDOW: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    #[cfg_attr(miri, ignore = "a race that takes many rounds")]
    fn threads_that_count_at_once_lose_no_mark() {
        const ROUNDS: usize = 20_000;
        let pools: Vec<_> = (0..ROUNDS).map(|_| Pool::new(2)).collect();
        let at_once = Barrier::new(2);
        std::thread::scope(|scope| {
            for used in [3, 5] {
                let (pools, at_once) = (&pools, &at_once);
                scope.spawn(move || {
                    at_once.wait();
                    for pool in pools {
                        pool.count(used);
                    }
                });
            }
        });
        let lost = pools.iter().filter(|pool| marked(pool) != 5).count();
        assert_eq!(lost, 0, "of {ROUNDS}");
    }

    fn marked(pool: &Pool) -> u32 {
        pool.touched.load(Relaxed)
    }

    #[test]
    fn a_stack_that_is_used_while_memory_is_given_back_keeps_its_mark() {
        let pool = Pool::new(8);
        pool.count(5);
        assert_eq!(pool.forget_idle(1), 1..5);
        // The memory of the fifth is given back here, and a call takes that stack and ends.
        pool.count(5);
        assert_eq!(pool.forget_idle(2), 2..5);
        assert_eq!(pool.forget_idle(1), 1..2);
        assert!(!pool.has_idle());
    }
}
