//! Calls and one-way messages that go on from process to process: three take turns, or more (`handfast_proto::neighbours`).

use core::cell::Cell;

/// Waits of a thread that are taken for those of a chain after it has last had to do with one: a caller waits twice for each call, for the
/// news that its call was passed on and for the answer.
const WAITS: u8 = 4;

thread_local! {
    static WAITS_LEFT: Cell<u8> = const { Cell::new(0) };
}

/// A call was passed on, by this thread, to this thread, or one of this thread's own; or this thread has sent a one-way message.
#[inline(always)]
pub fn noted() {
    WAITS_LEFT.set(WAITS);
}

/// Whether the next wait of this thread is one of a chain, as far as one can tell.
#[inline(always)]
#[must_use]
pub fn is_next() -> bool {
    WAITS_LEFT.get() > 0
}

/// As [`is_next`], of the wait that begins.
pub(crate) fn begins() -> bool {
    let left = WAITS_LEFT.get();
    WAITS_LEFT.set(left.saturating_sub(1));
    left > 0
}
