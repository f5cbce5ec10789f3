//! How callers of a right wait.

use super::{SendRight, VERSIONS};
use crate::options::Options;
use crate::origin::Origin;
use crate::waiters::with_waiter;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_wait::{Strategy, Waiter};
use std::sync::PoisonError;

impl SendRight {
    /// Changes how callers of this right wait, for replies and for room, from the next wait on; those of its clones
    /// go on as they did. A short lock.
    pub fn set_options(&self, options: Options) {
        let (strategy, cap) = options.resolve();
        if let Origin::Vine(Some(upgrade)) = &self.origin {
            upgrade.set_options(options);
        }
        if let Some(Some(moved)) = self.moved.get() {
            moved.set_options(options);
        }
        self.wait_by((strategy, cap));
    }

    pub(super) fn wait_by(&self, (strategy, cap): (Strategy, Option<Duration>)) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = (strategy, cap);
        // Relaxed: a hint.
        self.eager
            .store(Waiter::new(strategy, cap).is_eager(), Ordering::Relaxed);
        // Relaxed: a number; the options are behind the lock.
        self.version
            .store(VERSIONS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Runs `wait` with this thread's waiter for this right.
    #[inline]
    pub(crate) fn with_waiter<T>(&self, wait: impl FnOnce(&mut Waiter) -> T) -> T {
        // Relaxed: a number; the options are behind the lock.
        let version = match self.version.load(Ordering::Relaxed) {
            0 => self.first_version(),
            version => version,
        };
        let options = || *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        with_waiter(version, options, wait)
    }

    #[cold]
    fn first_version(&self) -> u64 {
        let next = VERSIONS.fetch_add(1, Ordering::Relaxed);
        // Another thread may have been first, or the options were changed.
        let known = (self.version).compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        known.err().unwrap_or(next)
    }
}
