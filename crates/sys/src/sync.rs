//! Locks with [ranks](Rank) and without poisoning, for what is not on the path of a call.
//!
//! They are the standard library's. A thread that panics while it holds one leaves the value as it is: a thread that
//! holds a lock calls no code of the application, and leaves no value that is half changed where it may panic.

mod rank;
#[cfg(test)]
mod tests;

pub(crate) use rank::{Held, check, unchecked};
pub use rank::{Rank, check_none_held};

use crate::clock;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync::{self, PoisonError};

/// A mutual exclusion lock. May sleep, by futex, while another thread holds it.
#[derive(Debug)]
pub struct Mutex<T, R: Rank> {
    inner: sync::Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

/// The right to the value of a [`Mutex`]; releases it on drop.
#[derive(Debug)]
pub struct MutexGuard<'a, T, R: Rank> {
    inner: sync::MutexGuard<'a, T>,
    held: Held<R>,
    #[cfg(feature = "simulation")]
    of: &'a Mutex<T, R>,
}

/// A lock that any number of readers hold at a time, or one writer. May sleep, by futex.
#[derive(Debug)]
pub struct RwLock<T, R: Rank> {
    inner: sync::RwLock<T>,
    rank: PhantomData<fn() -> R>,
}

/// The right to read the value of a [`RwLock`]; releases it on drop.
#[derive(Debug)]
pub struct ReadGuard<'a, T, R: Rank> {
    inner: sync::RwLockReadGuard<'a, T>,
    _held: Held<R>,
}

/// The right to change the value of a [`RwLock`]; releases it on drop.
#[derive(Debug)]
pub struct WriteGuard<'a, T, R: Rank> {
    inner: sync::RwLockWriteGuard<'a, T>,
    _held: Held<R>,
}

/// Where threads that hold a [`Mutex`] wait for a change of its value.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: sync::Condvar,
    /// Wakes so far, in a simulated machine.
    #[cfg(feature = "simulation")]
    calls: core::sync::atomic::AtomicU32,
}

impl<T, R: Rank> Mutex<T, R> {
    /// An unheld lock.
    pub const fn new(value: T) -> Self {
        Self {
            inner: sync::Mutex::new(value),
            rank: PhantomData,
        }
    }

    /// Takes the lock; sleeps while another thread holds it.
    ///
    /// # Panics
    /// In debug builds, where the thread holds a lock whose [rank](Rank) is not lower.
    pub fn lock(&self) -> MutexGuard<'_, T, R> {
        check::<R>();
        #[cfg(feature = "simulation")]
        crate::simulation::until_free(|| {
            !matches!(self.inner.try_lock(), Err(sync::TryLockError::WouldBlock))
        });
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.taken(inner)
    }

    /// Checks the order as [`Self::lock`] does, where that is seldom called, and takes nothing.
    ///
    /// # Panics
    /// As `lock`.
    #[inline(always)]
    pub fn check_order(&self) {
        check::<R>();
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, R>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(sync::TryLockError::WouldBlock) => return None,
        };
        Some(self.taken(inner))
    }

    fn taken<'a>(&'a self, inner: sync::MutexGuard<'a, T>) -> MutexGuard<'a, T, R> {
        MutexGuard {
            inner,
            held: Held::enter(),
            #[cfg(feature = "simulation")]
            of: self,
        }
    }

    /// The value, of which the caller is the only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, R: Rank> MutexGuard<'_, T, R> {
    /// Runs `work`, in which this thread waits for more than one lock of a rank, or for locks of one object while it
    /// holds locks of another. That ends as only one thread at a time does so, the one that holds this lock: all
    /// others take locks in the order of ranks, and a thread that holds a lock this thread waits for waits for none that
    /// this thread holds. Debug builds check no ranks meanwhile.
    pub fn nest<U>(&self, work: impl FnOnce() -> U) -> U {
        unchecked(work)
    }
}

impl<T, R: Rank> RwLock<T, R> {
    /// An unheld lock.
    pub const fn new(value: T) -> Self {
        Self {
            inner: sync::RwLock::new(value),
            rank: PhantomData,
        }
    }

    /// Takes the lock to read; sleeps while a writer holds it.
    ///
    /// # Panics
    /// In debug builds, where the thread holds a lock whose [rank](Rank) is not lower.
    pub fn read(&self) -> ReadGuard<'_, T, R> {
        check::<R>();
        #[cfg(feature = "simulation")]
        crate::simulation::until_free(|| {
            !matches!(self.inner.try_read(), Err(sync::TryLockError::WouldBlock))
        });
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let _held = Held::enter();
        ReadGuard { inner, _held }
    }

    /// Takes the lock to write; sleeps while another thread holds it.
    ///
    /// # Panics
    /// As [`Self::read`].
    pub fn write(&self) -> WriteGuard<'_, T, R> {
        check::<R>();
        #[cfg(feature = "simulation")]
        crate::simulation::until_free(|| {
            !matches!(self.inner.try_write(), Err(sync::TryLockError::WouldBlock))
        });
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let _held = Held::enter();
        WriteGuard { inner, _held }
    }
}

impl<T: Default, R: Rank> Default for Mutex<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default, R: Rank> Default for RwLock<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl Condvar {
    /// One without waiters.
    pub const fn new() -> Self {
        Self {
            inner: sync::Condvar::new(),
            #[cfg(feature = "simulation")]
            calls: core::sync::atomic::AtomicU32::new(0),
        }
    }

    /// Sleeps, and lets go of the lock meanwhile, until `condition` is false.
    pub fn wait_while<'a, T, R: Rank>(
        &self,
        mut guard: MutexGuard<'a, T, R>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T, R> {
        while condition(&mut guard) {
            guard = self.sleep(guard, None).0;
        }
        guard
    }

    /// Sleeps until it is woken, or for `timeout`, and then says true; now and then for no reason.
    pub fn wait_timeout<'a, T, R: Rank>(
        &self,
        guard: MutexGuard<'a, T, R>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T, R>, bool) {
        self.sleep(guard, Some(timeout))
    }

    /// Sleeps until `condition` is false, or for `timeout`; which one, the value says.
    pub fn wait_timeout_while<'a, T, R: Rank>(
        &self,
        mut guard: MutexGuard<'a, T, R>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T, R> {
        let deadline_ns = clock::deadline_ns(timeout);
        while condition(&mut guard) {
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 {
                break;
            }
            guard = self.sleep(guard, Some(Duration::from_nanos(left_ns))).0;
        }
        guard
    }

    /// Once, and whether for as long as this.
    fn sleep<'a, T, R: Rank>(
        &self,
        guard: MutexGuard<'a, T, R>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T, R>, bool) {
        #[cfg(feature = "simulation")]
        if crate::simulation::is_active() {
            return self.sleep_in_simulation(guard, timeout);
        }
        let MutexGuard { inner, held, .. } = guard;
        #[cfg(feature = "simulation")]
        let of = guard.of;
        let (inner, is_late) = match timeout {
            None => (
                (self.inner.wait(inner)).unwrap_or_else(PoisonError::into_inner),
                false,
            ),
            Some(timeout) => {
                let waited = self.inner.wait_timeout(inner, timeout);
                let (inner, ended) = waited.unwrap_or_else(PoisonError::into_inner);
                (inner, ended.timed_out())
            }
        };
        let guard = MutexGuard {
            inner,
            held,
            #[cfg(feature = "simulation")]
            of,
        };
        (guard, is_late)
    }

    #[cfg(feature = "simulation")]
    fn sleep_in_simulation<'a, T, R: Rank>(
        &self,
        guard: MutexGuard<'a, T, R>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T, R>, bool) {
        let of = guard.of;
        // Relaxed: one thread runs at a time.
        let calls = self.calls.load(core::sync::atomic::Ordering::Relaxed);
        drop(guard);
        let word = core::ptr::NonNull::from(&self.calls).cast();
        let deadline_ns = timeout.map(clock::deadline_ns);
        // SAFETY: the word lives as long as `self`.
        let ended = unsafe { crate::futex::wait(word, calls, deadline_ns) };
        (of.lock(), ended == crate::futex::Wait::TimedOut)
    }

    /// Wakes one waiter. A system call if there is one.
    pub fn notify_one(&self) {
        self.wake_in_simulation(1);
        self.inner.notify_one();
    }

    /// Wakes all waiters. A system call if there is one.
    pub fn notify_all(&self) {
        self.wake_in_simulation(u32::MAX);
        self.inner.notify_all();
    }

    fn wake_in_simulation(&self, count: u32) {
        #[cfg(feature = "simulation")]
        if crate::simulation::is_active() {
            // Relaxed: as above.
            self.calls
                .fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            crate::simulation::wake(core::ptr::NonNull::from(&self.calls).cast(), count);
        }
        let _ = count;
    }
}

impl<T, R: Rank> Deref for MutexGuard<'_, T, R> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, R: Rank> DerefMut for MutexGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T, R: Rank> Deref for ReadGuard<'_, T, R> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, R: Rank> Deref for WriteGuard<'_, T, R> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, R: Rank> DerefMut for WriteGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
