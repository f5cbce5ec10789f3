//! Turns: a lock for each of many things.

use crate::rank;
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::sync::{Condvar, Mutex, MutexGuard};

/// A lock for each of many things, which a thread may wait for by a deadline. For slow paths.
pub(crate) struct Turns<T> {
    taken: Mutex<Vec<T>, rank::Turns>,
    left: Condvar,
}

/// A thread's turn at a thing, until dropped.
pub(crate) struct Turn<'a, T: PartialEq> {
    of: &'a Turns<T>,
    at: T,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Turns<T> {
    pub(crate) const fn new() -> Self {
        Self {
            taken: Mutex::new(Vec::new()),
            left: Condvar::new(),
        }
    }

    /// The taken turns. While the list is held no other turn is taken.
    pub(crate) fn taken(&self) -> MutexGuard<'_, Vec<T>, rank::Turns> {
        self.taken.lock()
    }
}

impl<T: Clone + PartialEq> Turns<T> {
    pub(crate) fn wait(&self, at: T) -> Turn<'_, T> {
        let taken = self
            .left
            .wait_while(self.taken(), |taken| taken.contains(&at));
        let mut taken = taken;
        taken.push(at.clone());
        Turn { of: self, at }
    }

    /// `None` when the others took longer.
    pub(crate) fn wait_until(&self, at: T, deadline_ns: u64) -> Option<Turn<'_, T>> {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(clock::now_ns()));
        let mut taken = self
            .left
            .wait_timeout_while(self.taken(), left, |taken| taken.contains(&at));
        if taken.contains(&at) {
            return None;
        }
        taken.push(at.clone());
        Some(Turn { of: self, at })
    }
}

impl<T: Clone + PartialEq> Turn<'_, T> {
    /// Gives others a turn, so long at least, and waits for another. `None` when they took longer.
    pub(crate) fn lend(self, pause: Duration, deadline_ns: u64) -> Option<Self> {
        let (of, at) = (self.of, self.at.clone());
        drop(self);
        clock::sleep(pause);
        of.wait_until(at, deadline_ns)
    }
}

impl<T: PartialEq> Turns<T> {
    /// Returns a turn that a thread has entered in [`Self::taken`].
    pub(crate) fn give_back(&self, at: &T) {
        let mut taken = self.taken();
        if let Some(place) = taken.iter().position(|taken| taken == at) {
            taken.swap_remove(place);
        }
        drop(taken);
        // Each may wait for another thing.
        self.left.notify_all();
    }
}

impl<T: PartialEq> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.of.give_back(&self.at);
    }
}
