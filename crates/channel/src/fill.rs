//! A sender says how far it has filled a block with a long message, so that its receiver copies the bytes while more of them come.
//!
//! All of it is hints. The message that follows names the fill by which its bytes were written, and a fill's bytes are written
//! once: what was copied under that name is the message's, up to where the fill had come. Where nobody looked, or the words had become
//! another fill's, the receiver copies the block as if nothing had been said.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::{Side, lane};
use handfast_layout::loan::fill;
use handfast_region::Memory;

/// A block that is being filled. Where a peer says so, claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Number of the fill among all of its sender's on this link, not zero.
    pub serial: u32,
    /// The reply slot whose answer it is, plus one; zero for a message of the lane.
    pub answers: u32,
    /// The sender's number for the arena.
    pub arena: u32,
    /// Which block of it.
    pub block: u32,
    /// How long the message is.
    pub len_bytes: u32,
}

/// Where a sender says it. One fill at a time.
#[derive(Clone, Copy, Debug)]
pub struct Place(usize);

impl Place {
    /// The words of lane `lane` of the sender's side.
    ///
    /// # Panics
    /// If there is no such lane.
    #[must_use]
    pub const fn of(side: Side, lane: u32) -> Self {
        Self(side.lane(lane) + lane::FILL)
    }

    /// Offsets of all words, for models.
    #[must_use]
    pub const fn words(self) -> [usize; 6] {
        [
            self.0 + fill::SERIAL,
            self.0 + fill::ANSWERS,
            self.0 + fill::ARENA,
            self.0 + fill::BLOCK,
            self.0 + fill::LEN,
            self.0 + fill::REACHED,
        ]
    }

    /// Sender: fills a block from now on, under a number that no other fill has had. Nothing is there yet.
    pub fn begin(self, memory: &impl Memory, filling: Filling) {
        let about = [
            filling.answers,
            filling.arena,
            filling.block,
            filling.len_bytes,
            0,
        ];
        // Relaxed: published by the serial (E22).
        memory.store_words(self.0 + fill::ANSWERS, about);
        // E22 fill, store half. Release: the count of bytes above, too. Load half: `look`.
        memory.store(self.0 + fill::SERIAL, filling.serial, Release);
    }

    /// Sender: so many bytes are there.
    pub fn reach(self, memory: &impl Memory, len_bytes: u32) {
        // E23 reached, store half. Release: the bytes come before. Load half: `reached`.
        memory.store(self.0 + fill::REACHED, len_bytes, Release);
    }

    /// Sender: fills no block. The message follows, or does not.
    pub fn end(self, memory: &impl Memory) {
        // Relaxed: a hint.
        memory.store(self.0 + fill::SERIAL, 0, Relaxed);
    }

    /// Receiver: the block that is being filled. Where one fill has followed another meanwhile, the result may be of both: no message comes
    /// of that.
    #[must_use]
    pub fn look(self, memory: &impl Memory) -> Option<Filling> {
        // E22 fill, load half. Acquire: the count of bytes is this fill's, or a later one's. Store half: `begin`.
        let serial = memory.load(self.0 + fill::SERIAL, Acquire);
        if serial == 0 {
            return None;
        }
        // Relaxed: as above.
        let [answers, arena, block, len_bytes] = memory.load_words(self.0 + fill::ANSWERS);
        Some(Filling {
            serial,
            answers,
            arena,
            block,
            len_bytes,
        })
    }

    /// Receiver, after [`Self::look`]: how many bytes are there.
    #[must_use]
    pub fn reached(self, memory: &impl Memory) -> u32 {
        // E23 reached, load half. Acquire: so many bytes may be copied. Store half: `reach`.
        memory.load(self.0 + fill::REACHED, Acquire)
    }

    /// Receiver: whether the fill goes on.
    #[must_use]
    pub fn goes_on(self, memory: &impl Memory, serial: u32) -> bool {
        // Relaxed: a hint.
        memory.load(self.0 + fill::SERIAL, Relaxed) == serial
    }
}

#[cfg(test)]
mod model;
