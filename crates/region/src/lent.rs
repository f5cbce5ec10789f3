//! Memory files that one process writes and others look at: blocks for bytes that are lent.
//!
//! Their owner writes the blocks in place, as the only one who can: no other mapping of the file is
//! writable. Others copy out of theirs, as out of any memory that another process writes.

use crate::copy;
use core::slice;
use handfast_sys::memory::{Access, Mapping, create_lent, is_lent, write_from};
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd};
use std::sync::Arc;

/// A block of memory that only this process writes. There is one for each block: its owner is the
/// only one to write it.
#[derive(Debug)]
pub struct Block {
    mapping: Arc<Mapping>,
    number: u32,
    at: usize,
    len_bytes: usize,
}

/// Makes `count` blocks of `block_bytes` zero bytes in one memory file, all of which are there, and the
/// descriptor to hand to others. `memfd_create`, `fallocate` for each 2 MiB, `mmap`, `fcntl`.
///
/// # Errors
/// `EINVAL` for none; otherwise what creating or mapping a memory file gives.
///
/// # Panics
/// If the blocks are longer than `file_bytes`.
pub fn create_blocks(
    name: &str,
    (count, block_bytes): (u32, usize),
    file_bytes: usize,
) -> Result<(OwnedFd, Vec<Block>), Errno> {
    let end = block_bytes.checked_mul(count as usize);
    assert!(end.is_some_and(|end| end <= file_bytes));
    let (fd, mapping) = create_lent(name, file_bytes)?;
    let mapping = Arc::new(mapping);
    let blocks = (0..count).map(|number| Block {
        mapping: mapping.clone(),
        number,
        at: number as usize * block_bytes,
        len_bytes: block_bytes,
    });
    Ok((fd, blocks.collect()))
}

impl Block {
    /// Which block of its file.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Its bytes.
    ///
    /// # Panics
    /// In a forked child, which does not have them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let base = self.base();
        // SAFETY: mapped for as long as `self` lives (not forked, as just checked), all bytes are there
        // and initialised by the kernel. The file was sealed so that no other mapping of it is writable,
        // and of this one's blocks there is one value each, which no two overlap: writing takes
        // `&mut self`. The kernel gives no mapping longer than a slice can be.
        unsafe { slice::from_raw_parts(base, self.len_bytes) }
    }

    /// Its bytes, to be written.
    ///
    /// # Panics
    /// As [`Self::bytes`].
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let base = self.base();
        // SAFETY: as in `bytes`; the mapping is writable. That others look meanwhile concerns nobody here.
        unsafe { slice::from_raw_parts_mut(base, self.len_bytes) }
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        assert!(
            !self.mapping.is_forked(),
            "this block was made before fork() and is not there in the child; make an arena there"
        );
        let base = self.mapping.base().as_ptr();
        // SAFETY: `create_blocks` has checked that all blocks lie in the mapping.
        unsafe { base.add(self.at) }
    }
}

/// A memory file that another process writes, mapped to be read.
#[derive(Debug)]
pub struct Lent(Mapping);

impl Lent {
    /// One of exactly `len_bytes` bytes. `None` when its length or its pages can change, or others than its
    /// owner can write it. `fcntl`, `fstat`, `mmap`.
    ///
    /// # Errors
    /// `EINVAL` when it is no memory file; `ENOMEM` when it cannot be mapped.
    pub fn open(fd: impl AsFd, len_bytes: usize) -> Result<Option<Self>, Errno> {
        let fd = fd.as_fd();
        if !is_lent(fd, len_bytes)? {
            return Ok(None);
        }
        Mapping::new(fd, len_bytes, Access::Read).map(|mapping| Some(Self(mapping)))
    }

    /// Whether this process is a forked child of the one that opened it, and does not have it.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.0.is_forked()
    }

    /// Copies bytes out. The result is private; the owner may have written meanwhile.
    ///
    /// # Panics
    /// Outside the file, and in a forked child.
    #[inline]
    pub fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        let from = self.from(at, bytes.len());
        // SAFETY: the source is in bounds, as just checked; the destination is a private slice.
        unsafe { copy::copy(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies bytes out in lines of 64, each once, in words; behind the last byte there are zeros.
    ///
    /// # Panics
    /// As [`Self::copy_out`], and when `at` is not the start of a line.
    #[inline]
    pub fn for_each_line(
        &self,
        at: usize,
        len_bytes: usize,
        mut each: impl FnMut([u64; 8]) -> bool,
    ) {
        let from = self.from(at, len_bytes).cast::<[u64; 8]>();
        assert!(from.is_aligned(), "lent bytes begin with a line");
        let lines = len_bytes / size_of::<[u64; 8]>();
        for line in 0..lines {
            // SAFETY: `line` is below the number of whole lines of the range, which is in bounds.
            let line = unsafe { from.add(line) };
            // SAFETY: in bounds and aligned; any bytes are words.
            if !each(unsafe { copy::line(line) }) {
                return;
            }
        }
        let rest_bytes = len_bytes % size_of::<[u64; 8]>();
        if rest_bytes > 0 {
            let mut rest = [0; 64];
            self.copy_out(at + len_bytes - rest_bytes, &mut rest[..rest_bytes]);
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(rest.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            each(words);
        }
    }

    /// Has the kernel write bytes to a descriptor. Nobody here looks at them. `write`: blocks as that does,
    /// and returns how many it took.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// As [`Self::copy_out`].
    pub fn write_to(
        &self,
        to: BorrowedFd<'_>,
        at: usize,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        let from = self.from(at, len_bytes);
        let from = core::ptr::NonNull::new(from.cast_mut()).ok_or(Errno::FAULT)?;
        // SAFETY: in bounds of a mapping that `self` keeps during the call.
        unsafe { write_from(to, from, len_bytes) }
    }

    #[inline]
    fn from(&self, at: usize, len_bytes: usize) -> *const u8 {
        let all_bytes = self.0.len_bytes();
        assert!(
            at <= all_bytes && len_bytes <= all_bytes - at && !self.is_forked(),
            "bytes outside of lent memory"
        );
        // SAFETY: the offset was just checked to lie inside the mapping.
        unsafe { self.0.base().as_ptr().add(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_sys::AsFd;
    use handfast_sys::memory::{create_owner_written, create_sealed};
    use std::io::Read;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn what_the_owner_writes_in_a_block_is_there_for_others_and_nowhere_else() {
        let (fd, mut blocks) = create_blocks("blocks", (3, 8256), 28_672).unwrap();
        let lent = Lent::open(&fd, 28_672).unwrap().unwrap();
        for block in &mut blocks {
            assert!(block.bytes().iter().all(|byte| *byte == 0));
            let number = block.number() as u8 + 1;
            block.bytes_mut().fill(number);
        }
        assert_eq!(blocks[1].bytes(), [2; 8256]);
        let mut all = vec![9; 28_672];
        lent.copy_out(0, &mut all);
        let expected = [1, 2, 3, 0].into_iter();
        let expected = expected.zip([8256, 8256, 8256, 3904]);
        let expected: Vec<u8> = expected
            .flat_map(|(byte, count)| vec![byte; count])
            .collect();
        assert_eq!(all, expected);

        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(lent.write_to(writer.as_fd(), 8250, 10), Ok(10));
        let mut ten = [0; 10];
        reader.read_exact(&mut ten).unwrap();
        assert_eq!(ten, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
        let mut lines = Vec::new();
        lent.for_each_line(64, 8192 + 5, |line| {
            lines.push(line);
            true
        });
        assert_eq!((lines.len(), lines[127]), (129, [0x0101_0101_0101_0101; 8]));
        assert_eq!(lines[128], [0x02_0202_0202, 0, 0, 0, 0, 0, 0, 0]);
        drop(reader);
        assert_eq!(lent.write_to(writer.as_fd(), 0, 1), Err(Errno::PIPE));
        // The file outlives the blocks for any process that has it mapped.
        drop((fd, blocks));
        lent.copy_out(0, &mut all);
        assert_eq!(all, expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn what_others_could_write_or_is_not_whole_is_not_opened() {
        let (fd, _blocks) = create_blocks("blocks", (1, 4096), 4096).unwrap();
        assert!(Lent::open(&fd, 8192).unwrap().is_none());
        let sealed = create_sealed("sealed", 4096).unwrap();
        assert!(Lent::open(&sealed, 4096).unwrap().is_none());
        let (sparse, _mapping) = create_owner_written("sparse", 4096).unwrap();
        assert!(Lent::open(&sparse, 4096).unwrap().is_none());
        let plain: OwnedFd = std::fs::File::open("/proc/self/status").unwrap().into();
        assert!(Lent::open(&plain, 4096).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    #[should_panic(expected = "outside of lent memory")]
    fn bytes_past_the_end_are_not_copied() {
        let (fd, _blocks) = create_blocks("blocks", (1, 4096), 4096).unwrap();
        let lent = Lent::open(&fd, 4096).unwrap().unwrap();
        lent.copy_out(4090, &mut [0; 7]);
    }
}
