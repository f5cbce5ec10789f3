//! Statements about introductions in the lanes, in order with the messages (`docs/decisions/0009-introductions.md`).
//!
//! ```text
//! provide:   1, 4 | zero, 4  | number, 8 | incarnation of the recipient, 16  | its process number, 4
//! claim:     2, 4 | word, 4  | number, 8 | incarnation of the introducer, 16 | its process number, 4
//! mint:      3, 4 | word, 4  | badge, 8  | permissions, 2 | send-once, 1 | zero, 17
//! mark:      4, 4 | lanes, 4 | number, 8 | zero, 20
//! told:      5, 4 | zero, 4  | number, 8 | zero, 20
//! attenuate: 6, 4 | word, 4  | mask, 8   | zero, 20
//! ```
//!
//! The first two and the last go to the exporter, the first of them and the last by a right to what is provided or
//! attenuated. The others are about
//! a port that has moved: `mint` and `told` go from its old home to its new one, `mark` from a sender to
//! the old home, by the right that it will not use there any more. Process numbers are as the sender sees
//! them: the kernel has told it, while an incarnation is what a process says of itself.
//!
//! A claim, a mint and an attenuation come with a reply right ([`passed_word`](crate::link::passed_word)), and are
//! answered with the handle of what the word stands for, 4 bytes: [`ClaimAnswer`].

use crate::hello::Process;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneControl {
    /// The sender gives the right that this message comes through to another process.
    Provide {
        /// The sender's number for it.
        number: u64,
        /// Whom it is for.
        recipient: Process,
    },
    /// The sender claims what was provided to it, and names it by this word from now on.
    Claim {
        /// The sender's; no handle.
        word: u32,
        /// The introducer's number.
        number: u64,
        /// The process that has provided it.
        introducer: Process,
    },
    /// The sender names the right that this was said by, with no permissions but those in the mask, by this word from
    /// now on.
    Attenuate {
        /// The sender's; no handle.
        word: u32,
        /// Bits.
        mask: u16,
    },
    /// The sender, which has given the port away, names a right to it by this word from now on.
    Mint {
        /// The sender's; no handle.
        word: u32,
        /// The badge of the right.
        badge: u64,
        /// Likewise.
        permissions: u16,
        /// Whether it is a send-once right.
        is_once: bool,
    },
    /// The sender sends nothing more in this lane by the right that this message comes through.
    Mark {
        /// In how many lanes it says so.
        lanes: u32,
        /// The old home's number for the right that it gets instead.
        number: u64,
    },
    /// A port of a third process is gone whose end the port was to be told of.
    Told {
        /// Chosen by who asked.
        number: u64,
    },
}

/// Bytes of each.
pub const LANE_CONTROL_BYTES: usize = 36;

const PROVIDE: u32 = 1;
const CLAIM: u32 = 2;
const MINT: u32 = 3;
const MARK: u32 = 4;
const TOLD: u32 = 5;
const ATTENUATE: u32 = 6;
const NOBODY: Process = [0; 20];

impl LaneControl {
    /// The bytes to send.
    #[must_use]
    pub fn encode(self) -> [u8; LANE_CONTROL_BYTES] {
        let (kind, word, number, process) = match self {
            Self::Provide { number, recipient } => (PROVIDE, 0, number, recipient),
            Self::Claim {
                word,
                number,
                introducer,
            } => (CLAIM, word, number, introducer),
            Self::Attenuate { word, mask } => (ATTENUATE, word, mask.into(), [0; 20]),
            Self::Mint {
                word,
                badge,
                permissions,
                is_once,
            } => {
                let mut last = NOBODY;
                last[..2].copy_from_slice(&permissions.to_le_bytes());
                last[2] = is_once.into();
                (MINT, word, badge, last)
            }
            Self::Mark { lanes, number } => (MARK, lanes, number, NOBODY),
            Self::Told { number } => (TOLD, 0, number, NOBODY),
        };
        let mut bytes = [0; LANE_CONTROL_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..].copy_from_slice(&process);
        bytes
    }

    /// The statement of a peer; `None` for bytes that this layout does not know.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LANE_CONTROL_BYTES] = bytes.try_into().ok()?;
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        let (word, rest) = rest.split_first_chunk::<4>()?;
        let (number, process) = rest.split_first_chunk::<8>()?;
        let (kind, word) = (u32::from_le_bytes(*kind), u32::from_le_bytes(*word));
        let number = u64::from_le_bytes(*number);
        let process = process.try_into().ok()?;
        let is_word = word != 0 && !crate::part::is_handle(word);
        match kind {
            PROVIDE if word == 0 => Some(Self::Provide {
                number,
                recipient: process,
            }),
            CLAIM if is_word => Some(Self::Claim {
                word,
                number,
                introducer: process,
            }),
            MINT if is_word && process[2] <= 1 && process[3..] == NOBODY[3..] => Some(Self::Mint {
                word,
                badge: number,
                permissions: u16::from_le_bytes([process[0], process[1]]),
                is_once: process[2] == 1,
            }),
            _ if process != NOBODY => None,
            ATTENUATE if is_word => {
                let mask = number.try_into().ok()?;
                Some(Self::Attenuate { word, mask })
            }
            MARK if word != 0 && word <= crate::link::LANES => Some(Self::Mark {
                lanes: word,
                number,
            }),
            TOLD if word == 0 => Some(Self::Told { number }),
            _ => None,
        }
    }
}

/// The answer to a claim, a mint or an attenuation that has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimAnswer {
    /// The exporter's handle for the right that the word stands for.
    pub handle: u32,
}

impl ClaimAnswer {
    /// The bytes to send.
    #[must_use]
    pub const fn encode(self) -> [u8; 4] {
        self.handle.to_le_bytes()
    }

    /// The answer of a peer; `None` for bytes that are no handle.
    #[must_use]
    pub const fn parse(bytes: [u8; 4]) -> Option<Self> {
        let handle = u32::from_le_bytes(bytes);
        match crate::part::is_handle(handle) {
            true => Some(Self { handle }),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use crate::hello::process;

    /// One of each kind.
    fn all() -> [LaneControl; 6] {
        [
            LaneControl::Attenuate {
                word: 5,
                mask: 0x8001,
            },
            LaneControl::Provide {
                number: 1 << 40,
                recipient: process([7; 16], 3),
            },
            LaneControl::Claim {
                word: 5,
                number: 9,
                introducer: process([8; 16], 4),
            },
            LaneControl::Mint {
                word: 5,
                badge: u64::MAX,
                permissions: 0x8001,
                is_once: true,
            },
            LaneControl::Mark {
                lanes: 16,
                number: 9,
            },
            LaneControl::Told { number: 1 << 63 },
        ]
    }

    /// `spec/lane-control.txt`: what each says, and its bytes.
    #[test]
    fn each_has_the_bytes_of_the_specification() {
        let said = all().map(|said| (format!("{said:?}"), said.encode().to_vec()));
        golden::compare(include_str!("../../../spec/lane-control.txt"), said);
    }

    #[test]
    fn what_is_said_comes_back_and_what_is_unknown_is_refused() {
        for said in all() {
            let bytes = said.encode();
            assert_eq!(LaneControl::parse(&bytes), Some(said));
            assert_eq!(LaneControl::parse(&bytes[..35]), None);
            for at in [0, 1, 3] {
                let mut bytes = bytes;
                bytes[at] ^= 0x40;
                assert_eq!(LaneControl::parse(&bytes), None);
            }
        }
        let handle = LaneControl::Claim {
            word: 1 << 31,
            number: 9,
            introducer: process([8; 16], 4),
        };
        assert_eq!(LaneControl::parse(&handle.encode()), None);
    }

    #[test]
    fn the_answer_to_a_claim_is_a_handle() {
        let handle = crate::part::IS_HANDLE | 5;
        let bytes = ClaimAnswer { handle }.encode();
        assert_eq!(bytes, [5, 0, 0, 0x80]);
        assert_eq!(ClaimAnswer::parse(bytes), Some(ClaimAnswer { handle }));
        assert_eq!(ClaimAnswer::parse([5, 0, 0, 0]), None);
    }
}
