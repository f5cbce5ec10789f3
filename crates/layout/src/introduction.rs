//! What is said about introductions in the lanes, in order with the messages (design D9).
//!
//! ```text
//! provide:   1, 4 | zero, 4  | number, 8 | incarnation of the recipient, 16  | its process number, 4
//! claim:     2, 4 | word, 4  | number, 8 | incarnation of the introducer, 16 | its process number, 4
//! attenuate: 3, 4 | word, 4  | mask, 8   | zero, 20
//! ```
//!
//! All go to the exporter, the first and the last by a right to what is provided or attenuated. Process numbers are as the sender sees
//! them: the kernel has told it, while an incarnation is what a process says of itself.
//!
//! The last two come with a reply right ([`passed_word`](crate::link::passed_word)), and are answered
//! with the handle of what the word stands for, 4 bytes.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
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
        /// Who has provided it.
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
}

/// A process: its incarnation, and its process number as who names it sees it.
pub type Process = [u8; 20];

/// The process with this incarnation and process number.
#[must_use]
pub fn process(incarnation: [u8; 16], pid: u32) -> Process {
    let mut process = [0; 20];
    process[..16].copy_from_slice(&incarnation);
    process[16..].copy_from_slice(&pid.to_le_bytes());
    process
}

/// Bytes of each.
pub const SAID_BYTES: usize = 36;

const PROVIDE: u32 = 1;
const CLAIM: u32 = 2;
const ATTENUATE: u32 = 3;

impl Said {
    /// The bytes of the message.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SAID_BYTES] {
        let (kind, word, number, process) = match self {
            Self::Provide { number, recipient } => (PROVIDE, 0, number, recipient),
            Self::Claim {
                word,
                number,
                introducer,
            } => (CLAIM, word, number, introducer),
            Self::Attenuate { word, mask } => (ATTENUATE, word, mask.into(), [0; 20]),
        };
        let mut bytes = [0; SAID_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..].copy_from_slice(&process);
        bytes
    }

    /// What a peer has said; `None` for what this layout does not know.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SAID_BYTES] = bytes.try_into().ok()?;
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
            ATTENUATE if is_word && process == [0; 20] => {
                let mask = number.try_into().ok()?;
                Some(Self::Attenuate { word, mask })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_back_and_what_is_unknown_is_refused() {
        let all = [
            Said::Attenuate {
                word: 5,
                mask: 0x8001,
            },
            Said::Provide {
                number: 1 << 40,
                recipient: process([7; 16], 3),
            },
            Said::Claim {
                word: 5,
                number: 9,
                introducer: process([8; 16], 4),
            },
        ];
        for said in all {
            let bytes = said.to_bytes();
            assert_eq!(Said::parse(&bytes), Some(said));
            assert_eq!(Said::parse(&bytes[..35]), None);
            for at in [0, 1, 3] {
                let mut bytes = bytes;
                bytes[at] ^= 0x40;
                assert_eq!(Said::parse(&bytes), None);
            }
        }
        let handle = Said::Claim {
            word: 1 << 31,
            number: 9,
            introducer: process([8; 16], 4),
        };
        assert_eq!(Said::parse(&handle.to_bytes()), None);
    }
}
