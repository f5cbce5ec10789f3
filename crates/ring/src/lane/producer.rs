//! The producing half: writes slots and blocks, publishes them, and learns what is free again.

use super::{Header, PREFETCH_AHEAD, Place, Refused, Unit};
use crate::arena::Arena;
use crate::{Fault, Rule};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::LINE;
use handfast_layout::link::{INLINE_BYTES, Kind, Meta, UNIT_BYTES, UNITS_MAX, reply_word, slot};
use handfast_region::{Bytes, Memory};

/// Bytes of a block that are fetched for the next message at most: more would be hundreds of lines.
const FETCHED_MAX: usize = 4096;
/// Messages outside of their slots between two looks at the head: a look is a line from the consumer, and another for its
/// next store there.
const BLOCKS_BETWEEN_LOOKS: usize = 4;

/// The producing half of a lane.
#[derive(Debug)]
pub struct Producer {
    place: Place,
    tail: u32,
    /// Private copy of the consumer's head; at most the truth.
    pub(super) head: u32,
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
        self.post_described(memory, header, (bytes, &[]))
    }

    /// As [`Self::post`], with units that describe the message's parts.
    ///
    /// # Errors
    /// As [`Self::post`].
    ///
    /// # Panics
    /// If `bytes` is longer than a message can be, or there are more units than it can have.
    #[inline(always)]
    pub fn post_described(
        &mut self,
        memory: &impl Memory,
        header: Header,
        (bytes, units): (impl Bytes, &[Unit]),
    ) -> Result<(), Refused> {
        let len_bytes = bytes.len_bytes();
        assert!(len_bytes <= handfast_layout::MESSAGE_BYTES_MAX && units.len() <= UNITS_MAX);
        self.make_room(memory)?;
        let at = self.place.slot(self.tail);
        let body_bytes = len_bytes + units.len() * UNIT_BYTES;
        let outside = body_bytes > INLINE_BYTES;
        let to = if outside {
            let offset = self.take_block(memory, body_bytes)?;
            // Relaxed: published by the sequence word (E1), as all below.
            memory.store(at + slot::ARENA, offset, Relaxed);
            let to = self.place.arena() + offset as usize;
            bytes.copy_many_to(memory, to);
            to
        } else {
            let to = at + slot::BYTES;
            bytes.copy_to(memory, to);
            to
        };
        match units {
            [] => {}
            [unit] => {
                // By halves, as it was made: a load of all of it would wait until both have left the store buffer.
                let (low, high) = unit.split_at(UNIT_BYTES / 2);
                memory.copy_in(to + len_bytes, low);
                memory.copy_in(to + len_bytes + UNIT_BYTES / 2, high);
            }
            units => memory.copy_in(to + len_bytes, units.as_flattened()),
        }
        let meta = Meta {
            len_bytes: len_bytes as u32,
            outside,
            kind: header.kind,
            units: units.len() as u32,
            cpu: header.cpu,
        };
        // In the order of their offsets. A stream waits for its stores: only what is looked at.
        if header.kind != Kind::Message {
            let reply = match header.kind {
                Kind::Call => reply_word(header.reply, header.cpu),
                _ => header.reply,
            };
            let words = [meta.pack(), header.port, reply, header.generation];
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

    /// After a post of bytes that do not fit their slot, and the fence behind it: fetches the lines that the next one as
    /// long will be written to. The consumer has read them last, so each store would wait for them. Not before the
    /// fence: they would come before the message's own lines.
    pub fn fetch_next(&self, memory: &impl Memory, len_bytes: usize) {
        let Some(offset) = self.arena.next(len_bytes) else {
            return;
        };
        let at = self.place.arena() + offset as usize;
        for line in (0..len_bytes.min(FETCHED_MAX)).step_by(LINE) {
            memory.prefetch_write(at + line);
        }
    }

    /// Now and then learns which blocks are free again, so that few take turns. For messages to which no reply comes
    /// here. An impossible head is found when there is no room.
    pub fn look_for_blocks(&mut self, memory: &impl Memory) {
        if self.arena.in_flight().is_multiple_of(BLOCKS_BETWEEN_LOOKS) {
            let _ = self.look_at_head(memory);
        }
    }

    /// Takes a block of the arena for the message about to be posted.
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

    /// Makes sure that the next slot is free.
    #[inline(always)]
    fn make_room(&mut self, memory: &impl Memory) -> Result<(), Refused> {
        if self.tail.wrapping_sub(self.head) < self.place.slots {
            return Ok(());
        }
        self.look_at_head(memory).map_err(Refused::Fault)?;
        if self.tail.wrapping_sub(self.head) < self.place.slots {
            return Ok(());
        }
        Err(Refused::Full)
    }

    /// [`Self::post`] for many with the same header, until one finds no room or is too long. Returns
    /// how many.
    #[inline]
    pub fn post_many(
        &mut self,
        memory: &impl Memory,
        header: Header,
        messages: &[impl AsRef<[u8]>],
    ) -> usize {
        let mut posted = 0;
        loop {
            posted += self.post_short(memory, header, &messages[posted..]);
            let Some(next) = messages.get(posted) else {
                return posted;
            };
            let bytes = next.as_ref();
            if bytes.len() > handfast_layout::MESSAGE_BYTES_MAX
                || self.post(memory, header, bytes).is_err()
            {
                return posted;
            }
            posted += 1;
        }
    }

    /// The fast path of [`Self::post_many`]: one-way messages that fit their slots, as many as there is known to be room for. Returns
    /// how many.
    ///
    /// Its loop stores to slots and nowhere else. Stores become visible in order, and one that finds its
    /// line at hand waits until every line before it has come from the consumer; stores that do not find theirs
    /// wait for all of them at the same time. Not inlined, so that registers suffice.
    #[inline(never)]
    fn post_short(
        &mut self,
        memory: &impl Memory,
        header: Header,
        messages: &[impl AsRef<[u8]>],
    ) -> usize {
        if header.kind != Kind::Message {
            return 0;
        }
        let meta = Meta {
            len_bytes: 0,
            outside: false,
            kind: header.kind,
            units: 0,
            cpu: header.cpu,
        };
        let (meta, port, place) = (meta.pack(), header.port, self.place);
        let head = self.head;
        let room = place.slots.wrapping_sub(self.tail.wrapping_sub(head));
        let messages = messages.get(..room as usize).unwrap_or(messages);
        let mut own = Posting {
            tail: self.tail,
            producer: self,
        };
        let first = own.tail;
        for bytes in messages {
            let bytes = bytes.as_ref();
            if bytes.len() > INLINE_BYTES {
                break;
            }
            let ahead = own.tail.wrapping_add(PREFETCH_AHEAD);
            if ahead.wrapping_sub(head) < place.slots {
                // The consumer has done with that line; the processor has few stores under way.
                memory.prefetch_write(place.slot(ahead));
            }
            let at = place.slot(own.tail);
            memory.copy_in(at + slot::BYTES, bytes);
            // Relaxed: published by the sequence word (E1), as the bytes.
            memory.store_words(at + slot::META, [meta | bytes.len() as u32, port]);
            let tail = own.tail.wrapping_add(1);
            // E1 publish, store half. As in `post_described`.
            memory.store(at + slot::SEQUENCE, tail, Release);
            own.tail = tail;
        }
        own.tail.wrapping_sub(first) as usize
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

    /// Whether a message of `len_bytes` bytes, units included, would be accepted now, with a fresh
    /// look at the consumer's head.
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

    /// Whether all that was posted has been received, be it by a process that passes it on.
    #[must_use]
    pub fn is_taken(&self, memory: &impl Memory) -> bool {
        // Acquire: as in `has_arrived`.
        memory.load(self.place.head(), Acquire) == self.tail
    }

    /// Whether all that was posted has been received by whom it was for. A peer that says what is not so has its own
    /// messages overtaken.
    #[must_use]
    pub fn has_arrived(&self, memory: &impl Memory) -> bool {
        // E2 consume, load half. Acquire: what the consumer has said of these messages before this head is seen below.
        // Store half: `Consumer::publish_head`.
        let head = memory.load(self.place.head(), Acquire);
        // Relaxed: as above.
        head == self.tail && memory.load(self.place.passed_on(), Relaxed) == 0
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

/// A producer while it posts many: its position is in a register, and put back also when what gives the
/// messages panics.
struct Posting<'a> {
    tail: u32,
    producer: &'a mut Producer,
}

impl Drop for Posting<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.producer.tail = self.tail;
    }
}
