//! Locks with [ranks](Rank) and without poisoning, for what is not on the path of a call.
//!
//! They are the standard library's. A thread that panics while it holds one leaves the value as it is: a thread that
//! holds a lock calls no code of the application, and leaves no value that is half changed where it may panic.

mod rank;
#[cfg(test)]
mod tests;

pub(crate) use rank::{Held, check, unchecked};
pub use rank::{Rank, check_none_held};

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
pub struct Condvar(sync::Condvar);

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
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let held = Held::enter();
        MutexGuard { inner, held }
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
        let held = Held::enter();
        Some(MutexGuard { inner, held })
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
        Self(sync::Condvar::new())
    }

    /// Sleeps, and lets go of the lock meanwhile, until `condition` is false.
    pub fn wait_while<'a, T, R: Rank>(
        &self,
        guard: MutexGuard<'a, T, R>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T, R> {
        let MutexGuard { inner, held } = guard;
        let inner = self.0.wait_while(inner, condition);
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, held }
    }

    /// Sleeps until it is woken, or for `timeout`, and then says true; now and then for no reason.
    pub fn wait_timeout<'a, T, R: Rank>(
        &self,
        guard: MutexGuard<'a, T, R>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T, R>, bool) {
        let MutexGuard { inner, held } = guard;
        let waited = self.0.wait_timeout(inner, timeout);
        let (inner, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { inner, held }, timeout.timed_out())
    }

    /// Sleeps until `condition` is false, or for `timeout`; which one, the value says.
    pub fn wait_timeout_while<'a, T, R: Rank>(
        &self,
        guard: MutexGuard<'a, T, R>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T, R> {
        let MutexGuard { inner, held } = guard;
        let waited = self.0.wait_timeout_while(inner, timeout, condition);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, held }
    }

    /// Wakes one waiter. A system call if there is one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters. A system call if there is one.
    pub fn notify_all(&self) {
        self.0.notify_all();
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
