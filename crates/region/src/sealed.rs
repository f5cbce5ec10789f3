//! Memory files that nobody can write any more, as plain bytes.
//!
//! The one exception to this crate's first rule: once the kernel has sealed a file against writing
//! there is no other writer, and a slice may cover it.

use core::slice;
use handfast_sys::memory::{Access, Mapping, constant_len, create_whole, read_whole, seal};
use handfast_sys::{Errno, OwnedFd, duplicate};

/// The name of such files in `/proc`.
const NAME: &str = "handfast memory";
/// Files that are tried, one after the other.
const SEAL_TRIES: u32 = 3;

/// Memory to be written, and then to be sealed: a memory file that only its owner knows, or a mapping that is its own copy of a file, where
/// and as soon as it writes.
#[derive(Debug)]
pub struct Draft {
    fd: OwnedFd,
    mapping: Mapping,
    is_copy: bool,
}

/// A memory file that nobody can change, and its bytes.
#[derive(Debug)]
pub struct Sealed {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Draft {
    /// One of `len_bytes` zero bytes, all of which are there.
    ///
    /// # Errors
    /// `EINVAL` for none; otherwise what creating or mapping a memory file gives.
    pub fn create(len_bytes: usize) -> Result<Self, Errno> {
        let fd = create_whole(NAME, len_bytes)?;
        let mapping = Mapping::new(&fd, len_bytes, Access::ReadWrite)?;
        Ok(Self {
            fd,
            mapping,
            is_copy: false,
        })
    }

    /// Its bytes.
    ///
    /// # Panics
    /// In a forked child, which does not have them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.check();
        let base = self.mapping.base().as_ptr();
        // SAFETY: mapped for as long as `self` lives (not forked, as just checked), all bytes are
        // there and initialised by the kernel. Nobody else writes: the descriptor has never left
        // this value, or its file is sealed, and writing through the mapping takes `&mut self`. The kernel gives no
        // mapping longer than a slice can be.
        unsafe { slice::from_raw_parts(base, self.mapping.len_bytes()) }
    }

    /// Its bytes, to be written.
    ///
    /// # Panics
    /// As [`Self::bytes`].
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.check();
        let base = self.mapping.base().as_ptr();
        // SAFETY: as in `bytes`; the mapping is writable, and the only one of its file, or what is written to it is its own.
        unsafe { slice::from_raw_parts_mut(base, self.mapping.len_bytes()) }
    }

    /// Whether it was made before this process was forked, and is not there.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.mapping.is_forked()
    }

    fn check(&self) {
        assert!(
            !self.is_forked(),
            "this memory was made before fork() and is not there in the child; make it anew"
        );
    }

    /// Makes it constant. `munmap`, `fcntl`, and what [`Sealed::open`] does. Where somebody else uses a page for longer than the kernel
    /// waits (the kernel itself, or a child that was forked in the very moment of its creation), the bytes are copied to another file,
    /// which is sealed then.
    ///
    /// # Errors
    /// `EBUSY` where that has happened to each of three files.
    pub fn seal(self) -> Result<Sealed, Errno> {
        let Self { fd, mapping, .. } = match self.is_copy {
            true => self.copied()?,
            false => self,
        };
        let len_bytes = mapping.len_bytes();
        drop(mapping);
        Self::seal_file(fd, len_bytes)
    }

    /// Its bytes as they are now, which nobody can change. Bytes that are written later are not among them: a page is copied when it is
    /// first written. All are copied where there was such a snapshot before. `mmap`, `madvise`, `munmap`, `fcntl` twice, and what
    /// [`Sealed::open`] does.
    ///
    /// # Errors
    /// As [`Self::seal`]. The bytes stay.
    ///
    /// # Panics
    /// As [`Self::bytes`].
    pub fn snapshot(&mut self) -> Result<Sealed, Errno> {
        if self.is_copy {
            *self = self.copied()?;
        }
        self.check();
        let len_bytes = self.mapping.len_bytes();
        let fd = duplicate(&self.fd)?;
        // Before it is sealed, which takes that nobody can write to the file.
        self.mapping = Mapping::new(&self.fd, len_bytes, Access::CopyOnWrite)?;
        self.is_copy = true;
        Self::seal_file(fd, len_bytes)
    }

    /// The same bytes in a file of their own.
    fn copied(&self) -> Result<Self, Errno> {
        let mut copy = Self::create(self.mapping.len_bytes())?;
        copy.bytes_mut().copy_from_slice(self.bytes());
        Ok(copy)
    }

    fn seal_file(mut fd: OwnedFd, len_bytes: usize) -> Result<Sealed, Errno> {
        for _ in 1..SEAL_TRIES {
            match seal(&fd) {
                Err(Errno::BUSY) => fd = copy_of(&fd, len_bytes)?,
                other => return other.and_then(|()| Sealed::expect(fd)),
            }
        }
        seal(&fd).and_then(|()| Sealed::expect(fd))
    }
}

/// Another file with the same bytes.
fn copy_of(fd: &OwnedFd, len_bytes: usize) -> Result<OwnedFd, Errno> {
    let mut copy = Draft::create(len_bytes)?;
    read_whole(fd, copy.bytes_mut())?;
    Ok(copy.fd)
}

impl Sealed {
    /// One that has just been sealed.
    fn expect(fd: OwnedFd) -> Result<Self, Errno> {
        Self::open(fd)?.ok_or(Errno::PERM)
    }

    /// A memory file that somebody else has made and sealed. `None` when it can be changed still,
    /// has holes, or is empty. `fcntl`, `fstat` twice, `cachestat`, `mmap`; 65 more for more than 16 MiB.
    ///
    /// # Errors
    /// `EINVAL` when it is no memory file; `ENOMEM` when it cannot be mapped.
    pub fn open(fd: OwnedFd) -> Result<Option<Self>, Errno> {
        let len_bytes = constant_len(&fd)?.filter(|len_bytes| *len_bytes > 0);
        let Some(len_bytes) = len_bytes else {
            return Ok(None);
        };
        let mapping = Mapping::constant(&fd, len_bytes)?;
        Ok(Some(Self { fd, mapping }))
    }

    /// The same bytes, to be written: a page is copied when it is first written. Others that have the file do not see that. `mmap`, `madvise`,
    /// `munmap`.
    ///
    /// # Errors
    /// `ENOMEM` when it cannot be mapped.
    pub fn into_draft(self) -> Result<Draft, Errno> {
        let len_bytes = self.mapping.len_bytes();
        let mapping = Mapping::new(&self.fd, len_bytes, Access::CopyOnWrite)?;
        Ok(Draft {
            fd: self.fd,
            mapping,
            is_copy: true,
        })
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        let base = self.mapping.base().as_ptr();
        // SAFETY: mapped for as long as `self` lives, in forked children, too. The file was found
        // sealed against writing, growing, shrinking and other seals when it was opened, with all
        // its pages: nobody can change a byte for as long as it exists, and each can be read. Its
        // length fits a slice (`constant_len`).
        unsafe { slice::from_raw_parts(base, self.mapping.len_bytes()) }
    }

    /// The file.
    #[must_use]
    pub const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The file, no longer mapped.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_sys::memory::Access;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn what_was_written_is_there_once_sealed_and_for_whoever_opens_it() {
        for len_bytes in [1, 4095, 4096, 4097, 3 << 20] {
            let mut draft = Draft::create(len_bytes).unwrap();
            assert!(draft.bytes().iter().all(|byte| *byte == 0));
            for (at, byte) in draft.bytes_mut().iter_mut().enumerate() {
                *byte = at as u8 ^ 0x5a;
            }
            let written = draft.bytes().to_vec();
            let sealed = draft.seal().unwrap();
            assert_eq!(sealed.bytes(), written);
            let copy = sealed.fd().try_clone().unwrap();
            let other = Sealed::open(copy).unwrap().unwrap();
            assert_eq!(other.bytes(), written);
        }
        assert!(Draft::create(0).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn a_snapshot_has_none_of_what_is_written_later_nor_has_its_maker_what_its_holder_writes() {
        const LEN_BYTES: usize = 5 * 4096 + 1;
        let mut draft = Draft::create(LEN_BYTES).unwrap();
        let mut snapshots = Vec::new();
        for round in 1..4 {
            draft.bytes_mut()[..4096 * usize::from(round)].fill(round);
            let snapshot = draft.snapshot().unwrap();
            let fd = snapshot.fd().try_clone().unwrap();
            assert_eq!(constant_len(&fd).unwrap(), Some(LEN_BYTES));
            snapshots.push((snapshot, draft.bytes().to_vec()));
            draft.bytes_mut()[4096 * 5] = round;
        }
        for (snapshot, expected) in snapshots {
            assert_eq!(snapshot.bytes(), expected);
            let fd = snapshot.fd().try_clone().unwrap();
            let mut own = snapshot.into_draft().unwrap();
            assert_eq!(own.bytes(), expected);
            own.bytes_mut().fill(9);
            let again = own.snapshot().unwrap();
            assert!(again.bytes().iter().all(|byte| *byte == 9));
            assert!(own.seal().unwrap().bytes().iter().all(|byte| *byte == 9));
            assert_eq!(Sealed::open(fd).unwrap().unwrap().bytes(), expected);
        }
        assert_eq!(draft.bytes()[4096 * 5], 3);
        assert_eq!(draft.seal().unwrap().bytes()[4096 * 5], 3);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn what_can_still_be_written_is_not_opened() {
        let draft = Draft::create(4096).unwrap();
        let fd = draft.fd.try_clone().unwrap();
        assert!(Sealed::open(fd).unwrap().is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn what_somebody_else_may_write_is_copied() {
        let mut draft = Draft::create(5000).unwrap();
        draft.bytes_mut().fill(7);
        // As a child has it that was forked in that moment.
        let writer = Mapping::new(&draft.fd, 5000, Access::ReadWrite).unwrap();
        let sealed = draft.seal().unwrap();
        // SAFETY: nobody else looks at these bytes.
        unsafe { writer.base().as_ptr().write(8) };
        assert!(sealed.bytes().iter().all(|byte| *byte == 7));
        assert_eq!(sealed.bytes().len(), 5000);
    }
}
