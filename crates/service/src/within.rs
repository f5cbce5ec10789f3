//! How long the caller of the method that this thread runs waits.

use core::cell::Cell;
use core::time::Duration;
use handfast_port::Request;
use std::time::Instant;

thread_local! {
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// While it is there, calls of this thread end when the caller of a request gives up waiting.
pub(crate) struct Within(Option<Instant>);

impl Within {
    /// One load, and two readings of a clock where the caller has a deadline.
    #[inline]
    pub(crate) fn new(request: &Request) -> Self {
        let until = request.time_left().map(|left| Instant::now() + left);
        // A thread that is ending knows of none.
        Self(UNTIL.try_with(|known| known.replace(until)).ok().flatten())
    }
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        let _ = UNTIL.try_with(|known| known.set(self.0));
    }
}

/// `None`: for ever, or this thread runs no method.
#[inline]
pub(crate) fn time_left() -> Option<Duration> {
    let until = UNTIL.try_with(Cell::get).ok().flatten()?;
    Some(until.saturating_duration_since(Instant::now()))
}
