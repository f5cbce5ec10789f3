//! The bell region: where the receivers of one process sleep, as seen by one trust group.
//!
//! ```text
//! RECEIVERS x bell
//! bell: line 0 sleep, summary, stamp (all write) | line 1 state (owner writes) | ready words
//! ```
//!
//! Shared by all peers of one trust group. Every word here is a hint to its reader: the owner
//! scans the truth (each link's own ready word) before it sleeps, so a peer that clears or sets
//! bits costs its group time and nothing else.

use crate::{LINE, PAGE};

/// Receivers per process: queues that can be slept on.
pub const RECEIVERS: u32 = 64;
/// Links per trust group of one process.
pub const LINKS: u32 = 1024;

/// Wait word of the receiver. Processes of another user than the owner's write nothing here: not this either. See `handfast-wait` for its values.
pub const SLEEP: usize = 0;
/// One bit per ready word.
pub const SUMMARY: usize = 4;
/// When the waker woke, in truncated nanoseconds; a hint.
pub const STAMP: usize = 8;
/// One while the server rotates clients; owner writes, clients read.
pub const OVERLOADED: usize = LINE;
/// CPU the server runs on, plus one; zero when unknown. Owner writes.
pub const CPU: usize = LINE + 4;
/// Spin limit the server asks of its clients while overloaded, in nanoseconds. Owner writes.
pub const SPIN_NS: usize = LINE + 8;
/// One while the server does not fence after its replies, so that a client about to sleep must
/// make it pass a fence. Owner writes.
pub const FENCELESS: usize = LINE + 12;
/// First ready word: one bit per link.
pub const READY: usize = 2 * LINE;
/// Bytes of one bell.
pub const BELL_BYTES: usize = READY + (LINKS as usize / 32) * 4;
/// Bytes of a bell region.
pub const REGION_BYTES: usize = RECEIVERS as usize * BELL_BYTES;

/// First byte of the bell of `receiver`.
///
/// # Panics
/// If `receiver` is not below [`RECEIVERS`].
#[must_use]
pub const fn bell(receiver: u32) -> usize {
    assert!(receiver < RECEIVERS);
    receiver as usize * BELL_BYTES
}

const _: () = {
    assert!(BELL_BYTES.is_multiple_of(LINE));
    assert!(REGION_BYTES.is_multiple_of(PAGE));
    assert!(LINKS / 32 <= 32, "the summary is one 32-bit word");
};
