//! Blocks of arenas that are lent with messages: what is said about arenas over the control socket, ahead
//! of the messages that name them. The part that names a block is [`Part::Loan`](crate::part::Part::Loan).
//!
//! ```text
//! arena:  32, 1 | zero, 3 | number, 4 | blocks, 4 | zero, 4 | length of a block in bytes, 8
//! ended:  33, 1 | zero, 3 | number, 4 | how many of its blocks were lent in all, 4
//! ```
//!
//! The first has the descriptor of the arena's file with it. An arena's number is its place in its owner's
//! table, in 8 bits, and a generation.

use crate::{LINE, PAGE};

/// Blocks that one process may have lent to another at once. Each has a word of the link's region, by
/// which it is given back.
pub const LOANS: u32 = 256;
/// Arenas of one process that another may know at once: each is a mapping there.
pub const ARENAS: u32 = 16;
/// Most blocks of an arena.
pub const BLOCKS_MAX: u32 = 65_536;
/// Longest arena, in bytes: its offsets fit wherever its blocks are counted.
pub const ARENA_BYTES_MAX: u64 = 1 << 40;

/// First byte of what is said about a new arena.
pub(crate) const ARENA: u8 = 32;
/// First byte of what is said about one that has ended.
pub(crate) const ARENA_ENDED: u8 = 33;
/// Bytes of the first.
const ARENA_BYTES: usize = 24;
/// Bytes of the second.
const ARENA_ENDED_BYTES: usize = 12;

/// The place of an arena in its owner's table, which is part of its number.
#[must_use]
pub const fn place_of(number: u32) -> u32 {
    number & 0xff
}

/// The number of the next arena at the place of this one.
#[must_use]
pub const fn next_number(number: u32) -> u32 {
    number.wrapping_add(0x100)
}

/// The blocks of an arena: equally long, one behind the other from the beginning of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    blocks: u32,
    block_bytes: u64,
}

/// Word offsets, from [`lane::FILL`](crate::link::lane::FILL) on, of what the caller says about a block that it fills with a long message, before the message is
/// sent. All words are hints.
pub mod fill {
    /// Number of the fill among all of this caller's; zero while there is none. The publishing word.
    pub const SERIAL: usize = 0;
    /// For an answer, the number of its reply slot, plus one; zero for a message of the lane.
    pub const ANSWERS: usize = 4;
    /// The caller's number for the arena.
    pub const ARENA: usize = 8;
    /// Which block of it.
    pub const BLOCK: usize = 12;
    /// How long the message is.
    pub const LEN: usize = 16;
    /// How many of its bytes are there.
    pub const REACHED: usize = 20;
    /// Bytes of all words.
    pub const BYTES_ALL: usize = 24;
}

/// A block that is lent with a message, as the message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentBlock {
    /// The sender's number for the arena ([`Told`]).
    pub arena: u32,
    /// Which block of it.
    pub block: u32,
    /// Which of the loans of the link: where it is given back.
    pub loan: u32,
    /// The generation of the loan, with which it is given back.
    pub generation: u32,
    /// How many bytes of the block.
    pub len_bytes: u64,
    /// For the bytes of a message: the number of the fill that has written them ([`fill`]), if it was said. Zero
    /// otherwise.
    pub fill: u32,
}

/// A statement about arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// There is one with this number from now on.
    New {
        /// Its place is below [`ARENAS`].
        number: u32,
        /// Its blocks.
        geometry: Geometry,
    },
    /// None of its blocks will be lent any more.
    Ended {
        /// Likewise.
        number: u32,
        /// How many loans of it there were in all, modulo 2^32.
        lent: u32,
    },
}

impl Geometry {
    /// `blocks` blocks of `block_bytes` bytes; `None` when there are none, or more than fit.
    #[must_use]
    pub const fn new(blocks: u32, block_bytes: u64) -> Option<Self> {
        let is_whole = block_bytes > 0 && block_bytes.is_multiple_of(LINE as u64);
        if blocks == 0 || blocks > BLOCKS_MAX || !is_whole {
            return None;
        }
        match block_bytes.checked_mul(blocks as u64) {
            Some(len_bytes) if len_bytes <= ARENA_BYTES_MAX => Some(Self {
                blocks,
                block_bytes,
            }),
            _ => None,
        }
    }

    /// How many blocks.
    #[must_use]
    pub const fn blocks(self) -> u32 {
        self.blocks
    }

    /// Length of each.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        self.block_bytes as usize
    }

    /// Length of the file: whole pages.
    #[must_use]
    pub const fn file_bytes(self) -> usize {
        let len_bytes = self.block_bytes as usize * self.blocks as usize;
        (len_bytes + PAGE - 1) & !(PAGE - 1)
    }

    /// Where the first `len_bytes` bytes of a block begin in the file; `None` when there is no such block or
    /// it is shorter.
    #[must_use]
    pub const fn at(self, block: u32, len_bytes: u64) -> Option<usize> {
        if block >= self.blocks || len_bytes > self.block_bytes {
            return None;
        }
        Some(block as usize * self.block_bytes as usize)
    }
}

impl Told {
    /// The bytes to send, and how many of them.
    #[must_use]
    pub(crate) fn to_bytes(self) -> ([u8; ARENA_BYTES], usize) {
        let mut bytes = [0; ARENA_BYTES];
        let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
        let len_bytes = match self {
            Self::New { number, geometry } => {
                put(0, &[ARENA]);
                put(4, &number.to_le_bytes());
                put(8, &geometry.blocks.to_le_bytes());
                put(16, &geometry.block_bytes.to_le_bytes());
                ARENA_BYTES
            }
            Self::Ended { number, lent } => {
                put(0, &[ARENA_ENDED]);
                put(4, &number.to_le_bytes());
                put(8, &lent.to_le_bytes());
                ARENA_ENDED_BYTES
            }
        };
        (bytes, len_bytes)
    }

    /// The statement of a peer; `None` for bytes that say something else.
    #[must_use]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let number = word(4).filter(|number| place_of(*number) < ARENAS)?;
        match (*bytes.get(..4)?.first_chunk()?, bytes.len()) {
            ([ARENA, 0, 0, 0], ARENA_BYTES) if word(12) == Some(0) => {
                let block_bytes = u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
                let geometry = Geometry::new(word(8)?, block_bytes)?;
                Some(Self::New { number, geometry })
            }
            ([ARENA_ENDED, 0, 0, 0], ARENA_ENDED_BYTES) => {
                let lent = word(8)?;
                Some(Self::Ended { number, lent })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_one_behind_the_other_in_whole_pages() {
        let geometry = Geometry::new(3, 8256).unwrap();
        assert_eq!(geometry.file_bytes(), 7 * PAGE);
        assert_eq!(geometry.at(0, 0), Some(0));
        assert_eq!(geometry.at(2, 8256), Some(16_512));
        assert_eq!(geometry.at(3, 0), None);
        assert_eq!(geometry.at(2, 8257), None);
        assert_eq!(geometry.at(u32::MAX, u64::MAX), None);
    }

    #[test]
    fn what_cannot_be_an_arena_is_none() {
        for (blocks, block_bytes) in [
            (0, 64),
            (1, 0),
            (1, 63),
            (BLOCKS_MAX + 1, 64),
            (1, ARENA_BYTES_MAX + 64),
            (BLOCKS_MAX, u64::MAX - 63),
        ] {
            assert_eq!(Geometry::new(blocks, block_bytes), None);
        }
        assert!(Geometry::new(1, ARENA_BYTES_MAX).is_some());
    }

    #[test]
    fn what_is_said_about_arenas_comes_back_and_what_is_not_is_refused() {
        let geometry = Geometry::new(7, 4096).unwrap();
        let new = Told::New {
            number: next_number(ARENAS - 1),
            geometry,
        };
        let ended = Told::Ended {
            number: 0,
            lent: u32::MAX,
        };
        for told in [new, ended] {
            let (bytes, len_bytes) = told.to_bytes();
            assert_eq!(Told::parse(&bytes[..len_bytes]), Some(told));
            assert_eq!(Told::parse(&bytes[..len_bytes - 1]), None);
            for at in [0, 1, 3, 4] {
                let mut bytes = bytes;
                bytes[at] ^= 0x40;
                assert_eq!(Told::parse(&bytes[..len_bytes]), None, "byte {at}");
            }
        }
        let vector = [
            32, 0, 0, 0, 15, 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(new.to_bytes().0, vector);
        assert_eq!(Told::parse(&[]), None);
    }
}
