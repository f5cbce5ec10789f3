//! The deadline of what a thread does, and where it may be ended for it: words of each thread's own, which a signal handler
//! of that thread reads.

use crate::clock;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, AtomicUsize, compiler_fence};

/// From one signal to the next, once the deadline is past.
pub const AGAIN_NS: u64 = 100_000;

/// No deadline.
pub const NEVER_NS: u64 = u64::MAX;

thread_local! {
    static UNTIL_NS: AtomicU64 = const { AtomicU64::new(NEVER_NS) };
    static PLACE: AtomicUsize = const { AtomicUsize::new(0) };
}

/// The deadline of the innermost call that has one; [`NEVER_NS`] without. One load.
#[must_use]
pub fn until_ns() -> u64 {
    // Relaxed, here and below: this thread's alone; its handlers see its earlier stores.
    UNTIL_NS.with(|until| until.load(Relaxed))
}

/// Changes it.
pub fn set_until_ns(deadline_ns: u64) {
    UNTIL_NS.with(|until| until.store(deadline_ns, Relaxed));
    compiler_fence(SeqCst);
}

/// The part of this thread that may be ended at the deadline, by a number that the code that ends it knows; zero: nothing.
#[inline(always)]
#[must_use]
pub fn place() -> usize {
    PLACE.with(|place| place.load(Relaxed))
}

/// Changes the place; returns the old one.
#[inline(always)]
pub fn set_place(new: usize) -> usize {
    // The compiler moves nothing out of what may be ended, nor into it.
    compiler_fence(SeqCst);
    let old = PLACE.with(|place| {
        let old = place.load(Relaxed);
        place.store(new, Relaxed);
        old
    });
    compiler_fence(SeqCst);
    old
}

/// Whether something of this thread may be ended. One load.
#[inline(always)]
#[must_use]
pub fn may_end() -> bool {
    place() != 0
}

/// This thread's work is not ended while this lives: for work that others would miss if it stopped in the middle.
#[derive(Debug)]
pub struct Shield {
    outer: usize,
    /// It is this thread's.
    not_send: PhantomData<*const ()>,
}

/// A shield from now on.
#[must_use]
pub fn shield() -> Shield {
    Shield {
        outer: set_place(0),
        not_send: PhantomData,
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        set_place(self.outer);
        let is_past = || clock::now_ns() >= until_ns();
        if self.outer != 0 && is_past() && !std::thread::panicking() {
            linger();
        }
    }
}

/// The deadline has passed behind a shield. The signal comes again soon: it is waited for here, since it might find the
/// next shield again.
#[cold]
fn linger() {
    let end_ns = clock::now_ns() + 5 * AGAIN_NS;
    while clock::now_ns() < end_ns {
        core::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shield_holds_off_what_there_is_until_it_is_dropped() {
        set_place(7);
        {
            let _shield = shield();
            assert!(!may_end());
            // Nothing is left to hold off.
            drop(shield());
            assert!(!may_end());
        }
        assert_eq!(set_place(0), 7);
        assert_eq!(until_ns(), NEVER_NS);
    }
}
