//! A ring of bytes with a single writer and a single reader, without messages: one direction of a stream socket (paper 001, section 2.2).
//!
//! The bytes come first, then the count that publishes them, and never the other way round. Room comes back in the same way. Either end keeps its own position
//! for itself: what the peer writes there has no effect, and what it writes into its own count is checked.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::Side;
use handfast_layout::stream::{self, RING_BYTES, direction, state};
use handfast_region::Memory;

/// The peer has written a count or a state that no honest peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Where a direction lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    words: usize,
    bytes: usize,
    len_bytes: u32,
}

impl Place {
    /// The direction that `end` writes.
    #[must_use]
    pub const fn of(end: Side) -> Self {
        Self {
            words: stream::words(end),
            bytes: stream::bytes(end),
            len_bytes: RING_BYTES as u32,
        }
    }

    /// The wait word of the thread that reads.
    #[must_use]
    pub const fn reader(self) -> usize {
        self.words + direction::READER
    }

    /// The wait word of the thread that writes.
    #[must_use]
    pub const fn writer(self) -> usize {
        self.words + direction::WRITER
    }

    /// The word with the writer's CPU, a hint.
    #[must_use]
    pub const fn writer_cpu(self) -> usize {
        self.words + direction::WRITER_CPU
    }

    /// The word with the reader's CPU, a hint.
    #[must_use]
    pub const fn reader_cpu(self) -> usize {
        self.words + direction::READER_CPU
    }

    /// Reader: takes no more.
    pub fn close(self, memory: &impl Memory) {
        // Relaxed: a flag, as `Writer::is_closed`.
        memory.store(self.word(direction::CLOSED), 1, Relaxed);
    }

    const fn word(self, word: usize) -> usize {
        self.words + word
    }

    /// The two runs of so many bytes from a position on: offset and length of each.
    const fn runs(self, position: u32, len_bytes: u32) -> [(usize, usize); 2] {
        let at = position & (self.len_bytes - 1);
        let first = match self.len_bytes - at {
            left if left < len_bytes => left,
            _ => len_bytes,
        };
        [
            (self.bytes + at as usize, first as usize),
            (self.bytes, (len_bytes - first) as usize),
        ]
    }
}

/// The end that writes.
#[derive(Debug)]
pub struct Writer {
    at: Place,
    tail: u32,
    /// The reader's count, as last seen.
    head: u32,
}

impl Writer {
    /// At an empty ring.
    #[must_use]
    pub const fn new(at: Place) -> Self {
        Self {
            at,
            tail: 0,
            head: 0,
        }
    }

    /// Turns from the kernel to the ring, after so many bytes.
    pub fn begin(&self, memory: &impl Memory, from: u64) {
        let words = [from as u32, (from >> 32) as u32];
        // Relaxed: published by the state (E26).
        memory.store_words(self.at.word(direction::FROM), words);
        // E26 turned, store half. Release: the number above. Load half: `Reader::begun`.
        memory.store(self.at.word(direction::STATE), state::RING, Release);
    }

    /// Writes no more.
    pub fn end(&self, memory: &impl Memory) {
        // E26 turned, store half. Release: the last count comes before. Load half: `Reader::has_ended`.
        memory.store(self.at.word(direction::STATE), state::ENDED, Release);
    }

    /// Whether the reader takes no more.
    #[must_use]
    pub fn is_closed(&self, memory: &impl Memory) -> bool {
        // Relaxed: a flag; what was written is lost in any case.
        memory.load(self.at.word(direction::CLOSED), Relaxed) != 0
    }

    /// How many bytes there is room for.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn room(&mut self, memory: &impl Memory) -> Result<usize, Broken> {
        let used = self.tail.wrapping_sub(self.head);
        if used < self.at.len_bytes {
            return Ok((self.at.len_bytes - used) as usize);
        }
        self.look(memory)
    }

    /// As [`Self::room`], by the reader's newest count.
    ///
    /// # Errors
    /// As there.
    pub fn look(&mut self, memory: &impl Memory) -> Result<usize, Broken> {
        // E25 room, load half. Acquire: the reader's copies are over. Store half: `Reader::taken`.
        let head = memory.load(self.at.word(direction::HEAD), Acquire);
        let used = self.tail.wrapping_sub(head);
        // Never back, and never past what was written.
        if used > self.tail.wrapping_sub(self.head) {
            return Err(Broken);
        }
        self.head = head;
        Ok((self.at.len_bytes - used) as usize)
    }

    /// Copies as many bytes in as there is room for, and publishes them. Returns how many.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn put(&mut self, memory: &impl Memory, bytes: &[u8]) -> Result<usize, Broken> {
        let mut room = self.room(memory)?;
        if room < bytes.len() {
            room = self.look(memory)?;
        }
        let len_bytes = bytes.len().min(room);
        let mut rest = &bytes[..len_bytes];
        for (at, len) in self.at.runs(self.tail, len_bytes as u32) {
            if len > 0 {
                let (run, after) = rest.split_at(len);
                memory.copy_many_in(at, run);
                rest = after;
            }
        }
        if len_bytes > 0 {
            self.tail = self.tail.wrapping_add(len_bytes as u32);
            // E24 bytes, store half. Release: the bytes come before. Load half: `Reader::look`.
            memory.store(self.at.word(direction::TAIL), self.tail, Release);
        }
        Ok(len_bytes)
    }
}

/// The end that reads.
#[derive(Debug)]
pub struct Reader {
    at: Place,
    head: u32,
    /// The writer's count, as last seen.
    tail: u32,
}

impl Reader {
    /// At an empty ring.
    #[must_use]
    pub const fn new(at: Place) -> Self {
        Self {
            at,
            head: 0,
            tail: 0,
        }
    }

    /// After how many bytes the writer has turned to the ring, once it has.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn begun(&self, memory: &impl Memory) -> Result<Option<u64>, Broken> {
        // E26 turned, load half. Acquire: the number that was stored before. Store half: `Writer::begin`.
        match memory.load(self.at.word(direction::STATE), Acquire) {
            state::KERNEL => Ok(None),
            state::RING | state::ENDED => {
                let [low, high] = memory.load_words(self.at.word(direction::FROM));
                Ok(Some(u64::from(high) << 32 | u64::from(low)))
            }
            _ => Err(Broken),
        }
    }

    /// Whether no more bytes come than are in the ring. To be asked before the last [`Self::look`].
    #[must_use]
    pub fn has_ended(&self, memory: &impl Memory) -> bool {
        // E26 turned, load half. Acquire: the last count. Store half: `Writer::end`.
        memory.load(self.at.word(direction::STATE), Acquire) == state::ENDED
    }

    /// How many bytes are there.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn look(&mut self, memory: &impl Memory) -> Result<usize, Broken> {
        // E24 bytes, load half. Acquire: the bytes. Store half: `Writer::put`.
        let tail = memory.load(self.at.word(direction::TAIL), Acquire);
        let there = tail.wrapping_sub(self.head);
        // Never back, and never more than there is room for.
        if there > self.at.len_bytes || there < self.tail.wrapping_sub(self.head) {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(there as usize)
    }

    /// Copies bytes out that are there, as many as `into` has room for, and does not take them. Returns how many.
    pub fn peek(&self, memory: &impl Memory, into: &mut [u8]) -> usize {
        let there = self.tail.wrapping_sub(self.head) as usize;
        let len_bytes = there.min(into.len());
        let mut rest = &mut into[..len_bytes];
        for (at, len) in self.at.runs(self.head, len_bytes as u32) {
            if len > 0 {
                let (run, after) = rest.split_at_mut(len);
                memory.copy_out(at, run);
                rest = after;
            }
        }
        len_bytes
    }

    /// Gives back the room of so many bytes that were there.
    ///
    /// # Panics
    /// If fewer are there.
    pub fn taken(&mut self, memory: &impl Memory, len_bytes: usize) {
        assert!(len_bytes <= self.tail.wrapping_sub(self.head) as usize);
        self.head = self.head.wrapping_add(len_bytes as u32);
        // E25 room, store half. Release: the copies come before. Load half: `Writer::look`.
        memory.store(self.at.word(direction::HEAD), self.head, Release);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
