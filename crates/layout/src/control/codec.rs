//! How control messages are written and read, field by field.

use super::CONTROL_BYTES_MAX;
use super::list::{Element, List};
use crate::hello::Process;
use core::ops::Deref;

/// The bytes of a message.
#[derive(Clone, Debug)]
pub struct Encoded {
    bytes: [u8; CONTROL_BYTES_MAX],
    len_bytes: usize,
}

impl Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}

impl Encoded {
    pub(super) fn of(kind: u8, argument: u8) -> Self {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        (bytes[0], bytes[1]) = (kind, argument);
        let len_bytes = 2;
        Self { bytes, len_bytes }
    }

    /// One that has a form of its own.
    pub(super) fn whole(bytes: &[u8]) -> Self {
        Self::of(bytes[0], bytes[1]).and(&bytes[2..])
    }

    /// # Panics
    /// If there is no room: lists are as long as their senders make them.
    pub(super) fn and(mut self, more: &[u8]) -> Self {
        let end = self.len_bytes + more.len();
        self.bytes[self.len_bytes..end].copy_from_slice(more);
        self.len_bytes = end;
        self
    }
}

/// The rest of a message while it is read.
pub(super) struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes; `None` where the message has ended before.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

/// The form of a part of a message behind its argument byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// So many bytes that are zero.
    Zero(usize),
    /// A number of 4 bytes.
    Word,
    /// A number of 8 bytes.
    Long,
    /// A process.
    Process,
    /// Elements of so many bytes, to the end.
    List(usize),
}

/// A part of a message behind its argument byte.
pub(super) trait Field<'a>: Sized {
    const SHAPE: Shape;

    fn put(self, to: Encoded) -> Encoded;
    /// `None` where the message has ended before, or the part cannot be.
    fn take(from: &mut Rest<'a>) -> Option<Self>;
}

impl Field<'_> for Process {
    const SHAPE: Shape = Shape::Process;

    fn put(self, to: Encoded) -> Encoded {
        to.and(&self)
    }

    fn take(from: &mut Rest<'_>) -> Option<Self> {
        from.take()
    }
}

impl Field<'_> for u32 {
    const SHAPE: Shape = Shape::Word;

    fn put(self, to: Encoded) -> Encoded {
        to.and(&self.to_le_bytes())
    }

    fn take(from: &mut Rest<'_>) -> Option<Self> {
        from.take().map(Self::from_le_bytes)
    }
}

impl Field<'_> for u64 {
    const SHAPE: Shape = Shape::Long;

    fn put(self, to: Encoded) -> Encoded {
        to.and(&self.to_le_bytes())
    }

    fn take(from: &mut Rest<'_>) -> Option<Self> {
        from.take().map(Self::from_le_bytes)
    }
}

/// A list: all that is left, in whole elements.
impl<'a, T: Element<N>, const N: usize> Field<'a> for List<'a, T, N> {
    const SHAPE: Shape = Shape::List(N);

    fn put(self, to: Encoded) -> Encoded {
        self.iter()
            .fold(to, |to, element| to.and(&element.encode()))
    }

    fn take(from: &mut Rest<'a>) -> Option<Self> {
        let (list, odd) = from.0.as_chunks();
        from.0 = odd;
        Self::parse(list)
    }
}

/// The argument byte.
pub(super) trait Argument: Sized {
    /// `None` for one that no honest peer sends.
    fn of(byte: u8) -> Option<Self>;
}

impl Argument for u8 {
    fn of(byte: u8) -> Option<Self> {
        Some(byte)
    }
}

impl Argument for bool {
    fn of(byte: u8) -> Option<Self> {
        (byte <= 1).then_some(byte == 1)
    }
}
