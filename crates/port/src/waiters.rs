//! The waiting habits that each thread has learned.

use core::time::Duration;
use handfast_wait::{Strategy, Waiter};
use std::cell::RefCell;

thread_local! {
    /// The waiters of this thread, per right and version, with what they have learned.
    static WAITERS: RefCell<Vec<(u64, Waiter)>> = const { RefCell::new(Vec::new()) };
}

/// Waiters a thread remembers.
const WAITERS_MAX: usize = 64;

/// Runs `wait` with this thread's waiter for `version`, made with its options if there is none.
#[inline]
pub(crate) fn with_waiter<T>(
    version: u64,
    options: impl FnOnce() -> (Strategy, Option<Duration>),
    wait: impl FnOnce(&mut Waiter) -> T,
) -> T {
    // Taken out meanwhile. A thread that is ending has none any more, and learns nothing.
    let mut waiters = WAITERS.try_with(RefCell::take).unwrap_or_default();
    let known = waiters.iter().position(|(of, _)| *of == version);
    let place = known.unwrap_or_else(|| {
        let (strategy, cap) = options();
        if waiters.len() == WAITERS_MAX {
            waiters.remove(0);
        }
        waiters.push((version, Waiter::new(strategy, cap)));
        waiters.len() - 1
    });
    let waited = wait(&mut waiters[place].1);
    let _ = WAITERS.try_with(|known| known.replace(waiters));
    waited
}

/// The version of the options that waits have which belong to no right.
pub(crate) const OF_PROCESS: u64 = 0;
