//! Which pages of a region there are.
//!
//! A page of a memory file comes with the first access to it, and is charged to the memory limit of the process that made the
//! access, whoever made the file. So a peer that names places it has never touched could have another process pay for them, page
//! by page, and keep them there after its link has ended. Between processes of different users each therefore touches the pages
//! that the other is to use before it names them ([`Pages::make`]), and looks whether the other has done so
//! ([`Pages::is_there`]). What is there stays: the file is sealed against holes, and so a page is looked for once.

use crate::{Memory, View};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use handfast_layout::PAGE;
use handfast_sys::{Errno, OwnedFd, memory};

/// See the module text.
#[derive(Debug)]
pub(crate) struct Pages {
    /// `None`: whatever the other process does not make is made here.
    fd: Option<OwnedFd>,
    /// Those that are there for certain; a bit each.
    known: Box<[AtomicU64]>,
}

impl Pages {
    pub(crate) fn new(fd: Option<OwnedFd>, len_bytes: usize) -> Self {
        let words = len_bytes.div_ceil(PAGE).div_ceil(64);
        Self {
            fd,
            known: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether a range that lies in the region is there. One system call for one that has not been seen yet.
    pub(crate) fn is_there(&self, at: usize, len_bytes: usize) -> bool {
        self.are_known(at, len_bytes) || self.look(at, len_bytes)
    }

    /// Has a range that lies in the region be there.
    pub(crate) fn make(&self, view: View<'_>, at: usize, len_bytes: usize) {
        if !self.are_known(at, len_bytes) {
            self.touch(view, at, len_bytes);
        }
    }

    fn are_known(&self, at: usize, len_bytes: usize) -> bool {
        // Relaxed: a page that is there stays; nothing is said of its content.
        pages(at, len_bytes).all(|page| self.known[page / 64].load(Relaxed) & bit(page) != 0)
    }

    fn look(&self, at: usize, len_bytes: usize) -> bool {
        let Some(fd) = &self.fd else {
            return true;
        };
        let count = pages(at, len_bytes).count();
        let first = at / PAGE * PAGE;
        let are_there = match memory::pages_in(fd, first, count * PAGE) {
            Ok(there) => there == count as u64,
            // Where the kernel does not tell, it is as between processes of one user.
            Err(Errno::NOSYS | Errno::PERM) => true,
            Err(_) => false,
        };
        if are_there {
            self.note(at, len_bytes);
        }
        are_there
    }

    fn touch(&self, view: View<'_>, at: usize, len_bytes: usize) {
        for page in pages(at, len_bytes) {
            // Relaxed: the word stays what it is, whoever writes it meanwhile.
            view.fetch_or(page * PAGE, 0, Relaxed);
        }
        self.note(at, len_bytes);
    }

    fn note(&self, at: usize, len_bytes: usize) {
        for page in pages(at, len_bytes) {
            // Relaxed: as in `are_known`.
            self.known[page / 64].fetch_or(bit(page), Relaxed);
        }
    }
}

fn pages(at: usize, len_bytes: usize) -> core::ops::RangeInclusive<usize> {
    at / PAGE..=(at + len_bytes.max(1) - 1) / PAGE
}

const fn bit(page: usize) -> u64 {
    1 << (page % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;
    use handfast_sys::memory::{Access, Mapping, create_sealed};

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn a_range_is_there_once_somebody_has_touched_all_its_pages() {
        const LEN: usize = 80 * PAGE;
        let fd = create_sealed("pages", LEN).unwrap();
        let map = || Mapping::new(&fd, LEN, Access::ReadWrite).unwrap();
        let (own, peers) = (Region::mapped(map()), Region::mapped(map()));
        let own = own.with_pages(fd.try_clone().ok());
        let two = (62 * PAGE + 4000, PAGE);
        assert!(!own.is_there(two.0, two.1));
        peers.copy_in(two.0, b"a");
        assert!(!own.is_there(two.0, two.1) && own.is_there(two.0, 1));
        peers.copy_in(63 * PAGE + 7, b"b");
        assert!(own.is_there(two.0, two.1) && !own.is_there(two.0, two.1 + PAGE));
        own.make(61 * PAGE, 5 * PAGE);
        assert_eq!(memory::pages_in(&fd, 0, LEN), Ok(5));
        assert!(own.is_there(61 * PAGE, 5 * PAGE));
        let mut bytes = [0; 1];
        own.copy_out(two.0, &mut bytes);
        assert_eq!(&bytes, b"a");
        // Whoever has no use for that is told that all is there.
        assert!(peers.is_there(0, LEN));
    }
}
