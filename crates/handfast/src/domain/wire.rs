//! Calls of domains that are processes, as bytes of messages between parent and child. Either side reads what the other has
//! written as a stranger's.
//!
//! ```text
//! request  kind (1) flags (1) entry (2) permissions (2) zero (2) room (4) rest (4) badge (8) [words (64)] bytes
//! reply    status (8) rest (4) flags (1) zero (3) [words (64)] bytes
//! ```
//! Words that are all zero are left out, and what is marked as zero is; a message that says it in another way, or has another kind
//! or flag, is none. A message is as long as any, so head and bytes together may be too much for one: then
//! the rest of the bytes goes ahead of a request ([`KEEP`], answered by its number), and is asked for after a reply ([`FETCH`]).

use crate::error::Gone;
use handfast_domain::Words;
use handfast_port::MESSAGE_BYTES_MAX;

/// A call of a function.
pub(super) const CALL: u8 = 1;
/// Bytes behind the head, to be kept until the call that names their number.
pub(super) const KEEP: u8 = 2;
/// Asks for the rest of a reply, by its number.
pub(super) const FETCH: u8 = 3;

/// The words are there.
pub(super) const WORDS: u8 = 1;
/// The call has bytes, if only none; else the domain is called with words alone.
pub(super) const BYTES: u8 = 2;
/// Nobody waits for the reply.
pub(super) const ONE_WAY: u8 = 4;
/// In a reply: it is a message to be passed on to the first of the rights.
pub(super) const PASS: u8 = 8;
/// In a reply: it was to be passed on to a right that is dead, for one of these reasons.
const DEAD: [(u8, Gone); 3] = [(16, Gone::Right), (32, Gone::Port), (48, Gone::Process)];
const DEAD_MASK: u8 = 48;

const REQUEST_FLAGS: u8 = WORDS | BYTES | ONE_WAY;
const REPLY_FLAGS: u8 = WORDS | PASS | DEAD_MASK;

/// The reason that a reply gives.
pub(super) fn why_dead(flags: u8) -> Option<Gone> {
    let is_it = |(code, _): &&(u8, Gone)| *code == flags & DEAD_MASK;
    DEAD.iter().find(is_it).map(|(_, gone)| *gone)
}

pub(super) fn dead(gone: Gone) -> u8 {
    let is_it = |(_, known): &&(u8, Gone)| *known == gone;
    DEAD.iter().find(is_it).map_or(DEAD_MASK, |(code, _)| *code)
}

const REQUEST_HEAD: usize = 24;
const REPLY_HEAD: usize = 16;

/// The header fields of a request, beside its bytes and words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) entry: u16,
    pub(super) permissions: u16,
    pub(super) room: u32,
    pub(super) rest: u32,
    pub(super) badge: u64,
}

/// The header fields of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u64,
    pub(super) rest: u32,
    pub(super) flags: u8,
}

/// The part of `bytes` that has room in one message with these words, and the rest.
pub(super) fn divide<'a>(words: &Words, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let words_bytes = if has_any(words) { WORDS_BYTES } else { 0 };
    let room = MESSAGE_BYTES_MAX - REQUEST_HEAD - words_bytes;
    bytes.split_at(bytes.len().min(room))
}

impl Request {
    /// Writes it, the words and the bytes into a buffer for a message; returns their length.
    pub(super) fn write(self, to: &mut [u8], words: &Words, bytes: &[u8]) -> usize {
        let mut head = [0; REQUEST_HEAD];
        (head[0], head[1]) = (self.kind, self.flags | mark(words));
        head[2..4].copy_from_slice(&self.entry.to_le_bytes());
        head[4..6].copy_from_slice(&self.permissions.to_le_bytes());
        head[8..12].copy_from_slice(&self.room.to_le_bytes());
        head[12..16].copy_from_slice(&self.rest.to_le_bytes());
        head[16..].copy_from_slice(&self.badge.to_le_bytes());
        put(to, &head, words, bytes)
    }

    /// The header of a message, and its bytes; `None` for a message that is no request.
    pub(super) fn read<'a>(bytes: &'a [u8], words: &mut Words) -> Option<(Self, &'a [u8])> {
        let (head, bytes) = bytes.split_first_chunk::<REQUEST_HEAD>()?;
        let [kind, flags, e0, e1, p0, p1, z0, z1, ..] = *head;
        if !(CALL..=FETCH).contains(&kind) || flags & !REQUEST_FLAGS != 0 || [z0, z1] != [0; 2] {
            return None;
        }
        let request = Self {
            kind,
            flags,
            entry: u16::from_le_bytes([e0, e1]),
            permissions: u16::from_le_bytes([p0, p1]),
            room: u32::from_le_bytes(*head[8..].first_chunk()?),
            rest: u32::from_le_bytes(*head[12..].first_chunk()?),
            badge: u64::from_le_bytes(*head[16..].first_chunk()?),
        };
        Some((request, take(flags, words, bytes)?))
    }
}

impl Reply {
    /// As [`Request::write`].
    pub(super) fn write(self, to: &mut [u8], words: &Words, bytes: &[u8]) -> usize {
        let mut head = [0; REPLY_HEAD];
        head[..8].copy_from_slice(&self.status.to_le_bytes());
        head[8..12].copy_from_slice(&self.rest.to_le_bytes());
        head[12] = self.flags | mark(words);
        put(to, &head, words, bytes)
    }

    /// As [`Request::read`].
    pub(super) fn read<'a>(bytes: &'a [u8], words: &mut Words) -> Option<(Self, &'a [u8])> {
        let (head, bytes) = bytes.split_first_chunk::<REPLY_HEAD>()?;
        let [.., flags, z0, z1, z2] = *head;
        if flags & !REPLY_FLAGS != 0 || [z0, z1, z2] != [0; 3] {
            return None;
        }
        let reply = Self {
            status: u64::from_le_bytes(*head.first_chunk()?),
            rest: u32::from_le_bytes(*head[8..].first_chunk()?),
            flags,
        };
        Some((reply, take(flags, words, bytes)?))
    }
}

const WORDS_BYTES: usize = size_of::<Words>();
const _: () = assert!(REPLY_HEAD <= REQUEST_HEAD);

fn has_any(words: &Words) -> bool {
    words.iter().any(|word| *word != 0)
}

fn mark(words: &Words) -> u8 {
    if has_any(words) { WORDS } else { 0 }
}

/// Head, words and bytes one behind the other.
fn put(to: &mut [u8], head: &[u8], words: &Words, bytes: &[u8]) -> usize {
    let mut at = 0;
    let mut add = |piece: &[u8]| {
        to[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    };
    add(head);
    if has_any(words) {
        words.iter().for_each(|word| add(&word.to_le_bytes()));
    }
    add(bytes);
    at
}

/// The words that lie in front of the bytes, if there are some; the bytes.
fn take<'a>(flags: u8, words: &mut Words, bytes: &'a [u8]) -> Option<&'a [u8]> {
    *words = Words::default();
    if flags & WORDS == 0 {
        return Some(bytes);
    }
    let (there, bytes) = bytes.split_at_checked(WORDS_BYTES)?;
    for (word, there) in words.iter_mut().zip(there.as_chunks().0) {
        *word = u64::from_le_bytes(*there);
    }
    has_any(words).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_there_and_all_zero_are_none() {
        let (mut to, mut words) = ([0; 256], Words::default());
        let said = Request {
            kind: CALL,
            ..Request::default()
        };
        let len = said.write(&mut to, &[1; 8], b"bytes");
        to[REQUEST_HEAD..REQUEST_HEAD + WORDS_BYTES].fill(0);
        assert_eq!(Request::read(&to[..len], &mut words), None);
    }

    #[test]
    fn what_is_written_is_read_and_shorter_messages_are_none() {
        let request = Request {
            kind: CALL,
            flags: BYTES,
            entry: 0x102,
            permissions: 0x304,
            room: 5,
            rest: 6,
            badge: u64::MAX - 1,
        };
        let reply = Reply {
            status: 7 << 40,
            rest: 8,
            flags: PASS,
        };
        let mut to = vec![0; MESSAGE_BYTES_MAX];
        for words in [[0; 8], [1, 2, 3, 4, 5, 6, 7, u64::MAX]] {
            let mark = mark(&words);
            let mut there = Words::default();
            let len = request.write(&mut to, &words, b"bytes");
            let expected = Request {
                flags: BYTES | mark,
                ..request
            };
            assert_eq!(
                Request::read(&to[..len], &mut there),
                Some((expected, &b"bytes"[..]))
            );
            assert_eq!(there, words);
            let head = len - 5;
            assert!((0..head).all(|len| Request::read(&to[..len], &mut there).is_none()));
            let len = reply.write(&mut to, &words, b"bytes");
            let expected = Reply {
                flags: PASS | mark,
                ..reply
            };
            assert_eq!(
                Reply::read(&to[..len], &mut there),
                Some((expected, &b"bytes"[..]))
            );
            assert_eq!(there, words);
            let head = len - 5;
            assert!((0..head).all(|len| Reply::read(&to[..len], &mut there).is_none()));
            // Each in one way only.
            for (at, value) in [(0, 0), (0, FETCH + 1), (1, 8), (6, 1), (7, 1)] {
                let len = request.write(&mut to, &words, b"");
                to[at] = value;
                assert_eq!(Request::read(&to[..len], &mut there), None, "{at}");
            }
            for (at, value) in [(12, BYTES), (12, 64), (13, 1), (14, 1), (15, 1)] {
                let len = reply.write(&mut to, &words, b"");
                to[at] = value;
                assert_eq!(Reply::read(&to[..len], &mut there), None, "{at}");
            }
            // As long as can be.
            let long = vec![1; MESSAGE_BYTES_MAX];
            let (now, rest) = divide(&words, &long);
            assert_eq!(request.write(&mut to, &words, now), MESSAGE_BYTES_MAX);
            assert_eq!(now.len() + rest.len(), long.len());
        }
    }
}
