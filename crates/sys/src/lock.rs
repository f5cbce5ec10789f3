//! A lock whose release is a plain store.
//!
//! Taking it is one locked instruction, as with any lock; releasing it costs none, where a lock
//! that must wake its waiters needs another (6 to 10 ns of a 200 ns call). The price is that
//! waiters are not woken: they yield. It is for sections of a few hundred instructions that never
//! block.

use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

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

/// A lock that its first user takes without a locked instruction, as long as no other thread
/// comes: a receiver's poller is nearly always one thread's.
///
/// The first thread to take it becomes its *owner*: it says that it is inside with a plain store
/// and looks whether the lock is held by another. Another thread takes the lock, makes every
/// thread of the process pass a fence, and looks whether the owner is inside; if not, the
/// ownership ends for good and from then on all threads take it with a locked instruction. The
/// fence costs a few microseconds, once.
#[derive(Debug, Default)]
pub struct OwnedLock<T> {
    lock: Lock<T>,
    /// Thread number of the owner, plus one; [`NOBODY_YET`], or [`ENDED`].
    owner: AtomicU32,
    inside: AtomicBool,
}

const NOBODY_YET: u32 = 0;
const ENDED: u32 = u32::MAX;

/// The right to the value of an [`OwnedLock`].
#[derive(Debug)]
pub enum OwnedGuard<'a, T> {
    /// The owner's.
    Inside(&'a OwnedLock<T>),
    /// Anybody's.
    Held(Guard<'a, T>),
}

/// A number of this thread, never zero.
#[inline(always)]
fn thread() -> u32 {
    thread_local! {
        static OWN: Cell<u32> = const { Cell::new(0) };
    }
    #[cold]
    fn number() -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
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

impl<T> OwnedLock<T> {
    /// An unheld lock without an owner.
    pub const fn new(value: T) -> Self {
        Self {
            lock: Lock::new(value),
            owner: AtomicU32::new(NOBODY_YET),
            inside: AtomicBool::new(false),
        }
    }

    /// Takes the lock if nobody holds it.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<OwnedGuard<'_, T>> {
        // Relaxed: only this thread makes it its own number, and the look below decides.
        if self.owner.load(Ordering::Relaxed) == thread() {
            // Relaxed: this thread's own word. Taken twice by one thread, it is held.
            if self.inside.load(Ordering::Relaxed) {
                return None;
            }
            // E10 owner, enter half. A plain store, then a compiler fence: the fence of the other
            // thread, in `try_lock_shared`, acts as a full one here. Either we see the lock held
            // or the ownership ended, or the other thread sees us inside.
            self.inside.store(true, Ordering::Relaxed);
            crate::futex::fence_light();
            // Acquire, both: what a holder before us did is visible.
            if !self.lock.held.load(Ordering::Acquire)
                && self.owner.load(Ordering::Acquire) != ENDED
            {
                return Some(OwnedGuard::Inside(self));
            }
            self.inside.store(false, Ordering::Release);
        }
        self.try_lock_shared()
    }

    #[cold]
    fn try_lock_shared(&self) -> Option<OwnedGuard<'_, T>> {
        let guard = self.lock.try_lock()?;
        // Relaxed, both: changed only under the lock.
        match self.owner.load(Ordering::Relaxed) {
            ENDED => {}
            NOBODY_YET => self.owner.store(thread(), Ordering::Relaxed),
            owner if owner == thread() => {}
            _ => {
                // E10 owner, revoke half. Pairs with the compiler fence in `try_lock`.
                crate::futex::fence_own_threads();
                // Acquire: what the owner did inside is visible once it says it has left.
                if self.inside.load(Ordering::Acquire) {
                    return None;
                }
                self.owner.store(ENDED, Ordering::Release);
            }
        }
        Some(OwnedGuard::Held(guard))
    }

    /// Takes the lock; yields while another thread holds it.
    pub fn lock(&self) -> OwnedGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            crate::cpu::yield_now();
        }
    }
}

impl<T> Deref for OwnedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        match self {
            // SAFETY: the owner is inside, so no other guard exists (E10).
            Self::Inside(owned) => unsafe { &*owned.lock.value.get() },
            Self::Held(guard) => guard,
        }
    }
}

impl<T> DerefMut for OwnedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        match self {
            // SAFETY: the owner is inside, so no other guard exists (E10), and this one is
            // borrowed mutably.
            Self::Inside(owned) => unsafe { &mut *owned.lock.value.get() },
            Self::Held(guard) => guard,
        }
    }
}

impl<T> Drop for OwnedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Self::Inside(owned) = self {
            // E10 owner, leave. Release: our changes are visible to who sees us outside.
            owned.inside.store(false, Ordering::Release);
        }
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
