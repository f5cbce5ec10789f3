//! The wait word: `AWAKE`, or how its owner sleeps.
//!
//! ```text
//! sleeper                          waker
//! C.1 look: nothing                P.1 publish
//! C.2 announce: word = ASLEEP      ── store-load fence (E4) ──
//! ── store-load fence (E4) ──      P.2 word says asleep? exchange it for AWAKE (test-and-set)
//! C.3 look again                   P.3 whoever took the ASLEEP away wakes
//! C.4 sleep while word == ASLEEP
//! C.5 word = AWAKE
//! ```
//!
//! The steps are from paper 000, Figure 4. Its four interleavings: 1 (wake-up before sleep)
//! is harmless because the exchange changes the word, which the sleep compares; 2 (several wakers)
//! is harmless because one exchange finds `ASLEEP`; 3 (wake-up without sleep) leaves nothing
//! behind because a futex keeps no count; 4 (no wake-up at all) is excluded by step C.3 together
//! with the two fences. The models in this module remove the comparison, the exchange, step C.3 and the fences, and fail.
//!
//! A hostile peer can write the word at any time. It can then wake us for nothing or fail to wake
//! us; the first costs a look, the second only ever delays what that peer itself should have sent,
//! and the end of the link or the deadline ends the sleep.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use handfast_region::Memory;

/// The owner is awake, or has been woken: nothing to do.
pub const AWAKE: u32 = 0;
/// The owner sleeps on the word itself.
pub const ASLEEP: u32 = 1;
/// The owner sleeps in a descriptor, or wants a signal: ring through the link's socket.
pub const DESCRIPTOR: u32 = 2;

/// Step C.2: says how the owner is about to sleep, and orders that before its next look.
pub fn announce(memory: &impl Memory, at: usize, how: u32) {
    // Relaxed: publishes nothing but itself; ordered by the fence.
    memory.store(at, how, Relaxed);
    // E4 sleep. Store-load fence. Pairs with the fence in `fence_then_taken`. Without both,
    // "nothing to receive" and "nobody asleep" can both be true and the wake-up is lost.
    memory.fence();
}

/// Step C.5, or C.3 that found something: the owner is awake. Returns whether a waker had taken
/// the announcement (its wake-up may still be on its way, as a spurious one).
pub fn withdraw(memory: &impl Memory, at: usize) -> bool {
    // AcqRel: pairs with the exchange in `taken`, so exactly one side sees the announcement.
    memory.swap(at, AWAKE, AcqRel) == AWAKE
}

/// Step P.2 after a publication: fences, looks, and takes the announcement if there is one.
/// Returns how the sleeper sleeps, for exactly one of all wakers.
#[inline]
pub fn fence_then_taken(memory: &impl Memory, at: usize) -> Option<u32> {
    // E4 wake. Store-load fence. Pairs with the fence in `announce`.
    memory.fence();
    taken(memory, at)
}

/// Step P.2 where a fence has been passed since the publication.
#[inline]
pub fn taken(memory: &impl Memory, at: usize) -> Option<u32> {
    // Relaxed: ordered by the fence before; a peer's hint in any case.
    if memory.load(at, Relaxed) == AWAKE {
        return None;
    }
    // AcqRel: the test-and-set of paper 000; one waker of several finds the announcement.
    match memory.swap(at, AWAKE, AcqRel) {
        AWAKE => None,
        how => Some(how),
    }
}

#[cfg(test)]
mod model;
