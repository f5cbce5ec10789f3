//! How control messages are written and read, field by field.

use super::CONTROL_BYTES_MAX;
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
    fn and(mut self, more: &[u8]) -> Self {
        let end = self.len_bytes + more.len();
        self.bytes[self.len_bytes..end].copy_from_slice(more);
        self.len_bytes = end;
        self
    }
}

/// The rest of a message while it is read.
pub(super) struct Rest<'a>(&'a [u8]);

/// A message has ended before its last field.
pub(super) struct Short;

impl<'a> Rest<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A part of a message behind its argument byte.
pub(super) trait Field<'a>: Sized {
    fn put(self, to: Encoded) -> Encoded;
    fn take(from: &mut Rest<'a>) -> Result<Self, Short>;
}

impl<const N: usize> Field<'_> for [u8; N] {
    fn put(self, to: Encoded) -> Encoded {
        to.and(&self)
    }

    fn take(from: &mut Rest<'_>) -> Result<Self, Short> {
        let (first, rest) = from.0.split_first_chunk().ok_or(Short)?;
        from.0 = rest;
        Ok(*first)
    }
}

impl Field<'_> for u32 {
    fn put(self, to: Encoded) -> Encoded {
        to.and(&self.to_le_bytes())
    }

    fn take(from: &mut Rest<'_>) -> Result<Self, Short> {
        Field::take(from).map(Self::from_le_bytes)
    }
}

impl Field<'_> for u64 {
    fn put(self, to: Encoded) -> Encoded {
        to.and(&self.to_le_bytes())
    }

    fn take(from: &mut Rest<'_>) -> Result<Self, Short> {
        Field::take(from).map(Self::from_le_bytes)
    }
}

/// A list: all that is left, in whole elements.
impl<'a, const N: usize> Field<'a> for &'a [[u8; N]] {
    fn put(self, to: Encoded) -> Encoded {
        to.and(self.as_flattened())
    }

    fn take(from: &mut Rest<'a>) -> Result<Self, Short> {
        let (list, odd) = from.0.as_chunks();
        from.0 = odd;
        Ok(list)
    }
}

/// The argument byte.
pub(super) trait Argument: Sized {
    fn of(byte: u8) -> Self;
}

impl Argument for u8 {
    fn of(byte: u8) -> Self {
        byte
    }
}

impl Argument for bool {
    fn of(byte: u8) -> Self {
        byte != 0
    }
}
