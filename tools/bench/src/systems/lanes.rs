//! The memory of the hand-written pairs: for each client a request line, a reply line and, for
//! larger payloads, one buffer each way.
//!
//! A message is there when its line's sequence number is the call's number. Up to 24 bytes travel
//! in the line itself, so a message is one cache-line transfer.

use crate::control::Line;
use crate::plan::Plan;
use crate::shared::{Payload, Shared, Words};
use crate::systems::child::Seat;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes that travel in the line.
pub(crate) const INLINE_BYTES: usize = 24;

/// One message.
#[repr(C)]
pub(crate) struct Cell {
    sequence: AtomicU64,
    words: [AtomicU64; 3],
}

impl Cell {
    /// Whether message number `sequence` is there.
    #[inline]
    pub(crate) fn has(&self, sequence: u64) -> bool {
        // Acquire: pairs with the Release in `publish`; the words and the buffer are readable.
        self.sequence.load(Ordering::Acquire) == sequence
    }

    /// Writes an inline message's bytes, zero-extended.
    #[inline]
    pub(crate) fn put(&self, bytes: &[u8]) {
        let mut padded = [0; INLINE_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        for (word, bytes) in self.words.iter().zip(padded.as_chunks::<8>().0) {
            // Relaxed: published by the sequence number in `publish`.
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Reads the front of an inline message.
    #[inline]
    pub(crate) fn get(&self, bytes: &mut [u8]) {
        let mut padded = [0; INLINE_BYTES];
        for (word, bytes) in self.words.iter().zip(padded.as_chunks_mut::<8>().0) {
            // Relaxed: ordered by the sequence number in `has`.
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        bytes.copy_from_slice(&padded[..bytes.len()]);
    }

    /// Makes message number `sequence` visible.
    #[inline]
    pub(crate) fn publish(&self, sequence: u64) {
        // Release: earlier writes are there for a thread that sees this number in `has`.
        self.sequence.store(sequence, Ordering::Release);
    }
}

/// Where one side sleeps: 1 while it sleeps or is about to, 0 else.
pub(crate) type Bed = Line<AtomicU32>;

/// One client's lines.
#[repr(C)]
struct LaneWords {
    request: Line<Cell>,
    reply: Line<Cell>,
    client_bed: Bed,
    server_bed: Bed,
}

#[repr(C)]
struct ServerWords {
    server_bed: Bed,
}

// SAFETY: atomic integers and padding only.
unsafe impl Words for LaneWords {}
// SAFETY: atomic integers and padding only.
unsafe impl Words for ServerWords {}

/// One client's part of the memory.
pub(crate) struct Lane {
    pub(crate) request: &'static Cell,
    pub(crate) reply: &'static Cell,
    pub(crate) client_bed: &'static Bed,
    /// The bed of a thread that serves this client alone.
    pub(crate) server_bed: &'static Bed,
    pub(crate) request_bytes: Payload<'static>,
    pub(crate) reply_bytes: Payload<'static>,
}

/// The whole memory as one process maps it.
pub(crate) struct Lanes {
    pub(crate) server_bed: &'static Bed,
    shared: &'static Shared,
    buffer_bytes: usize,
}

impl Lanes {
    /// Bytes of the memory a plan needs.
    pub(crate) fn len_bytes(plan: &Plan) -> usize {
        size_of::<ServerWords>() + plan.clients * stride(buffer_bytes(plan))
    }

    /// Maps the memory the parent made.
    pub(crate) fn map(seat: &Seat) -> io::Result<Self> {
        let shared = seat.map(Self::len_bytes(&seat.plan))?;
        Ok(Self {
            server_bed: &shared.at::<ServerWords>(0).server_bed,
            shared,
            buffer_bytes: buffer_bytes(&seat.plan),
        })
    }

    /// Client `index`'s part.
    pub(crate) fn lane(&self, index: usize) -> Lane {
        let start = size_of::<ServerWords>() + index * stride(self.buffer_bytes);
        let words: &'static LaneWords = self.shared.at(start);
        let buffers = start + size_of::<LaneWords>();
        Lane {
            request: &words.request.0,
            reply: &words.reply.0,
            client_bed: &words.client_bed,
            server_bed: &words.server_bed,
            request_bytes: self.shared.payload(buffers, self.buffer_bytes),
            reply_bytes: self
                .shared
                .payload(buffers + self.buffer_bytes, self.buffer_bytes),
        }
    }
}

/// Bytes of each buffer: none where messages travel inline.
fn buffer_bytes(plan: &Plan) -> usize {
    if plan.payload_bytes <= INLINE_BYTES {
        0
    } else {
        plan.payload_bytes.next_multiple_of(4096)
    }
}

const fn stride(buffer_bytes: usize) -> usize {
    size_of::<LaneWords>() + 2 * buffer_bytes
}

const _: () = assert!(size_of::<LaneWords>() == 512 && size_of::<ServerWords>() == 128);
