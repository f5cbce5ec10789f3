//! Bytes to be copied in: one slice, or several in a row.

use crate::Memory;
use std::io::IoSlice;

/// Bytes of a message, wherever they lie.
pub trait Bytes: Copy {
    /// How many they are.
    fn len_bytes(self) -> usize;

    /// Copies them in, one behind the other.
    fn copy_to(self, memory: &impl Memory, at: usize);
    /// The same, where they may be many ([`Memory::copy_many_in`]).
    fn copy_many_to(self, memory: &impl Memory, at: usize);
}

impl Bytes for &[u8] {
    #[inline(always)]
    fn len_bytes(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn copy_to(self, memory: &impl Memory, at: usize) {
        memory.copy_in(at, self);
    }

    #[inline(always)]
    fn copy_many_to(self, memory: &impl Memory, at: usize) {
        memory.copy_many_in(at, self);
    }
}

/// Bytes in several pieces.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    pieces: &'a [IoSlice<'a>],
    len_bytes: usize,
}

impl<'a> Pieces<'a> {
    /// Those, in this order.
    #[must_use]
    pub fn new(pieces: &'a [IoSlice<'a>]) -> Self {
        // One may be there many times: more than a process has are too many anyway.
        let add = |sum: usize, piece: &IoSlice<'_>| sum.saturating_add(piece.len());
        Self {
            pieces,
            len_bytes: pieces.iter().fold(0, add),
        }
    }

    /// Copies them, one behind the other, as far as there is room: `copy` copies each, between slices of the same length.
    pub fn copy_into(self, mut to: &mut [u8], copy: impl Fn(&[u8], &mut [u8])) {
        for piece in self.pieces {
            let count = piece.len().min(to.len());
            let (here, rest) = to.split_at_mut(count);
            copy(&piece[..count], here);
            to = rest;
        }
    }
}

impl Bytes for Pieces<'_> {
    fn len_bytes(self) -> usize {
        self.len_bytes
    }

    fn copy_to(self, memory: &impl Memory, at: usize) {
        self.copy_many_to(memory, at);
    }

    fn copy_many_to(self, memory: &impl Memory, mut at: usize) {
        for piece in self.pieces {
            memory.copy_many_in(at, piece);
            at += piece.len();
        }
    }
}
