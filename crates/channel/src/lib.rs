//! The data path of a link, put together from lanes and wait words, generic over its memory.
//!
//! * [`arm`]: when a post must ring, and when it need not.
//! * [`bell`]: finding the lane that rang among thousands, and the one place a receiver sleeps.
//! * [`fill`]: a long message, while its sender still writes it.
//! * [`loan`]: giving back what was lent.
//! * [`reply`]: the slot a caller waits in.
#![forbid(unsafe_code)]

pub mod arm;
pub mod bell;
pub mod fill;
pub mod loan;
pub mod reply;

use core::sync::atomic::Ordering::Relaxed;
use handfast_region::Memory;

/// Leaves the time of a wake-up for the sleeper's adaptive strategy. A hint in truncated
/// nanoseconds of the monotonic clock.
pub fn stamp(memory: &impl Memory, at: usize) {
    // Relaxed: a hint.
    memory.store(at, handfast_sys::clock::now_ns() as u32, Relaxed);
}

/// How long after `start_ns` (monotonic clock) the stamp was left; zero when it is older.
pub fn stamped_after(memory: &impl Memory, at: usize, start_ns: u64) -> u64 {
    // Relaxed: a hint.
    let after = memory
        .load(at, Relaxed)
        .wrapping_sub(start_ns as u32)
        .cast_signed();
    u64::try_from(after).unwrap_or(0)
}

#[cfg(test)]
mod tasks;
#[cfg(test)]
mod tests;
