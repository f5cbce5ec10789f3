//! Requests of clients to servers here, and the required answers.

use handfast_testing::Random;

/// The request in a message; its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    /// The payload, answered.
    Echo,
    /// As [`Self::Echo`]; the client waits as a task does.
    Async,
    /// A new right, whose badge is the key.
    Mint,
    /// The badge of the right that this came through.
    Badge,
    /// Device and inode of the descriptor that comes with it.
    Inode,
    /// The answer to the sealed memory that comes with it, as memory.
    Memory,
    /// The answer to the block that is lent with it.
    Loan,
    /// As [`Self::Echo`], by another server to which the call is passed on.
    Tail,
    /// As [`Self::Echo`], by another server which this one calls.
    Nested,
    /// As [`Self::Echo`], by the server at the other end of the right that comes with it, with a byte before that
    /// says whether that was so.
    Use,
    /// The receive right that comes with it, back.
    Bounce,
    /// The port that comes with it, which shares a receiver, back to the receiver that the right beside it leads to, with a byte as for
    /// [`Self::Use`].
    Travel,
    /// The answer to the payload, as the one message of the send-once right that comes with it.
    Once,
    /// Descriptors, as many as the first byte of the payload says.
    Descriptors,
    /// Nothing, ever: the server keeps the call until its caller is gone.
    Hold,
}

impl Op {
    const ALL: [Self; 15] = [
        Self::Echo,
        Self::Async,
        Self::Mint,
        Self::Badge,
        Self::Inode,
        Self::Memory,
        Self::Loan,
        Self::Tail,
        Self::Nested,
        Self::Use,
        Self::Bounce,
        Self::Travel,
        Self::Once,
        Self::Descriptors,
        Self::Hold,
    ];

    /// The requests that every client makes: with content that is checked.
    pub(crate) const CHECKED: [Self; 12] = [
        Self::Echo,
        Self::Async,
        Self::Mint,
        Self::Inode,
        Self::Memory,
        Self::Loan,
        Self::Tail,
        Self::Nested,
        Self::Use,
        Self::Bounce,
        Self::Once,
        Self::Travel,
    ];

    /// One of the checked requests, most of them plain.
    pub(crate) fn any(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::CHECKED[random.below(Self::CHECKED.len() as u64) as usize],
            _ => Self::Echo,
        }
    }

    /// The request in this message, and its payload.
    pub(crate) fn of(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, payload) = message.split_at_checked(HEAD_BYTES)?;
        let op = Self::ALL.get(usize::from(*head.first()?))?;
        Some((*op, payload))
    }

    /// In the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Async => "async",
            Self::Mint => "mint",
            Self::Badge => "badge",
            Self::Inode => "descriptor",
            Self::Memory => "memory",
            Self::Loan => "loan",
            Self::Tail => "tail",
            Self::Nested => "nested",
            Self::Use => "use",
            Self::Bounce => "move",
            Self::Travel => "travel",
            Self::Once => "once",
            Self::Descriptors => "descriptors",
            Self::Hold => "asleep",
        }
    }

    /// The message that asks for it.
    pub(crate) fn message(self, key: u64, payload: &[u8]) -> Vec<u8> {
        let mut message = vec![self as u8, 0, 0, 0, 0, 0, 0, 0];
        message.extend(key.to_le_bytes());
        message.extend(payload);
        message
    }
}

/// Before the payload: what is asked for, and a key.
pub(crate) const HEAD_BYTES: usize = 16;

/// The key of a message.
pub(crate) fn key_of(message: &[u8]) -> u64 {
    let key = message.get(8..16).and_then(|key| key.try_into().ok());
    key.map_or(0, u64::from_le_bytes)
}

/// Said before the answer to [`Op::Use`] and [`Op::Travel`]: there is one, or why there is none follows.
pub(crate) const USED: u8 = 1;
pub(crate) const UNUSED: u8 = 0;

/// The answer to a payload: no two payloads have the same.
pub(crate) fn answer(payload: &[u8]) -> Vec<u8> {
    payload.iter().rev().map(|byte| byte ^ 0xa5).collect()
}

/// Bytes that no other key has.
pub(crate) fn content(len_bytes: usize, key: u64) -> Vec<u8> {
    let mut random = Random::of(key);
    let mut bytes = Vec::with_capacity(len_bytes + 8);
    while bytes.len() < len_bytes {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes.truncate(len_bytes);
    bytes
}

/// From one microsecond to 2^`most` of them, each length of it as likely.
pub(crate) fn some_us(random: &mut Random, most: u64) -> std::time::Duration {
    let scale = 1 << random.below(most + 1);
    std::time::Duration::from_micros(random.below(scale) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_it_asks_for() {
        for (number, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, number);
            let message = op.message(77, b"payload");
            assert_eq!(Op::of(&message), Some((op, &b"payload"[..])));
            assert_eq!(key_of(&message), 77);
        }
        assert_eq!(Op::of(&[0; HEAD_BYTES - 1]), None);
        assert_eq!(Op::of(&[200; HEAD_BYTES]), None);
    }

    #[test]
    fn answers_are_as_different_as_payloads() {
        let (one, two) = (content(1000, 1), content(1000, 2));
        assert_ne!(one, two);
        assert_ne!(answer(&one), answer(&two));
        assert_eq!(answer(&answer(&one)), one);
    }
}
