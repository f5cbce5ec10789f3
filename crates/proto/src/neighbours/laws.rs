//! The laws of waits as numbers, for figures: the default strategy on a simulated machine, beside waits that sleep and waits that yield. The
//! tests of the two simulations have the limits.

pub use super::machine::Waits;
use super::{chains, crowds};
use alloc::vec::Vec;

/// The calls that a server answers in 60 ms of simulated time, of so many clients which call again at once, on so many processors.
#[must_use]
pub fn calls(waits: Waits, cpus: usize, clients: usize) -> u64 {
    crowds::calls(waits, cpus, clients)
}

/// Chains of two to six threads, on one to four processors: the processor of each thread.
#[must_use]
pub fn chains() -> Vec<Vec<usize>> {
    chains::chains()
}

/// How long a turn takes in a chain, in nanoseconds: of a message that goes round, or to the last one and back (`is_nested`).
#[must_use]
pub fn turn_ns(waits: Waits, chain: &[usize], is_nested: bool) -> u64 {
    chains::turn_of(waits, chain, is_nested)
}
