//! A lock whose release is a plain store.
//!
//! Taking it is one locked instruction, as with any lock; releasing it costs none, where a lock
//! that must wake its waiters needs another (6 to 10 ns of a 200 ns call). The price is that
//! waiters are not woken: they yield. It is for sections of a few hundred instructions that never
//! block.

mod owned;

pub use owned::{OwnedGuard, OwnedLock};

use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

thread_local! {
    static OWN: Cell<u32> = const { Cell::new(0) };
}

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A number of this thread, from 1: threads are numbered in the order in which they first ask.
#[inline(always)]
pub fn thread_number() -> u32 {
    #[cold]
    fn number() -> u32 {
        // Relaxed: a number.
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(own);
        own
    }
    match OWN.get() {
        0 => number(),
        own => own,
    }
}

/// Gives this thread, which has not asked yet, a number that `by` divides: for those that follow one another and need the
/// same place among so many.
pub fn number_thread(by: u32) {
    // Relaxed: a number. Of so many in a row it divides one.
    let first = NEXT.fetch_add(by, Ordering::Relaxed);
    OWN.set(first.next_multiple_of(by));
}

/// See the module text.
#[derive(Debug, Default)]
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value; releases the lock on drop, also in a panic (the value is then as the
/// panic left it).
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

/// Tries before a waiter yields its processor.
const SPINS: u32 = 64;

impl<T> Lock<T> {
    /// An unheld lock.
    pub const fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // E9 lock, take half. Acquire: what the last holder did to the value is visible. Release
        // half: `Guard::drop`. Relaxed on failure: nothing is taken.
        self.held
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| Guard { lock: self })
    }

    /// Takes the lock; yields while another thread holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let mut tries = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            tries += 1;
            if tries % SPINS == 0 {
                crate::cpu::yield_now();
            } else {
                core::hint::spin_loop();
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one while it lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one while it lives, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // E9 lock, release half. Release: our changes are visible to the next holder. Take half:
        // `Lock::try_lock`.
        self.lock.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Lock, OwnedLock};

    #[test]
    fn an_owned_lock_has_one_holder_before_during_and_after_revocation() {
        for round in 0..if cfg!(miri) { 2 } else { 200 } {
            let lock = OwnedLock::new((0u64, 0u64));
            let rounds = if cfg!(miri) { 20 } else { 2_000 };
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let lock = &lock;
                    scope.spawn(move || {
                        for _ in 0..rounds + thread * round {
                            let mut guard = lock.lock();
                            guard.0 += 1;
                            let seen = guard.0;
                            guard.1 += 1;
                            assert_eq!((guard.0, guard.1), (seen, seen));
                        }
                    });
                }
            });
            assert_eq!(lock.lock().0, 3 * rounds + 3 * round);
        }
    }

    #[test]
    fn the_owner_keeps_other_threads_out_while_inside() {
        let lock = OwnedLock::new(0);
        drop(lock.lock());
        let guard = lock.try_lock();
        assert!(guard.is_some());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(guard);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_some()));
        });
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn one_holder_at_a_time() {
        let lock = Lock::new(0u64);
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * rounds);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }
}
