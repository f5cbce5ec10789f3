//! The description that a child gets of the domain that it is to run.

use super::program;
use crate::error::LoadError;
use crate::image::Functions;
use crate::isolation::Isolation;
use crate::options::{DomainOptions, Policy};
use crate::row::Entry;
use crate::server::Make;

/// A domain's functions as places in the program, and how it is loaded.
pub(crate) struct Plan(Vec<u8>);

/// Words before the functions' words: version, bytes of the heap, whether it stays dead, how many functions.
const HEAD_WORDS: usize = 4;
const VERSION: u64 = 1;
const WORD_BYTES: usize = 8;

impl Plan {
    pub(crate) fn new(functions: &Functions, options: &DomainOptions) -> Result<Self, LoadError> {
        let own = [
            functions.init as usize,
            functions.make as *const () as usize,
        ];
        let entries = functions
            .entries
            .iter()
            .map(|entry| *entry as *const () as usize);
        let places =
            program::places_of(own.into_iter().chain(entries)).ok_or(LoadError::Library)?;
        let dies = options.get_policy() == Policy::Dead;
        let head: [u64; HEAD_WORDS] = [
            VERSION,
            options.get_heap_bytes() as u64,
            u64::from(dies),
            places.len() as u64,
        ];
        let words = head.into_iter().chain(places);
        Ok(Self(words.flat_map(u64::to_le_bytes).collect()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The domain of a plan that `more` gives piece by piece.
    pub(crate) fn read(
        mut more: impl FnMut(&mut Vec<u8>) -> Option<()>,
    ) -> Option<(Functions, DomainOptions)> {
        let mut bytes = Vec::new();
        let mut words = |count: usize| {
            while bytes.len() < count * WORD_BYTES {
                more(&mut bytes)?;
            }
            let (words, _) = bytes.as_chunks::<WORD_BYTES>();
            Some(
                words
                    .iter()
                    .map(|word| u64::from_le_bytes(*word))
                    .collect::<Vec<_>>(),
            )
        };
        let head = words(HEAD_WORDS)?;
        let &[VERSION, heap_bytes, dies, count, ..] = head.as_slice() else {
            return None;
        };
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= 2 + usize::from(u16::MAX))?;
        let all = words(HEAD_WORDS + count)?;
        let places = all.get(HEAD_WORDS..HEAD_WORDS + count)?.iter().copied();
        let addresses = program::addresses_of(places)?;
        let (&[init, make], entries) = addresses.split_first_chunk()?;
        // SAFETY: the parent, which runs the same file, has found such a function at this place of it.
        let make = unsafe { core::mem::transmute::<usize, Make>(make) };
        let entry = |address: &usize| {
            // SAFETY: as above.
            unsafe { core::mem::transmute::<usize, Entry>(*address) }
        };
        let functions = Functions {
            init: init as *const (),
            make,
            entries: entries.iter().map(entry).collect(),
        };
        let policy = if dies == 0 {
            Policy::Reset
        } else {
            Policy::Dead
        };
        let options = DomainOptions::new()
            .heap_bytes(usize::try_from(heap_bytes).ok()?)
            .policy(policy)
            .isolation(Isolation::Unprotected);
        Some((functions, options))
    }
}
