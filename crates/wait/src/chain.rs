//! Calls that go on from process to process: three take turns, or more.
//!
//! Each of them waits for all others. Where they have fewer processors than there are of them, one that spins keeps another off its
//! processor, which it waits for in the end. None of them sees that from the processor of the peer that it hears from: the process that
//! passes a call on hears nothing of the next one, and the caller hears from the last one alone.

use core::cell::Cell;

/// Waits of a thread that are taken for those of a chain after it has last had to do with one: a caller waits twice for each call, for the
/// news that its call was passed on and for the answer.
const WAITS: u8 = 4;
/// Processors that a chain of three has too few of.
const CPUS: u32 = 2;

thread_local! {
    static WAITS_LEFT: Cell<u8> = const { Cell::new(0) };
}

/// A call was passed on: by this thread, to this thread, or one of this thread's own.
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

/// Whether a chain has too few of so many processors.
pub(crate) const fn is_crowded(cpus: u32) -> bool {
    cpus <= CPUS
}
