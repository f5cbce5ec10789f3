//! Parts of a message beside its bytes: what describes them, in units of 16 bytes.
//!
//! ```text
//! kind 1, 2 | handle or port number, 4 | port number of a right of the sender, 4 | zero, 4
//! kind 3    | party and slot, 4          | generation, 4                         | zero, 4
//! ```

use crate::bell::RECEIVERS;
use crate::link::UNIT_BYTES;

/// A part of a message. The sender writes it: a claim, until the receiver has looked it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A right to a port of the sender: the handle in the sender's table, and the number of the
    /// port, which says who receives from it.
    OfSender {
        /// In the sender's export table.
        handle: u32,
        /// At the sender.
        port: u32,
    },
    /// A right to a port of the receiver, by what the receiver once sent for it: a handle, or the
    /// port's number.
    OfReceiver {
        /// In the receiver's export table.
        handle: u32,
    },
    /// A reply right: the party it answers to and the slot there
    /// ([`passed_word`](crate::link::passed_word)), and the slot's generation.
    Reply {
        /// Party and slot.
        word: u32,
        /// Of the slot.
        generation: u32,
    },
}

const OF_SENDER: u32 = 1;
const OF_RECEIVER: u32 = 2;
const REPLY: u32 = 3;

impl Part {
    /// What describes it.
    #[must_use]
    pub fn to_unit(self) -> [u8; UNIT_BYTES] {
        let words = match self {
            Self::OfSender { handle, port } => [OF_SENDER, handle, port, 0],
            Self::OfReceiver { handle } => [OF_RECEIVER, handle, 0, 0],
            Self::Reply { word, generation } => [REPLY, word, generation, 0],
        };
        let mut unit = [0; UNIT_BYTES];
        for (to, word) in unit.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        unit
    }

    /// What a peer described; `None` for what this layout does not know.
    #[must_use]
    pub fn parse(unit: &[u8; UNIT_BYTES]) -> Option<Self> {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(unit.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        match words {
            [OF_SENDER, handle, port, 0] if receiver_of(port) < RECEIVERS => {
                Some(Self::OfSender { handle, port })
            }
            [OF_RECEIVER, handle, 0, 0] => Some(Self::OfReceiver { handle }),
            [REPLY, word, generation, 0] => Some(Self::Reply { word, generation }),
            _ => None,
        }
    }
}

/// The bit that tells a handle of an export table from a port's own number.
pub const IS_HANDLE: u32 = 1 << 31;

/// Whether what names a port is a handle.
#[inline(always)]
#[must_use]
pub const fn is_handle(word: u32) -> bool {
    word & IS_HANDLE != 0
}

/// The receiver of a port, which is part of its number.
#[must_use]
pub const fn receiver_of(port: u32) -> u32 {
    port & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_what_is_none_is_refused() {
        let of_sender = |port| Part::OfSender {
            handle: 0x8000_0007,
            port,
        };
        let reply = Part::Reply {
            word: 0x3_0007,
            generation: 5,
        };
        let parts = [of_sender(0x1_2303), Part::OfReceiver { handle: 9 }, reply];
        for part in parts {
            assert_eq!(Part::parse(&part.to_unit()), Some(part));
            for at in [0, 1, 3, 12, 15] {
                let mut unit = part.to_unit();
                unit[at] ^= 0x40;
                assert_eq!(Part::parse(&unit), None, "byte {at} of {part:?}");
            }
        }
        assert_eq!(Part::parse(&of_sender(RECEIVERS).to_unit()), None);
    }
}
