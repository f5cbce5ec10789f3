//! A ring of bytes with a single writer and a single reader, without messages: one direction of a stream socket (paper 001, section 2.2).
//!
//! The bytes come first, then the count that publishes them, and never the other way round. Room comes back in the same way. Either end keeps its own position
//! for itself: what the peer writes there has no effect, and what it writes into its own count is checked.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::Side;
use handfast_layout::stream::{self, RING_BYTES, State, direction};
use handfast_proto::streams::{Broken, Seen};
use handfast_region::Memory;

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

    /// Connector, of the direction that it writes: it has mapped the region.
    pub fn note_mapped(self, memory: &impl Memory) {
        // Relaxed: whoever stores it has done so.
        memory.store(self.word(direction::MAPPED), 1, Relaxed);
    }

    /// Acceptor, of the connector's direction: whether that has been said.
    #[must_use]
    pub fn is_mapped(self, memory: &impl Memory) -> bool {
        // Relaxed: nothing else is published by it.
        memory.load(self.word(direction::MAPPED), Relaxed) != 0
    }

    /// Reader: takes no more.
    pub fn close(self, memory: &impl Memory) {
        // Relaxed: a flag, as `Writer::is_closed`.
        memory.store(self.word(direction::CLOSED), 1, Relaxed);
    }

    const fn word(self, word: usize) -> usize {
        self.words + word
    }

    fn state(self, memory: &impl Memory) -> Result<State, Broken> {
        // E26 turned, E27 left, load half. Acquire: where the writer turned, its last count, and the reader's. Store half: `Place::exchange`.
        State::of(memory.load(self.word(direction::STATE), Acquire)).ok_or(Broken)
    }

    /// Changes the state, if it is one of these; returns what it is then. The peer may change it at the same time: one of the two does. The states are in
    /// the order in which they come.
    fn exchange(self, memory: &impl Memory, from: &[State], to: State) -> Result<State, Broken> {
        let mut found = to;
        for from in from {
            // E26 turned, E27 left, store half: all that this end has written comes before. Load half: `Place::state`. No load before it: loom
            // would not try the exchanges that the peer's load came before.
            match memory.compare_exchange(self.word(direction::STATE), *from as u32, to as u32) {
                Ok(_) => return Ok(to),
                Err(other) => found = State::of(other).ok_or(Broken)?,
            }
        }
        Ok(found)
    }

    /// Copies bytes out from a position on, of which so many are there. Returns how many.
    fn copy_out(self, memory: &impl Memory, (from, there): (u32, usize), into: &mut [u8]) -> usize {
        let len_bytes = there.min(into.len());
        let mut rest = &mut into[..len_bytes];
        for (at, len) in self.runs(from, len_bytes as u32) {
            if len > 0 {
                let (run, after) = rest.split_at_mut(len);
                memory.copy_out(at, run);
                rest = after;
            }
        }
        len_bytes
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

    /// Turns from the kernel to the ring, after so many bytes, unless the reader has left. Returns the state then.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn begin(&self, memory: &impl Memory, from: u64) -> Result<State, Broken> {
        let words = [from as u32, (from >> 32) as u32];
        // Relaxed: published by the state (E26).
        memory.store_words(self.at.word(direction::FROM), words);
        self.at.exchange(memory, &[State::Kernel], State::Ring)
    }

    /// Writes no more, unless the reader has left: then the kernel must be given the bytes that were not taken. Returns the state then.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn end(&self, memory: &impl Memory) -> Result<State, Broken> {
        self.at.exchange(memory, &[State::Ring], State::Ended)
    }

    /// Leaves the ring, unless the reader has. Returns the state then.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn back(&self, memory: &impl Memory) -> Result<State, Broken> {
        self.at.exchange(memory, &[State::Ring], State::Back)
    }

    /// Which way the bytes go: the reader may have left. After a fence that follows [`Self::put`] either this says so, or the reader finds the bytes when it leaves
    /// (E28).
    ///
    /// # Errors
    /// [`Broken`].
    pub fn state(&self, memory: &impl Memory) -> Result<State, Broken> {
        self.at.state(memory)
    }

    /// How many bytes the reader has not taken.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn unread(&mut self, memory: &impl Memory) -> Result<usize, Broken> {
        Ok(self.at.len_bytes as usize - self.look(memory)?)
    }

    /// Copies out bytes that the reader had not taken when it was last looked, but for the first ones. Returns how many.
    pub fn copy_again(&self, memory: &impl Memory, but: usize, into: &mut [u8]) -> usize {
        let from = self.head.wrapping_add(but as u32);
        let there = (self.tail.wrapping_sub(self.head) as usize).saturating_sub(but);
        self.at.copy_out(memory, (from, there), into)
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

    /// One look: the state first, and then the rest, which an end that left the ring has published by it.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn seen(&mut self, memory: &impl Memory) -> Result<Seen, Broken> {
        let state = self.at.state(memory)?;
        let [low, high] = memory.load_words(self.at.word(direction::FROM));
        Ok(Seen {
            state,
            from: u64::from(high) << 32 | u64::from(low),
            unread: self.look(memory)?,
        })
    }

    /// Whether the writer goes on another way than through the kernel.
    #[must_use]
    pub fn has_turned(&self, memory: &impl Memory) -> bool {
        self.at.state(memory) != Ok(State::Kernel)
    }

    /// Leaves the ring, unless the writer has. Returns what is to be seen then.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn leave(&mut self, memory: &impl Memory) -> Result<Seen, Broken> {
        self.at
            .exchange(memory, &[State::Kernel, State::Ring], State::Left)?;
        // E28 left or unread, fence of the reader. Fence of the writer: between `Writer::put` and `Writer::state`.
        memory.fence();
        self.seen(memory)
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
        self.at.copy_out(memory, (self.head, there), into)
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
