//! How callers of a right wait.

use super::{Origin, SendRight, VERSIONS};
use crate::options::Options;
use crate::options::WaitBy;
use crate::waiters::with_waiter;
use core::sync::atomic::Ordering;
use handfast_wait::Waiter;

impl SendRight {
    /// Changes how callers of this right wait, for replies and for room, from the next wait on. Callers of its
    /// clones go on as before. A short lock.
    pub fn set_options(&self, options: Options) {
        if let Origin::Vine(Some(upgrade)) = &self.origin {
            upgrade.set_options(options);
        }
        if let Some(Some(moved)) = self.known_moved() {
            moved.set_options(options);
        }
        self.wait_by(self.process().configuration.resolve(options));
    }

    pub(super) fn wait_by(&self, waiting: WaitBy) {
        self.set_waiting(waiting);
        // Relaxed: a hint.
        self.eager.store(waiting.0.is_eager(), Ordering::Relaxed);
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
        with_waiter(version, || self.waiting(), wait)
    }

    #[cold]
    fn first_version(&self) -> u64 {
        let next = VERSIONS.fetch_add(1, Ordering::Relaxed);
        // Another thread may have been first, or the options were changed.
        let known = (self.version).compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        known.err().unwrap_or(next)
    }
}
