//! The lane: a single-producer, single-consumer ring whose slots carry their own sequence.
//!
//! A message is one cache line, published by its own sequence word, so it costs one line transfer
//! where a ring with a tail index costs two (design D4). The consumer publishes its head lazily,
//! the producer keeps a private copy of it and looks at the shared one only when that copy says
//! full.
//!
//! Each half keeps its own position privately and never reads back what it wrote. What the other
//! half writes is loaded once, checked, then used:
//!
//! * the producer checks the head it loads by the distance rule ([`Rule::HeadDistance`]);
//! * the consumer compares the sequence with the one value it expects, copies the header words,
//!   checks length and place, and only then copies the bytes.
//!
//! Edges (`spec/memory-model.md`): E1 publish, E2 consume.

use crate::arena::Arena;
use crate::{Fault, Rule};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::{self, ARENA_BYTES, INLINE_BYTES, Kind, Meta, lane, slot};
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

    #[inline]
    const fn slot(self, position: u32) -> usize {
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

    /// Offset of the streaming word.
    #[must_use]
    pub const fn streaming(self) -> usize {
        self.base + lane::STREAMING
    }
}

/// What a message says besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One-way message or call.
    pub kind: Kind,
    /// Port index in the consumer's table.
    pub port: u32,
    /// Reply slot of a call.
    pub reply: u32,
    /// Generation of that reply slot.
    pub generation: u32,
    /// CPU the producer ran on; a hint.
    pub cpu: u32,
}

/// Why a message was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No slot, or no arena block of the needed length, is free.
    Full,
    /// The consumer broke a rule.
    Fault(Fault),
}

/// The producing half of a lane.
#[derive(Debug)]
pub struct Producer {
    place: Place,
    tail: u32,
    /// Private copy of the consumer's head; at most the truth.
    head: u32,
    arena: Arena,
}

impl Producer {
    /// The producer of an unused lane (all words zero).
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self::starting_at(place, 0)
    }

    /// A producer whose first message has the given position; the consumer must agree.
    #[must_use]
    pub fn starting_at(place: Place, position: u32) -> Self {
        Self {
            place,
            tail: position,
            head: position,
            arena: Arena::default(),
        }
    }

    /// Where the lane lies.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Position of the next message.
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.tail
    }

    /// Writes and publishes one message. One copy, no system call, no fence: whether the consumer
    /// must be woken is looked at by the caller, after its own fence.
    ///
    /// # Errors
    /// [`Refused::Full`] when there is no room (nothing was written), [`Refused::Fault`] when the
    /// head the consumer published is impossible.
    ///
    /// # Panics
    /// If `bytes` is longer than a message can be.
    #[inline(always)]
    pub fn post(
        &mut self,
        memory: &impl Memory,
        header: Header,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        assert!(bytes.len() <= handfast_layout::MESSAGE_BYTES_MAX);
        if self.tail.wrapping_sub(self.head) >= self.place.slots {
            self.look_at_head(memory).map_err(Refused::Fault)?;
            if self.tail.wrapping_sub(self.head) >= self.place.slots {
                return Err(Refused::Full);
            }
        }
        let at = self.place.slot(self.tail);
        let outside = bytes.len() > INLINE_BYTES;
        if outside {
            let offset = self.take_block(memory, bytes.len())?;
            memory.copy_in(self.place.arena() + offset as usize, bytes);
            // Relaxed: published by the sequence word (E1), as all below.
            memory.store(at + slot::ARENA, offset, Relaxed);
        } else {
            memory.copy_in(at + slot::BYTES, bytes);
        }
        let meta = Meta {
            len_bytes: bytes.len() as u32,
            outside,
            kind: header.kind,
            cpu: header.cpu,
        };
        // In the order of their offsets. A stream waits for its stores: only what is looked at.
        if header.kind == Kind::Call {
            let words = [meta.pack(), header.port, header.reply, header.generation];
            memory.store_words(at + slot::META, words);
        } else {
            memory.store_words(at + slot::META, [meta.pack(), header.port]);
        }
        self.tail = self.tail.wrapping_add(1);
        // E1 publish, store half. Release: the words and bytes above are visible to the consumer
        // that observes this sequence. Load half: `Consumer::is_ready`.
        memory.store(at + slot::SEQUENCE, self.tail, Release);
        Ok(())
    }

    /// [`Self::post`] for many with the same header, until one finds no room or is too long. Returns
    /// how many.
    #[inline(always)]
    pub fn post_many<'a>(
        &mut self,
        memory: &impl Memory,
        header: Header,
        messages: impl Iterator<Item = &'a [u8]>,
    ) -> usize {
        let mut posted = 0;
        for bytes in messages {
            let ahead = self.tail.wrapping_add(PREFETCH_AHEAD);
            if ahead.wrapping_sub(self.head) < self.place.slots {
                // The consumer has done with that line; the processor has few stores under way.
                memory.prefetch_write(self.place.slot(ahead));
            }
            if bytes.len() > handfast_layout::MESSAGE_BYTES_MAX
                || self.post(memory, header, bytes).is_err()
            {
                break;
            }
            posted += 1;
        }
        posted
    }

    /// Learns, from a reply to the message at `position`, that the consumer has taken it and all
    /// before it. Costs no look at shared memory.
    #[inline(always)]
    pub fn taken_through(&mut self, position: u32) {
        let head = position.wrapping_add(1);
        let ahead = head.wrapping_sub(self.head);
        if ahead <= self.tail.wrapping_sub(self.head) && ahead > 0 {
            self.head = head;
            self.arena.release_before(head);
        }
    }

    /// Whether a message of `len_bytes` bytes would be accepted now, with a fresh look at the
    /// consumer's head.
    ///
    /// # Errors
    /// The fault, when the head the consumer published is impossible.
    pub fn has_room(&mut self, memory: &impl Memory, len_bytes: usize) -> Result<bool, Fault> {
        self.look_at_head(memory)?;
        if self.tail.wrapping_sub(self.head) >= self.place.slots {
            return Ok(false);
        }
        Ok(len_bytes <= INLINE_BYTES || self.arena.has(len_bytes))
    }

    fn take_block(&mut self, memory: &impl Memory, len_bytes: usize) -> Result<u32, Refused> {
        if let Some(block) = self.arena.take(len_bytes, self.tail) {
            return Ok(block.offset);
        }
        self.look_at_head(memory).map_err(Refused::Fault)?;
        self.arena
            .take(len_bytes, self.tail)
            .map(|block| block.offset)
            .ok_or(Refused::Full)
    }

    fn look_at_head(&mut self, memory: &impl Memory) -> Result<(), Fault> {
        // E2 consume, load half. Acquire: the consumer has finished copying everything before
        // this head, so the slots and blocks may be written again. Store half:
        // `Consumer::publish_head`.
        let head = memory.load(self.place.head(), Acquire);
        let ahead = head.wrapping_sub(self.head);
        if ahead > self.tail.wrapping_sub(self.head) {
            // Replies may have told us of a later head than the consumer has published: that is
            // the only honest way to be behind, and never by more than the ring.
            if self.head.wrapping_sub(head) <= self.place.slots {
                return Ok(());
            }
            return Err(Fault {
                rule: Rule::HeadDistance,
                offset: self.place.head(),
            });
        }
        self.head = head;
        self.arena.release_before(head);
        Ok(())
    }
}

/// The producer broke a rule; [`Consumer::take`] says which. Without content, because passing the
/// details on would cost the messages that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The consuming half of a lane.
#[derive(Debug)]
pub struct Consumer {
    place: Place,
    head: u32,
    published: u32,
}

/// The consumer publishes its head at least once per this many messages.
const PUBLISH_EVERY: u32 = 16;
/// How many messages ahead of the one being taken [`Consumer::poll_many`] fetches lines.
const PREFETCH_AHEAD: u32 = 12;

/// What [`Consumer::poll_many`] took.
#[derive(Debug, Default)]
pub struct Run {
    /// Messages before the last one picked.
    pub messages: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The one that was picked, in the place after theirs; or the producer broke a rule.
    pub last: Option<Result<(Header, usize), Broken>>,
}

/// A message's bytes where they are not in a vector: short ones, copied with the header.
pub type Inline = [u8; INLINE_BYTES];

/// Receives the bytes of a message.
pub trait Sink {
    /// The place for a message of `len_bytes` bytes; `is_inline` when they fit [`Inline`].
    fn place(&mut self, len_bytes: usize, is_inline: bool) -> Target<'_>;
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

/// Copies `len_bytes` bytes at `at` to where `sink` wants them.
#[inline(always)]
pub fn copy_to(
    memory: &impl Memory,
    at: usize,
    (len_bytes, is_inline): (usize, bool),
    sink: &mut impl Sink,
) {
    match sink.place(len_bytes, is_inline) {
        Target::Inline(bytes) => memory.copy_out(at, bytes),
        Target::Slice(bytes) => memory.copy_out(at, bytes),
        Target::Vector(bytes) => memory.copy_out_vec(at, len_bytes, bytes),
        Target::Nowhere => {}
    }
}

impl Consumer {
    /// The consumer of an unused lane (all words zero).
    #[must_use]
    pub const fn new(place: Place) -> Self {
        Self::starting_at(place, 0)
    }

    /// A consumer that expects the given position first.
    #[must_use]
    pub const fn starting_at(place: Place, position: u32) -> Self {
        Self {
            place,
            head: position,
            published: position,
        }
    }

    /// Where the lane lies.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Position of the next message to take.
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.head
    }

    /// Whether everything taken has been published.
    #[inline(always)]
    #[must_use]
    pub const fn has_published(&self) -> bool {
        self.published == self.head
    }

    /// Whether a message waits. One load of a line that is cached until the producer writes it.
    #[inline(always)]
    #[must_use]
    pub fn is_ready(&self, memory: &impl Memory) -> bool {
        // E1 publish, load half. Acquire: after this the words and bytes of the slot may be
        // copied. Store half: `Producer::post`.
        memory.load(self.place.slot(self.head) + slot::SEQUENCE, Acquire)
            == self.head.wrapping_add(1)
    }

    /// Starts fetching the line that [`Self::is_ready`] looks at. A hint.
    #[inline]
    pub fn prefetch(&self, memory: &impl Memory) {
        memory.prefetch(self.place.slot(self.head));
    }

    /// The header of the waiting message, without taking it. Call only after
    /// [`Self::is_ready`] said so.
    ///
    /// # Errors
    /// The rule the producer broke.
    #[inline(always)]
    pub fn peek(&self, memory: &impl Memory) -> Result<(Header, Meta), Fault> {
        Self::header(memory, self.place.slot(self.head))
    }

    #[inline(always)]
    fn header(memory: &impl Memory, at: usize) -> Result<(Header, Meta), Fault> {
        // Ordered by the Acquire in `is_ready` (E1). In the order of their offsets.
        let [meta, port, reply, generation] = memory.load_words(at + slot::META);
        let Some(meta) = Meta::unpack(meta) else {
            return Err(Fault {
                rule: Rule::MessageLength,
                offset: at + slot::META,
            });
        };
        let header = Header {
            kind: meta.kind,
            port,
            reply,
            generation,
            cpu: meta.cpu,
        };
        Ok((header, meta))
    }

    /// Copies the waiting message out and takes it. Call only after [`Self::is_ready`] said so.
    ///
    /// # Errors
    /// The rule the producer broke; the message is then not taken.
    #[inline(always)]
    pub fn take(
        &mut self,
        memory: &impl Memory,
        sink: &mut impl Sink,
    ) -> Result<(Header, usize), Fault> {
        let (place, head) = (self.place, self.head);
        self.take_from(memory, (place, head, place.slot(head)), sink)
    }

    /// [`Self::is_ready`] and [`Self::take`] in one, for the straight path: where the slot lies is
    /// found before the word that orders memory is read, and not again after it.
    ///
    /// # Errors
    /// [`Broken`] when the producer broke a rule; the message is then not taken.
    #[inline(always)]
    pub fn poll(
        &mut self,
        memory: &impl Memory,
        sink: &mut impl Sink,
    ) -> Option<Result<(Header, usize), Broken>> {
        let (place, head) = (self.place, self.head);
        let at = place.slot(head);
        // E1 publish, load half. As in `is_ready`.
        if memory.load(at + slot::SEQUENCE, Acquire) != head.wrapping_add(1) {
            return None;
        }
        Some(
            self.take_from(memory, (place, head, at), sink)
                .map_err(|_| Broken),
        )
    }

    /// [`Self::poll`] for many: takes messages into `places` one after the other, until none waits,
    /// the places are used up, or one comes that `is_last` picks, which is taken, too.
    #[inline(always)]
    pub fn poll_many(
        &mut self,
        memory: &impl Memory,
        places: &mut [impl Sink],
        mut is_last: impl FnMut(Header) -> bool,
    ) -> Run {
        let mut run = Run::default();
        // In registers: what orders memory would make the compiler store and load it every time.
        let mut own = Self { ..*self };
        for place in places {
            // The line of a later message comes while this one is copied: a look at a line that
            // is on its way takes longer than all the rest.
            memory.prefetch(own.place.slot(own.head.wrapping_add(PREFETCH_AHEAD)));
            match own.poll(memory, place) {
                None => break,
                Some(Ok((header, len_bytes))) if !is_last(header) => {
                    run.messages += 1;
                    run.bytes += len_bytes as u64;
                }
                Some(taken) => {
                    run.last = Some(taken);
                    break;
                }
            }
        }
        *self = own;
        run
    }

    #[inline(always)]
    fn take_from(
        &mut self,
        memory: &impl Memory,
        (place, head, at): (Place, u32, usize),
        sink: &mut impl Sink,
    ) -> Result<(Header, usize), Fault> {
        let (header, meta) = Self::header(memory, at)?;
        let len_bytes = meta.len_bytes as usize;
        let mut from = at + slot::BYTES;
        if meta.outside {
            let offset = memory.load(at + slot::ARENA, Relaxed) as usize;
            if offset > ARENA_BYTES || len_bytes > ARENA_BYTES - offset {
                return Err(Fault {
                    rule: Rule::ArenaBounds,
                    offset: at + slot::ARENA,
                });
            }
            from = place.arena() + offset;
        }
        copy_to(memory, from, (len_bytes, !meta.outside), sink);
        // Commit point: from here on nothing fails.
        self.head = head.wrapping_add(1);
        if meta.outside || self.head.wrapping_sub(self.published) >= PUBLISH_EVERY {
            self.publish_head(memory);
        }
        Ok((header, len_bytes))
    }

    /// Tells the producer what has been taken. Called by itself every few messages and by the
    /// user of the lane when it turns quiet. Returns whether anything was new.
    #[inline]
    pub fn publish_head(&mut self, memory: &impl Memory) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        // E2 consume, store half. Release: our copies out of the slots before this head are done
        // before the producer may overwrite them. Load half: `Producer::look_at_head`.
        memory.store(self.place.head(), self.head, Release);
        true
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
