//! Which of the tasks that wait to receive from one port looks next.
//!
//! A receiver has one place to be rung at, and any number of tasks may wait there. Waking all of them for
//! each message would cost each of them a look. So one is called at a time, the one that has waited
//! longest. The called task looks, and then either has found something, and the next one is
//! called; or has not, and the port is left so that a post rings; or goes without a look, and the next one
//! is called in its place. Between a call and one of these ends no other call is needed.

use alloc::collections::VecDeque;

/// The tasks that wait at one port, by what wakes them. As many as the application lets wait.
#[derive(Debug)]
pub struct Takers<W> {
    waiting: VecDeque<(u64, W)>,
    called: Option<u64>,
    last: u64,
}

impl<W> Default for Takers<W> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            called: None,
            last: 0,
        }
    }
}

/// The state of a task that waits no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left<W> {
    /// A waiting one, and its waker.
    Waiting(Option<W>),
    /// The one that was called: now it must look, or another must be called.
    Called,
}

impl<W> Takers<W> {
    /// A task waits, behind the others. Returns its number.
    pub fn enter(&mut self, waker: W) -> u64 {
        self.last += 1;
        self.waiting.push_back((self.last, waker));
        self.last
    }

    /// A task waits no more: it looks now, or has gone.
    pub fn leave(&mut self, number: u64) -> Left<W> {
        if self.called == Some(number) {
            self.called = None;
            return Left::Called;
        }
        // Mostly the one that has waited longest.
        let place = self.waiting.iter().position(|(of, _)| *of == number);
        let left = place.and_then(|place| self.waiting.remove(place));
        Left::Waiting(left.map(|(_, waker)| waker))
    }

    /// Something may be there: whom to wake. Nobody when one that was called has not looked yet, or none
    /// waits.
    pub fn call(&mut self) -> Option<W> {
        if self.called.is_some() {
            return None;
        }
        let (number, waker) = self.waiting.pop_front()?;
        self.called = Some(number);
        Some(waker)
    }

    /// How many wait that have not been called.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether one has been called that has not looked yet.
    #[must_use]
    pub const fn is_called(&self) -> bool {
        self.called.is_some()
    }
}

#[cfg(test)]
mod simulation;
