//! Messages that no honest process sends, made of those that one sends; and control messages as tests send and hear them.

use handfast_layout::control::{ControlKind, ControlMessage};
use std::fmt;
use std::ops::Deref;

/// A message without its last bytes.
#[must_use]
pub fn cut(message: &[u8], len_bytes: usize) -> Vec<u8> {
    message[..message.len() - len_bytes].to_vec()
}

/// A message with more bytes behind it.
#[must_use]
pub fn extended(message: &[u8], more: &[u8]) -> Vec<u8> {
    [message, more].concat()
}

/// A message with other bytes at a place.
#[must_use]
pub fn patched(message: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut patched = message.to_vec();
    patched[at..at + bytes.len()].copy_from_slice(bytes);
    patched
}

/// The bytes of a control message, whole or not, parsed when they are asked for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Packet(Vec<u8>);

impl Packet {
    /// A message that has come.
    #[must_use]
    pub fn received(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// The message, to be made wrong.
    #[must_use]
    pub fn of(message: ControlMessage<'_>) -> Self {
        message.into()
    }

    /// A message of this kind with any bytes behind the argument byte.
    #[must_use]
    pub fn of_kind(kind: ControlKind, argument: u8, rest: &[u8]) -> Self {
        Self::received(&kind.with(argument, &[])).extended(rest)
    }

    /// A message of a kind that this release does not know.
    #[must_use]
    pub fn unknown(argument: u8) -> Self {
        let is_unknown = |number: &u8| ControlKind::of(&[*number]).is_none();
        let number = (0..=u8::MAX).rev().find(is_unknown);
        Self(vec![number.expect("a kind that is free"), argument])
    }

    /// Without its last bytes.
    #[must_use]
    pub fn cut(&self, len_bytes: usize) -> Self {
        Self(cut(self, len_bytes))
    }

    /// Only its first bytes.
    #[must_use]
    pub fn cut_to(&self, len_bytes: usize) -> Self {
        Self(self[..len_bytes].to_vec())
    }

    /// With more bytes behind it.
    #[must_use]
    pub fn extended(&self, more: &[u8]) -> Self {
        Self(extended(self, more))
    }

    /// With other bytes at a place.
    #[must_use]
    pub fn patched(&self, at: usize, bytes: &[u8]) -> Self {
        Self(patched(self, at, bytes))
    }

    /// The kind that it is of, whole or not.
    ///
    /// # Panics
    /// If this release does not know the kind.
    #[must_use]
    pub fn kind(&self) -> ControlKind {
        ControlKind::of(self).unwrap_or_else(|| panic!("no kind: {:?}", self.0))
    }

    /// The message.
    ///
    /// # Panics
    /// If it is not whole.
    #[must_use]
    pub fn message(&self) -> ControlMessage<'_> {
        match ControlMessage::parse(self) {
            Ok(Some(message)) => message,
            refused => panic!("{refused:?}: {:?}", self.0),
        }
    }
}

impl From<ControlMessage<'_>> for Packet {
    fn from(message: ControlMessage<'_>) -> Self {
        Self(message.encode().to_vec())
    }
}

impl Deref for Packet {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<ControlMessage<'_>> for Packet {
    fn eq(&self, message: &ControlMessage<'_>) -> bool {
        *self == Self::of(*message)
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ControlMessage::parse(self) {
            Ok(Some(message)) => message.fmt(f),
            _ => write!(f, "not whole: {:?}", self.0),
        }
    }
}
