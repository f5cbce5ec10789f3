//! The lane: a single-producer, single-consumer ring whose slots carry their own sequence.
//!
//! A message is one cache line, published by its own sequence word, so it costs one line transfer
//! where a ring with a tail index costs two. The consumer publishes its head lazily,
//! the producer keeps a private copy of it and looks at the shared one only when that copy says
//! full.
//!
//! Each half keeps its own position privately and never reads back its own writes. Values that the other
//! half writes are loaded once, checked, then used:
//!
//! * the producer checks the head it loads by the distance rule
//!   ([`Rule::HeadDistance`](crate::Rule::HeadDistance));
//! * the consumer compares the sequence with the one value it expects, copies the header words,
//!   checks length and place, and only then copies the bytes.
//!
//! Edges (`spec/memory-model.md`): E1 publish, E2 consume.

use crate::Fault;
use handfast_layout::link::{self, INLINE_BYTES, Kind, Meta, UNIT_BYTES, lane};
use handfast_region::Memory;

/// Where a lane lies and how many slots it has. Private to each half; never read from the peer.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    base: usize,
    slots: u32,
}

impl Place {
    /// Lane `index` of `side` in a link region.
    #[must_use]
    pub const fn of(side: link::Side, index: u32) -> Self {
        Self {
            base: side.lane(index),
            slots: link::SLOTS,
        }
    }

    /// A lane at offset `base` with fewer slots (a power of two), so that models reach
    /// wrap-around.
    ///
    /// # Panics
    /// If `slots` is no power of two or more than a lane has room for.
    #[must_use]
    pub const fn small(base: usize, slots: u32) -> Self {
        assert!(slots.is_power_of_two() && slots <= link::SLOTS);
        Self { base, slots }
    }

    /// Offset of the slot of the message at `position`.
    #[inline]
    #[must_use]
    pub const fn slot(self, position: u32) -> usize {
        self.base
            + lane::CONTROL_BYTES
            + (position & (self.slots - 1)) as usize * handfast_layout::LINE
    }

    const fn arena(self) -> usize {
        self.base + link::arena_offset()
    }

    /// Offset of the word that says whether the lane is polled or armed.
    #[must_use]
    pub const fn polled(self) -> usize {
        self.base + lane::POLLED
    }

    /// Offset of the head word.
    #[must_use]
    pub const fn head(self) -> usize {
        self.base + lane::HEAD
    }

    /// Offset of the wait word of a producer that waits for space.
    #[must_use]
    pub const fn space(self) -> usize {
        self.base + lane::SPACE
    }

    /// Offset of the word that says whether what is consumed goes on elsewhere.
    #[must_use]
    pub const fn passed_on(self) -> usize {
        self.base + lane::PASSED_ON
    }

    /// Offset of the word that says which receiver the lane leads to.
    #[must_use]
    pub const fn receiver(self) -> usize {
        self.base + lane::RECEIVER
    }

    /// Offset of the streaming word.
    #[must_use]
    pub const fn streaming(self) -> usize {
        self.base + lane::STREAMING
    }
}

/// The fields of a message besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One-way message or call.
    pub kind: Kind,
    /// The port at the consumer: its number, or a handle of the export table.
    pub port: u32,
    /// Reply slot of a call; of a reply right that is passed on the whole word
    /// ([`link::passed_word`]).
    pub reply: u32,
    /// Generation of that reply slot.
    pub generation: u32,
    /// Units that describe the message's parts; the producer is told them apart.
    pub units: u32,
    /// CPU the producer ran on; a hint.
    pub cpu: u32,
}

/// The description of a part of a message, or a piece of it.
pub type Unit = [u8; UNIT_BYTES];

/// Why a message was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No slot, or no arena block of the needed length, is free.
    Full,
    /// The consumer broke a rule.
    Fault(Fault),
}

/// A message's bytes where they are not in a vector: short ones, copied with the header.
pub type Inline = [u8; INLINE_BYTES];

/// Receives the bytes of a message.
pub trait Sink {
    /// The place for a message of `len_bytes` bytes; `is_inline` when they fit [`Inline`].
    fn place(&mut self, len_bytes: usize, is_inline: bool) -> Target<'_>;

    /// The place for what describes its parts, if it has any.
    fn units(&mut self) -> Option<&mut Vec<u8>> {
        None
    }
}

/// Where the bytes of a message go.
#[derive(Debug)]
pub enum Target<'a> {
    /// A buffer of fixed size, filled whole: no loop over the length. Only for messages that are
    /// inline.
    Inline(&'a mut Inline),
    /// A slice exactly as long as the message.
    Slice(&'a mut [u8]),
    /// A vector, made as long as the message.
    Vector(&'a mut Vec<u8>),
    /// Nowhere: there is no room for it.
    Nowhere,
}

/// Copies the message that `meta` tells of, at `at`, to where `sink` wants it.
#[inline(always)]
pub fn copy_to(memory: &impl Memory, at: usize, meta: Meta, sink: &mut impl Sink) {
    let len_bytes = meta.len_bytes as usize;
    match meta.units {
        0 => {}
        // Nearly always, among messages that have any: a length that the compiler knows.
        1 => {
            if let Some(to) = sink.units() {
                memory.copy_out_vec(at + len_bytes, UNIT_BYTES, to);
            }
        }
        units => copy_units(memory, at + len_bytes, units as usize, sink),
    }
    match sink.place(len_bytes, !meta.outside) {
        Target::Inline(bytes) => memory.copy_out(at, bytes),
        Target::Slice(bytes) => memory.copy_out(at, bytes),
        Target::Vector(bytes) => memory.copy_out_vec(at, len_bytes, bytes),
        Target::Nowhere => {}
    }
}

#[cold]
fn copy_units(memory: &impl Memory, at: usize, units: usize, sink: &mut impl Sink) {
    if let Some(to) = sink.units() {
        memory.copy_out_vec(at, units * UNIT_BYTES, to);
    }
}

/// How many messages ahead lines are fetched where many are posted or taken in one operation.
const PREFETCH_AHEAD: u32 = 12;

mod consumer;
mod producer;

pub use consumer::{Consumer, Run, Unusual};
pub use producer::Producer;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
