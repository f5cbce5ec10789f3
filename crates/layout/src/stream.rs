//! The region that both ends of an upgraded stream socket map: one direction of bytes each way.
//!
//! ```text
//! 0      words of the connector's direction, then of the acceptor's
//! 4096   bytes of the connector's direction
//! ...    bytes of the acceptor's
//! ```
//!
//! A direction is named after the end that writes it.

use crate::link::Side;
use crate::{LINE, PAGE};

/// Version of the region, and of the messages by which it is asked for and given.
pub const VERSION: u32 = 2;

/// Bytes of a direction's ring. A power of two: positions wrap.
pub const RING_BYTES: usize = 64 * 1024;
/// Length of the region.
pub const REGION_BYTES: usize = PAGE + 2 * RING_BYTES;

/// Offsets of a direction's words. Each word, or pair, has a writer of its own and lines of its own; processors fetch lines in pairs.
pub mod direction {
    use super::LINE;

    /// How many bytes the writer has put into the ring, modulo 2^32. Publishes them.
    pub const TAIL: usize = 0;
    /// Which way the bytes go: a [`super::State`]. Changed by exchange: the writer and the reader may both leave the ring. Publishes [`FROM`] and
    /// the last counts.
    pub const STATE: usize = 4;
    /// How many bytes the writer had given the kernel when it turned to the ring: two words, the lower first.
    pub const FROM: usize = 8;
    /// The CPU on which the writer wrote last, plus one. A hint.
    pub const WRITER_CPU: usize = 16;
    /// Connector's direction: not zero once the connector has mapped and sealed the region.
    pub const MAPPED: usize = 20;
    /// How many bytes the reader has taken out of the ring, modulo 2^32. Publishes their room.
    pub const HEAD: usize = 2 * LINE;
    /// Not zero: the reader takes no more.
    pub const CLOSED: usize = 2 * LINE + 4;
    /// The CPU on which the reader read last, plus one. A hint.
    pub const READER_CPU: usize = 2 * LINE + 8;
    /// Wait word of the thread that reads.
    pub const READER: usize = 4 * LINE;
    /// Wait word of the thread that writes.
    pub const WRITER: usize = 6 * LINE;
    /// From one direction's words to the next one's.
    pub const STRIDE: usize = 8 * LINE;
}

/// Values of [`direction::STATE`]. None leads back to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Bytes go through the kernel's socket.
    Kernel = 0,
    /// Bytes go through the ring.
    Ring = 1,
    /// No bytes come after those in the ring. How the stream ends, the kernel's socket says.
    Ended = 2,
    /// After those in the ring, bytes go through the kernel's socket for good: the writer has left the ring.
    Back = 3,
    /// The reader has left the ring. The writer gives the kernel's socket the bytes that have not been taken, and all that follow.
    Left = 4,
}

impl State {
    /// The state of this number.
    #[must_use]
    pub const fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Kernel,
            1 => Self::Ring,
            2 => Self::Ended,
            3 => Self::Back,
            4 => Self::Left,
            _ => return None,
        })
    }
}

/// Offset of the words of the direction that an end writes.
#[must_use]
pub const fn words(end: Side) -> usize {
    match end {
        Side::Connector => 0,
        Side::Acceptor => direction::STRIDE,
    }
}

/// Offset of the bytes of that direction.
#[must_use]
pub const fn bytes(end: Side) -> usize {
    match end {
        Side::Connector => PAGE,
        Side::Acceptor => PAGE + RING_BYTES,
    }
}

const _: () = assert!(RING_BYTES.is_power_of_two());
const _: () = assert!(2 * direction::STRIDE <= PAGE);
