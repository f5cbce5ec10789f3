//! A lock whose release is a plain store.
//!
//! Taking it is one locked instruction, as with any lock; releasing it costs none, where a lock that must know whether
//! anybody sleeps needs another (6 to 10 ns of a 200 ns call). A waiting thread pays for that: it makes every thread of the
//! process pass a fence before it sleeps (E18), some microseconds.

mod owned;

pub use owned::{OwnedGuard, OwnedLock};

use crate::sync::{Held, Rank, check};
use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static OWN: Cell<u32> = const { Cell::new(0) };
}

static NEXT: AtomicU32 = AtomicU32::new(1);

/// The divisor of the numbers of threads that are [apart](number_apart).
pub const APART: u32 = 16;

/// A number of this thread, from 1: threads are numbered in the order in which they first ask.
#[inline(always)]
pub fn thread_number() -> u32 {
    #[cold]
    fn number() -> u32 {
        let own = loop {
            // Relaxed: a number.
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            if !next.is_multiple_of(APART) {
                break next;
            }
        };
        OWN.set(own);
        own
    }
    match OWN.get() {
        0 => number(),
        own => own,
    }
}

/// As the first thread of a process that asks. Other threads that have numbers have ended.
#[cfg(feature = "simulation")]
pub fn restart_numbers() {
    NEXT.store(2, Ordering::Relaxed);
    OWN.set(1);
}

/// Gives this thread, which has not asked yet, a number that [`APART`] divides, as no other thread's.
pub fn number_apart() {
    // Relaxed: a number. `APART` divides one of so many in a row.
    let first = NEXT.fetch_add(APART, Ordering::Relaxed);
    OWN.set(first.next_multiple_of(APART));
}

/// Whether this thread has a number that [`APART`] divides.
pub fn is_apart() -> bool {
    thread_number().is_multiple_of(APART)
}

/// See the module text.
#[derive(Debug)]
pub struct Lock<T, R: Rank> {
    words: State,
    rank: PhantomData<fn() -> R>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, of which there is one at a time.
unsafe impl<T: Send, R: Rank> Sync for Lock<T, R> {}

/// The right to the value; releases the lock on drop, also in a panic (the value is then as the
/// panic left it).
#[derive(Debug)]
pub struct Guard<'a, T, R: Rank> {
    lock: &'a Lock<T, R>,
    _held: Held<R>,
    /// Others may look at the value through it only if they may share that.
    value: PhantomData<&'a mut T>,
}

/// Looks before a waiter sleeps.
const SPINS: u32 = 100;

impl<T, R: Rank> Lock<T, R> {
    /// An unheld lock.
    pub const fn new(value: T) -> Self {
        let words = State {
            held: AtomicU32::new(FREE),
            sleepers: AtomicU32::new(0),
        };
        let value = UnsafeCell::new(value);
        Self {
            words,
            rank: PhantomData,
            value,
        }
    }

    /// Takes the lock if nobody holds it.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T, R>> {
        self.words.take().then(|| self.guard())
    }

    /// Takes the lock; sleeps while another thread holds it, once it has looked for some microseconds.
    ///
    /// # Panics
    /// In debug builds, where the thread holds a lock whose [rank](Rank) is not lower.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T, R> {
        check::<R>();
        if !self.words.take() {
            enter(&self.words);
        }
        self.guard()
    }

    #[inline(always)]
    fn guard(&self) -> Guard<'_, T, R> {
        Guard {
            lock: self,
            _held: Held::enter(),
            value: PhantomData,
        }
    }
}

impl<T: Default, R: Rank> Default for Lock<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, R: Rank> Deref for Guard<'_, T, R> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one while it lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, R: Rank> DerefMut for Guard<'_, T, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one while it lives, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, R: Rank> Drop for Guard<'_, T, R> {
    #[inline(always)]
    fn drop(&mut self) {
        leave(&self.lock.words);
    }
}

/// The words of the lock; the model has its own.
trait Words {
    /// Makes the lock held if it is free. Acquire.
    fn take(&self) -> bool;
    /// Takes it within the first looks.
    fn take_soon(&self) -> bool;
    /// Makes it free. Release.
    fn free(&self);
    /// How many threads sleep, or are about to.
    fn sleepers(&self) -> u32;
    /// One more, or one less.
    fn count(&self, change: i32);
    /// Sleeps while it is held.
    fn sleep(&self);
    /// Wakes one that sleeps.
    fn wake(&self);
    /// Keeps the compiler from moving accesses across it.
    fn fence_light(&self);
    /// Makes every thread of the process pass a full fence.
    fn fence_own_threads(&self);
}

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Takes a lock that was held a moment ago.
#[cold]
fn enter(words: &impl Words) {
    if words.take_soon() {
        return;
    }
    words.count(1);
    // E18 sleeper, sleep half. The count, then a fence of all threads, then the look, and the kernel's. Pairs with the
    // compiler fence in `leave`: the releasing thread sees the count, or its store is seen here. Once: the count stays.
    words.fence_own_threads();
    while !words.take() {
        words.sleep();
    }
    words.count(-1);
}

#[inline(always)]
fn leave(words: &impl Words) {
    words.free();
    // E18 sleeper, leave half. A plain store, then a compiler fence: the fence of the thread that is about to sleep, in
    // `enter`, acts as a full one here.
    words.fence_light();
    if words.sleepers() != 0 {
        words.wake();
    }
}

/// The words themselves.
#[derive(Debug, Default)]
struct State {
    /// [`HELD`] or [`FREE`].
    held: AtomicU32,
    /// Threads that sleep until it is free, or are about to.
    sleepers: AtomicU32,
}

impl Words for State {
    #[inline(always)]
    fn take(&self) -> bool {
        // E9 lock, take half. Acquire: what the last holder did to the value is visible. Release
        // half: `State::free`. Relaxed on failure: nothing is taken.
        self.held
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn take_soon(&self) -> bool {
        (0..SPINS).any(|_| {
            core::hint::spin_loop();
            // Relaxed: a hint.
            self.held.load(Ordering::Relaxed) == FREE && self.take()
        })
    }

    #[inline(always)]
    fn free(&self) {
        // E9 lock, release half. Release: our changes are visible to the next holder. Take half:
        // `State::take`.
        self.held.store(FREE, Ordering::Release);
    }

    #[inline(always)]
    fn sleepers(&self) -> u32 {
        // Relaxed: a number; the fences order it (E18).
        self.sleepers.load(Ordering::Relaxed)
    }

    fn count(&self, change: i32) {
        // Relaxed: as above.
        self.sleepers
            .fetch_add(change.cast_unsigned(), Ordering::Relaxed);
    }

    fn sleep(&self) {
        // SAFETY: the word lives as long as `self`, which outlives the call.
        let _ = unsafe { crate::futex::wait(NonNull::from(&self.held).cast(), HELD, None) };
    }

    #[cold]
    fn wake(&self) {
        // SAFETY: as above.
        unsafe { crate::futex::wake(NonNull::from(&self.held).cast(), 1) };
    }

    #[inline(always)]
    fn fence_light(&self) {
        crate::futex::fence_light();
    }

    fn fence_own_threads(&self) {
        crate::futex::fence_own_threads();
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::{Lock, OwnedLock, Words};

    crate::ranks! { 1: Only }

    #[test]
    fn an_owned_lock_has_one_holder_before_during_and_after_revocation() {
        for round in 0..if cfg!(miri) { 2 } else { 200 } {
            let lock = OwnedLock::<_, Only>::new((0u64, 0u64));
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
        let lock = OwnedLock::<_, Only>::new(0);
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
    fn who_has_to_wait_sleeps_and_is_woken() {
        let lock = Lock::<_, Only>::new(0);
        for round in 0..if cfg!(miri) { 3 } else { 300 } {
            let guard = lock.lock();
            std::thread::scope(|scope| {
                let waiters = 1 + round % 3;
                for _ in 0..waiters {
                    scope.spawn(|| *lock.lock() += 1);
                }
                while lock.words.sleepers() < waiters {
                    std::thread::yield_now();
                }
                drop(guard);
            });
            assert_eq!(lock.words.sleepers(), 0);
        }
        assert_eq!(
            *lock.lock(),
            (0..if cfg!(miri) { 3 } else { 300 })
                .map(|round| 1 + round % 3)
                .sum()
        );
    }

    #[test]
    fn one_holder_at_a_time() {
        let lock = Lock::<_, Only>::new(0u64);
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
