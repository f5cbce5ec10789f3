//! Counters one process writes and others read.

use core::sync::atomic::{AtomicU64, Ordering};
use handfast_sys::memory::{Access, Mapping, create_owner_written};
use handfast_sys::{AsFd, Errno, OwnedFd};

/// A region of 64-bit counters. The owner's file is sealed so that only this mapping can write.
#[derive(Debug)]
pub struct Tally {
    mapping: Mapping,
    access: Access,
}

impl Tally {
    /// Counters of this process, and the descriptor to hand to readers.
    ///
    /// # Errors
    /// The error of creating or mapping a memory file.
    pub fn create(len_bytes: usize) -> Result<(OwnedFd, Self), Errno> {
        let (fd, mapping) = create_owner_written("handfast counters", len_bytes)?;
        Ok((
            fd,
            Self {
                mapping,
                access: Access::ReadWrite,
            },
        ))
    }

    /// Another process's counters, read-only. `None` when the file is not sealed or has another
    /// size.
    ///
    /// # Errors
    /// The error of mapping the file.
    pub fn open(fd: impl AsFd, len_bytes: usize) -> Result<Option<Self>, Errno> {
        if !handfast_sys::memory::is_sealed(&fd, len_bytes)? {
            return Ok(None);
        }
        let mapping = Mapping::new(&fd, len_bytes, Access::Read)?;
        Ok(Some(Self {
            mapping,
            access: Access::Read,
        }))
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        let len_bytes = self.mapping.len_bytes();
        assert!(
            at.is_multiple_of(8) && at < len_bytes && 8 <= len_bytes - at,
            "counter offset"
        );
        // SAFETY: the offset was just checked to lie inside the mapping.
        let word = unsafe { self.mapping.base().add(at) };
        // SAFETY: in bounds and aligned (the base is a page, the offset a multiple of eight), and
        // counters are only ever accessed as 64-bit atomics. On a read-only mapping only `load`
        // is called.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// Adds to a counter that only the calling thread writes now: a load and a store, no locked
    /// instruction. Two threads at once would lose counts, not more.
    #[inline]
    pub fn add(&self, at: usize, amount: u64) {
        let word = self.word(at);
        // Relaxed: a counter publishes nothing but itself.
        self.store(at, word.load(Ordering::Relaxed).wrapping_add(amount));
    }

    /// Adds to a counter that other threads may add to now: a locked instruction.
    ///
    /// # Panics
    /// On a region opened for reading.
    #[inline]
    pub fn add_shared(&self, at: usize, amount: u64) {
        self.check_own();
        // Relaxed: a counter publishes nothing but itself.
        self.word(at).fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a counter.
    ///
    /// # Panics
    /// On a region opened for reading.
    #[inline]
    pub fn store(&self, at: usize, value: u64) {
        self.check_own();
        // Relaxed: a counter publishes nothing but itself.
        self.word(at).store(value, Ordering::Relaxed);
    }

    #[inline]
    fn check_own(&self) {
        assert!(
            self.access == Access::ReadWrite,
            "counters of another process are read-only"
        );
    }

    /// Reads a counter.
    #[must_use]
    pub fn load(&self, at: usize) -> u64 {
        // Relaxed: a counter publishes nothing but itself.
        self.word(at).load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn readers_see_counts_and_cannot_write() {
        let (fd, own) = Tally::create(4096).unwrap();
        own.add(8, 3);
        own.add_shared(8, 4);
        let theirs = Tally::open(&fd, 4096).unwrap().unwrap();
        assert_eq!(theirs.load(8), 7);
        assert!(std::panic::catch_unwind(|| theirs.store(8, 1)).is_err());
        assert!(std::panic::catch_unwind(|| theirs.add_shared(8, 1)).is_err());
        assert!(Tally::open(&fd, 8192).unwrap().is_none());
    }
}
