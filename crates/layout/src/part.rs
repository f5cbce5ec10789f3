//! Parts of a message beside its bytes: what describes them, in units of 16 bytes.
//!
//! ```text
//! kind 1, 2 | handle, 4               | port number of a right of the sender, 4 | zero, 4
//! kind 3    | party and slot, 4          | generation, 4                         | zero, 4
//! kind 4    | handle of the vine, 4      | port number of the vine, 4            | port number, 4
//!           | incarnation of the exporter, 16
//!           | number of the provision, 8 | process number of the exporter, 4 | 1: keep it, 2: send-once, 4
//! kind 5    | number of the move, 4 | number of a descriptor, 4 | bytes of the name, 1 | zero, 2 | asks, 1
//!           | of a port with a name: device of its socket file, 8 | its inode, 8
//!           | the name, padded with zeros
//! kind 6    | port number, 4 | process number of the introducer, 4 | zero, 4
//!           | incarnation of the introducer, 16
//!           | number of the provision, 8 | zero, 8
//! kind 7    | number of the provision, 8 | zero, 4
//! kind 8, 9 | number of a descriptor, 4 | length of memory in bytes, 8
//! kind 10, 11 | number of the arena, 4  | block, 4                              | number of the loan, 4
//!           | generation of the loan, 4 | zero, 4                               | bytes lent, 8
//! kind 12   | handle, 4               | port number of a send-once right of the sender, 4 | zero, 4
//! kind 13   | number of the move, 4   | zero, 7 | asks, 1
//! ```

use crate::PARTS_MAX;
use crate::bell::RECEIVERS;
use crate::link::{PART_UNITS_MAX, UNIT_BYTES};
use crate::loan::LentBlock;
use crate::name::NAME_BYTES_MAX;

/// How a right to a third process's port goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThirdForm {
    /// It is described anew when it comes again.
    Plain = 0,
    /// The receiver is asked to keep it, so that it can be named again.
    Kept = 1,
    /// It is a send-once right, and does not come again.
    Once = 2,
}

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
    /// As [`Self::OfSender`], of a send-once right.
    Once {
        /// In the sender's export table.
        handle: u32,
        /// At the sender.
        port: u32,
    },
    /// A right to a port of the receiver, by what the receiver once sent for it.
    OfReceiver {
        /// In the receiver's export table.
        handle: u32,
    },
    /// A reply right: the party it answers to and the slot there
    /// ([`passed_word`](crate::link::passed_word)), and the slot's generation.
    Reply {
        /// Party and slot.
        word: u32,
        /// The generation of the slot.
        generation: u32,
    },
    /// A right to a port of a third process, the exporter, which the sender has told of it.
    Third {
        /// A right of the sender's, as [`Self::OfSender`], through which it is reached as well.
        vine: (u32, u32),
        /// At the exporter.
        port: u32,
        /// Which process that is.
        exporter: [u8; 16],
        /// The sender's number for its statement to the exporter.
        number: u64,
        /// The exporter's process number, as the sender sees it.
        pid: u32,
        /// How it goes.
        form: ThirdForm,
    },
    /// A right that the sender has provided before and the receiver keeps, by the sender's number for it.
    Again {
        /// The number of the provision.
        number: u64,
    },
    /// A right to a port of the receiver, which a third process, the introducer, has told it of: the sender
    /// passes on what was provided to it. In answers only.
    Home {
        /// At the receiver.
        port: u32,
        /// The process that has provided it.
        introducer: [u8; 16],
        /// Its process number, as the sender sees it.
        pid: u32,
        /// Its number for its statement to the receiver.
        number: u64,
    },
    /// The receive right of a port of the sender. [`Bound`] says what name the port has.
    Receive {
        /// The sender's number for the move.
        token: u32,
        /// The sender's number for the descriptor of the socket that listens at the name; zero without one.
        number: u32,
        /// Length of the name; zero without one.
        name_bytes: u8,
        /// Its receiver has asked to be told when there are no senders.
        asks: bool,
    },
    /// As [`Self::Receive`], of a port that shares a receiver, and comes to the receiver that its message comes to.
    Member {
        /// The sender's number for the move.
        token: u32,
        /// Its receiver has asked to be told when there are no senders.
        asks: bool,
    },
    /// A descriptor, which was sent before the message ([`Descriptors`]).
    Descriptor {
        /// The sender's number for it.
        number: u32,
    },
    /// Memory: a descriptor of a memory file that is sealed against every change.
    Memory {
        /// The sender's number for the descriptor.
        number: u32,
        /// The length of the file.
        len_bytes: u64,
    },
    /// A block of an arena of the sender's, lent until its receiver gives it back.
    Loan(LentBlock),
    /// The bytes of a message that are too many for a lane, lent likewise: before the parts, and there are no others.
    Bytes(LentBlock),
}

const OF_SENDER: u32 = 1;
const OF_RECEIVER: u32 = 2;
const REPLY: u32 = 3;
const THIRD: u32 = 4;
const RECEIVE: u32 = 5;
const HOME: u32 = 6;
const AGAIN: u32 = 7;

fn words(unit: &[u8; UNIT_BYTES]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(unit.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

fn unit(words: [u32; 4]) -> [u8; UNIT_BYTES] {
    let mut unit = [0; UNIT_BYTES];
    for (to, word) in unit.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    unit
}
const DESCRIPTOR: u32 = 8;
const MEMORY: u32 = 9;
const LOAN: u32 = 10;
const BYTES: u32 = 11;
const ONCE: u32 = 12;
const MEMBER: u32 = 13;

impl Part {
    /// The part's description: units, and how many there are. The units of [`Bound`] follow where there is a name.
    #[inline]
    #[must_use]
    pub fn to_units(self) -> ([[u8; UNIT_BYTES]; PART_UNITS_MAX], usize) {
        let mut units = [[0; UNIT_BYTES]; PART_UNITS_MAX];
        units[0] = unit(match self {
            Self::OfSender { handle, port } => [OF_SENDER, handle, port, 0],
            Self::Once { handle, port } => [ONCE, handle, port, 0],
            Self::OfReceiver { handle } => [OF_RECEIVER, handle, 0, 0],
            Self::Reply { word, generation } => [REPLY, word, generation, 0],
            Self::Third { vine, port, .. } => [THIRD, vine.0, vine.1, port],
            Self::Receive {
                token,
                number,
                name_bytes,
                asks,
            } => [
                RECEIVE,
                token,
                number,
                u32::from(asks) << 24 | u32::from(name_bytes),
            ],
            Self::Member { token, asks } => [MEMBER, token, 0, u32::from(asks) << 24],
            Self::Home { port, pid, .. } => [HOME, port, pid, 0],
            Self::Again { number } => [AGAIN, number as u32, (number >> 32) as u32, 0],
            Self::Descriptor { number } => [DESCRIPTOR, number, 0, 0],
            Self::Memory { number, len_bytes } => {
                [MEMORY, number, len_bytes as u32, (len_bytes >> 32) as u32]
            }
            Self::Loan(lent) => [LOAN, lent.arena, lent.block, lent.loan],
            Self::Bytes(lent) => [BYTES, lent.arena, lent.block, lent.loan],
        });
        if let Self::Loan(lent) | Self::Bytes(lent) = self {
            let [low, high] = [lent.len_bytes as u32, (lent.len_bytes >> 32) as u32];
            units[1] = unit([lent.generation, lent.fill, low, high]);
            return (units, 2);
        }
        if let Self::Third {
            exporter,
            number,
            pid,
            form,
            ..
        } = self
        {
            units[1] = exporter;
            units[2] = unit([number as u32, (number >> 32) as u32, pid, form as u32]);
            return (units, 3);
        }
        if let Self::Home {
            introducer, number, ..
        } = self
        {
            units[1] = introducer;
            units[2] = unit([number as u32, (number >> 32) as u32, 0, 0]);
            return (units, 3);
        }
        (units, 1)
    }

    /// The same, whose descriptor has this number.
    #[must_use]
    pub const fn with_number(self, number: u32) -> Self {
        match self {
            Self::Receive {
                token,
                name_bytes,
                asks,
                ..
            } => Self::Receive {
                token,
                number,
                name_bytes,
                asks,
            },
            Self::Descriptor { .. } => Self::Descriptor { number },
            Self::Memory { len_bytes, .. } => Self::Memory { number, len_bytes },
            other => other,
        }
    }

    /// The description of [`Self::OfSender`]; in registers, where the units of any part are memory.
    #[inline(always)]
    #[must_use]
    pub fn unit_of_sender(handle: u32, port: u32) -> [u8; UNIT_BYTES] {
        let low = u64::from(handle) << 32 | u64::from(OF_SENDER);
        (u128::from(port) << 64 | u128::from(low)).to_le_bytes()
    }

    /// Handle and port number of [`Self::OfSender`], if a peer described that.
    #[inline]
    #[must_use]
    pub fn of_sender(unit: &[u8; UNIT_BYTES]) -> Option<(u32, u32)> {
        match words(unit) {
            [OF_SENDER, handle, port, 0] if receiver_of(port) < RECEIVERS => Some((handle, port)),
            _ => None,
        }
    }

    /// The part that a peer described first in these units, and how many of them; `None` for a part this layout does
    /// not know.
    #[must_use]
    pub fn parse(units: &[[u8; UNIT_BYTES]]) -> Option<(Self, usize)> {
        let first = units.first()?;
        if let Some((handle, port)) = Self::of_sender(first) {
            return Some((Self::OfSender { handle, port }, 1));
        }
        let part = match words(first) {
            [ONCE, handle, port, 0] if receiver_of(port) < RECEIVERS => Self::Once { handle, port },
            [OF_RECEIVER, handle, 0, 0] => Self::OfReceiver { handle },
            [REPLY, word, generation, 0] => Self::Reply { word, generation },
            [THIRD, handle, vine, port]
                if receiver_of(vine) < RECEIVERS && receiver_of(port) < RECEIVERS =>
            {
                return Some((Self::third(units, (handle, vine), port)?, 3));
            }
            [AGAIN, low, high, 0] => Self::Again {
                number: long(low, high),
            },
            [HOME, port, pid, 0] if receiver_of(port) < RECEIVERS => {
                return Some((Self::home(units, port, pid)?, 3));
            }
            [RECEIVE, token, number, rest] if rest & 0xfeff_ff00 == 0 => {
                let (name_bytes, asks) = (rest as u8, rest >> 24 == 1);
                if usize::from(name_bytes) > NAME_BYTES_MAX || (name_bytes == 0 && number != 0) {
                    return None;
                }
                let part = Self::Receive {
                    token,
                    number,
                    name_bytes,
                    asks,
                };
                let count = 1 + Bound::units_of(name_bytes);
                return (units.len() >= count).then_some((part, count));
            }
            [MEMBER, token, 0, rest] if rest & 0xfeff_ffff == 0 => Self::Member {
                token,
                asks: rest != 0,
            },
            [DESCRIPTOR, number, 0, 0] => Self::Descriptor { number },
            [MEMORY, number, low, high] if low | high != 0 => {
                let len_bytes = long(low, high);
                Self::Memory { number, len_bytes }
            }
            [kind @ (LOAN | BYTES), arena, block, loan] => {
                let [generation, fill, low, high] = words(units.get(1)?);
                let lent = LentBlock {
                    arena,
                    block,
                    loan,
                    generation,
                    len_bytes: long(low, high),
                    fill,
                };
                let part = match kind {
                    LOAN if fill != 0 => return None,
                    LOAN => Self::Loan(lent),
                    _ => Self::Bytes(lent),
                };
                return Some((part, 2));
            }
            _ => return None,
        };
        Some((part, 1))
    }

    fn third(units: &[[u8; UNIT_BYTES]], vine: (u32, u32), port: u32) -> Option<Self> {
        let [exporter, number] = *units.get(1..3)?.as_array()?;
        let [low, high, pid, form] = words(&number);
        let form = match form {
            0 => ThirdForm::Plain,
            1 => ThirdForm::Kept,
            2 => ThirdForm::Once,
            _ => return None,
        };
        Some(Self::Third {
            vine,
            port,
            exporter,
            number: long(low, high),
            pid,
            form,
        })
    }

    fn home(units: &[[u8; UNIT_BYTES]], port: u32, pid: u32) -> Option<Self> {
        let [introducer, number] = *units.get(1..3)?.as_array()?;
        let [low, high, 0, 0] = words(&number) else {
            return None;
        };
        Some(Self::Home {
            port,
            introducer,
            pid,
            number: long(low, high),
        })
    }
}

/// The number whose halves these are.
fn long(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The name of a port that moves, and the file of its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Device and inode of the socket's file; zeros when it is gone.
    pub file: (u64, u64),
    /// 1 to [`NAME_BYTES_MAX`] bytes.
    pub name: String,
}

impl Bound {
    /// Units behind the first one of [`Part::Receive`] for a name of that length.
    #[must_use]
    pub const fn units_of(name_bytes: u8) -> usize {
        match name_bytes {
            0 => 0,
            bytes => 1 + (bytes as usize).div_ceil(UNIT_BYTES),
        }
    }

    /// The units.
    #[must_use]
    pub fn to_units(&self) -> Vec<[u8; UNIT_BYTES]> {
        let mut file = [0; UNIT_BYTES];
        file[..8].copy_from_slice(&self.file.0.to_le_bytes());
        file[8..].copy_from_slice(&self.file.1.to_le_bytes());
        let pieces = self.name.as_bytes().chunks(UNIT_BYTES).map(|piece| {
            let mut unit = [0; UNIT_BYTES];
            unit[..piece.len()].copy_from_slice(piece);
            unit
        });
        core::iter::once(file).chain(pieces).collect()
    }

    /// The peer's description of a name of that length; `None` when it is none.
    #[must_use]
    pub fn parse(units: &[[u8; UNIT_BYTES]], name_bytes: u8) -> Option<Self> {
        let (file, name) = units.split_first()?;
        let [device, inode] = *file.as_chunks::<8>().0.as_array()?;
        let file = (u64::from_le_bytes(device), u64::from_le_bytes(inode));
        let (name, rest) = name
            .as_flattened()
            .split_at_checked(usize::from(name_bytes))?;
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        let name = str::from_utf8(name).ok()?;
        crate::name::check(name).ok()?;
        let name = name.to_owned();
        Some(Self { file, name })
    }
}

/// Descriptors a process may have sent through a link without their having been claimed.
pub const UNCLAIMED_MAX: u32 = 64;

/// The message of the control socket that carries descriptors, ahead of the message whose parts
/// name them.
///
/// ```text
/// 16, 1 | how many, 1 | zero, 2 | number of the first, 4
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// How many come with it, at most [`PARTS_MAX`].
    pub count: u32,
    /// The sender's number for the first; the others follow. It numbers all descriptors that it
    /// sends through a link in turn, from zero on, and wraps around.
    pub first: u32,
}

/// First byte of [`Descriptors`].
pub(crate) const DESCRIPTORS: u8 = 16;
/// Bytes of [`Descriptors`].
const DESCRIPTORS_BYTES: usize = 8;

impl Descriptors {
    /// The bytes to send.
    #[must_use]
    pub(crate) const fn to_bytes(self) -> [u8; DESCRIPTORS_BYTES] {
        let [a, b, c, d] = self.first.to_le_bytes();
        [DESCRIPTORS, self.count as u8, 0, 0, a, b, c, d]
    }

    /// The statement of a peer; `None` for bytes that say something else.
    #[must_use]
    pub(crate) const fn parse(bytes: &[u8]) -> Option<Self> {
        let [DESCRIPTORS, count, 0, 0, a, b, c, d] = *bytes else {
            return None;
        };
        let first = u32::from_le_bytes([a, b, c, d]);
        let count = count as u32;
        if count == 0 || count > PARTS_MAX as u32 {
            return None;
        }
        Some(Self { count, first })
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

/// The bit of a port's number that says that other ports have the same receiver: such a port takes nobody's place there.
pub const IS_MEMBER: u32 = 1 << 30;

/// Whether this is the number of a port that shares a receiver.
#[inline]
#[must_use]
pub const fn is_member(port: u32) -> bool {
    port & IS_MEMBER != 0
}

/// The receiver of a port, which is part of its number.
#[must_use]
pub const fn receiver_of(port: u32) -> u32 {
    port & 0xff
}

#[cfg(test)]
mod tests;
