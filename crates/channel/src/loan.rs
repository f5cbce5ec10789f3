//! The words of a link by which blocks that were lent come back.
//!
//! While a block is lent its lender does not write it. When the borrower has done with it, it says so in the
//! loan's word; when the link ends, the lender takes back what is out and says that first, so that no
//! borrower takes for its loan what was written later.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::Side;
use handfast_region::Memory;

/// Borrower: gives a loan of the peer's back. `calls` is the side on which the lender calls. One store.
pub fn give_back(memory: &impl Memory, calls: Side, loan: u32, generation: u32) {
    // E16 return, store half. Release: the copies out of the block come before. Load half: `returned`.
    memory.store(calls.returned(loan), generation, Release);
}

/// Borrower: fetches the word of a loan, which it is going to give back.
pub fn prefetch(memory: &impl Memory, calls: Side, loan: u32) {
    memory.prefetch_write(calls.returned(loan));
}

/// Lender: the generation with which a loan was given back last. The peer's word.
pub fn returned(memory: &impl Memory, calls: Side, loan: u32) -> u32 {
    // E16 return, load half. Acquire: the block may be written from now on. Store half: `give_back`.
    memory.load(calls.returned(loan), Acquire)
}

/// Lender: says that what is lent may be written again although it was not given back, since the link has
/// ended. One fence.
pub fn end(memory: &impl Memory, calls: Side) {
    // Relaxed: the fence orders it.
    memory.store(calls.over(), 1, Relaxed);
    // E17 end, store half. The word above comes before whatever is written to the blocks from now on. Load
    // half: `has_ended`.
    memory.fence();
}

/// Borrower: whether what was copied out before this may have been written since it was lent. One fence, one
/// load.
pub fn has_ended(memory: &impl Memory, calls: Side) -> bool {
    // E17 end, load half. The copies come before the look at the word: who copied what was written after the
    // end sees the end. Store half: `end`.
    memory.fence();
    // Relaxed: the fence orders it.
    memory.load(calls.over(), Relaxed) != 0
}

#[cfg(test)]
mod model;
