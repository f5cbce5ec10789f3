//! How callers of a right wait.

use super::{Origin, SendRight, VERSIONS, aside};
use crate::options::{Options, WaitBy};
use crate::waiters;
use core::sync::atomic::Ordering;
use handfast_wait::Waiter;

impl SendRight {
    /// Changes how callers of this right wait, for replies and for room, from the next wait on. Callers of
    /// clones of the right wait as before. A short lock.
    pub fn set_options(&self, options: Options) {
        let waiting = self.process().configuration.resolve(options);
        let mut right = self;
        // By a loop: others say how often its port has moved.
        loop {
            if let Origin::Vine(Some(upgrade)) = &right.origin {
                upgrade.set_options(options);
            }
            wait_by(right, waiting);
            match aside::known_moved(right) {
                Some(Some(moved)) => right = moved,
                _ => break,
            }
        }
    }
}

pub(super) fn wait_by(right: &SendRight, waiting: WaitBy) {
    aside::set_waiting(right, waiting);
    // Relaxed: a hint.
    right.eager.store(waiting.0.is_eager(), Ordering::Relaxed);
    // Relaxed: a number; the options are behind the lock.
    right
        .version
        .store(VERSIONS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
}

/// Runs `wait` with this thread's waiter for this right.
#[inline]
pub(crate) fn with_waiter<T>(right: &SendRight, wait: impl FnOnce(&mut Waiter) -> T) -> T {
    // Relaxed: a number; the options are behind the lock.
    let version = match right.version.load(Ordering::Relaxed) {
        0 => first_version(right),
        version => version,
    };
    waiters::with_waiter(version, || aside::waiting(right), wait)
}

#[cold]
fn first_version(right: &SendRight) -> u64 {
    let next = VERSIONS.fetch_add(1, Ordering::Relaxed);
    // Another thread may have been first, or the options were changed.
    let known = (right.version).compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
    known.err().unwrap_or(next)
}
