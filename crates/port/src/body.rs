//! The bytes of a message that takes the slow path, in one piece or in several.

use handfast_region::{Bytes, Memory, Pieces};
use std::io::IoSlice;

#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    One(&'a [u8]),
    Many(Pieces<'a>),
}

impl<'a> Body<'a> {
    /// Without bytes.
    pub(crate) const NONE: Self = Self::One(&[]);

    pub(crate) fn of(pieces: &'a [IoSlice<'a>]) -> Self {
        match pieces {
            [one] => Self::One(one),
            pieces => Self::Many(Pieces::new(pieces)),
        }
    }

    /// Copies the bytes, which are as many: `copy` copies each piece.
    pub(crate) fn copy_into(self, to: &mut [u8], copy: impl Fn(&[u8], &mut [u8])) {
        match self {
            Self::One(bytes) => copy(bytes, to),
            Self::Many(pieces) => pieces.copy_into(to, copy),
        }
    }

    /// In one piece, for those who take no other.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes()];
        self.copy_into(&mut bytes, |from, to| to.copy_from_slice(from));
        bytes
    }
}

impl Bytes for Body<'_> {
    #[inline]
    fn len_bytes(self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Many(pieces) => pieces.len_bytes(),
        }
    }

    #[inline]
    fn copy_to(self, memory: &impl Memory, at: usize) {
        match self {
            Self::One(bytes) => bytes.copy_to(memory, at),
            Self::Many(pieces) => pieces.copy_to(memory, at),
        }
    }

    #[inline]
    fn copy_many_to(self, memory: &impl Memory, at: usize) {
        match self {
            Self::One(bytes) => bytes.copy_many_to(memory, at),
            Self::Many(pieces) => pieces.copy_many_to(memory, at),
        }
    }
}
