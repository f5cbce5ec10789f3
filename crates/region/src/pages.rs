//! Which pages of a region there are.
//!
//! A page of a memory file comes with the first access to it, and is charged to the memory limit of the process that made the
//! access, not of the file's maker. So a peer that names places it has never touched could have another process pay for them, page
//! by page, and keep them there after its link has ended. On a link between users, the connector therefore
//! touches the pages that it has the acceptor use before it names them ([`Pages::make`]), and the acceptor, whom everybody can
//! connect to, looks whether it has done so ([`Pages::is_there`]). Existing pages stay: the file is sealed against holes, and so a
//! page is looked for once.

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use handfast_layout::PAGE;
use handfast_sys::{Errno, OwnedFd, memory};
use std::sync::{PoisonError, RwLock};

/// See the module text.
#[derive(Debug)]
pub(crate) struct Pages {
    whose: Whose,
    /// The pages that are there for certain; a bit each.
    known: Box<[AtomicU64]>,
}

/// The process that touches the pages first.
#[derive(Debug)]
enum Whose {
    Own,
    /// This one looks for them in the file, as long as it has that.
    Peers(RwLock<Option<OwnedFd>>),
}

impl Pages {
    /// Pages that this process makes, or the peer, in a file.
    pub(crate) fn new(fd: Option<OwnedFd>, len_bytes: usize) -> Self {
        let whose = fd.map_or(Whose::Own, |fd| Whose::Peers(RwLock::new(Some(fd))));
        let words = len_bytes.div_ceil(PAGE).div_ceil(64);
        Self {
            whose,
            known: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) const fn are_looked_for(&self) -> bool {
        matches!(self.whose, Whose::Peers(_))
    }

    /// Closes the file: a range that has not been seen yet is not there from now on.
    pub(crate) fn stop_looking(&self) {
        if let Whose::Peers(file) = &self.whose {
            *file.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Whether a range that lies in the region is there. One system call for one that has not been seen yet.
    pub(crate) fn is_there(&self, at: usize, len_bytes: usize) -> bool {
        self.are_known(at, len_bytes) || self.look(at, len_bytes)
    }

    /// Has a range that lies in the region be there; `touch` makes a page, by its offset.
    pub(crate) fn make(&self, at: usize, len_bytes: usize, touch: impl Fn(usize)) {
        if !self.are_looked_for() && !self.are_known(at, len_bytes) {
            pages(at, len_bytes).for_each(|page| touch(page * PAGE));
            self.note(at, len_bytes);
        }
    }

    fn are_known(&self, at: usize, len_bytes: usize) -> bool {
        let pages = pages(at, len_bytes);
        let mut words = pages.start() / 64..=pages.end() / 64;
        // Relaxed: a page that is there stays; nothing is said of its content.
        words.all(|word| !self.known[word].load(Relaxed) & bits(&pages, word) == 0)
    }

    fn look(&self, at: usize, len_bytes: usize) -> bool {
        let Whose::Peers(file) = &self.whose else {
            return true;
        };
        let file = file.read().unwrap_or_else(PoisonError::into_inner);
        let Some(fd) = &*file else {
            return false;
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

    fn note(&self, at: usize, len_bytes: usize) {
        let pages = pages(at, len_bytes);
        for word in pages.start() / 64..=pages.end() / 64 {
            // Relaxed: as in `are_known`.
            self.known[word].fetch_or(bits(&pages, word), Relaxed);
        }
    }
}

fn pages(at: usize, len_bytes: usize) -> RangeInclusive<usize> {
    at / PAGE..=(at + len_bytes.max(1) - 1) / PAGE
}

/// The bits of pages in a word that has some of them.
fn bits(pages: &RangeInclusive<usize>, word: usize) -> u64 {
    let first = pages.start().saturating_sub(word * 64);
    let last = (pages.end() - word * 64).min(63);
    u64::MAX << first & u64::MAX >> (63 - last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Region};
    use handfast_sys::memory::{Access, Mapping, create_sealed};

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn a_range_is_there_once_somebody_has_touched_all_its_pages() {
        const LEN: usize = 80 * PAGE;
        let fd = create_sealed("pages", LEN).unwrap();
        let map = || Mapping::new(&fd, LEN, Access::ReadWrite).unwrap();
        let (own, peers) = (Region::mapped(map()), Region::mapped(map()));
        let own = own.looking_for_pages(fd.try_clone().unwrap());
        let peers = peers.making_pages();
        let two = (62 * PAGE + 4000, PAGE);
        assert!(!own.is_there(two.0, two.1));
        peers.copy_in(two.0, b"a");
        assert!(!own.is_there(two.0, two.1) && own.is_there(two.0, 1));
        peers.copy_in(63 * PAGE + 7, b"b");
        assert!(own.is_there(two.0, two.1) && !own.is_there(two.0, two.1 + PAGE));
        // A look makes no pages.
        own.make(61 * PAGE, 5 * PAGE);
        assert!(!own.is_there(61 * PAGE, 5 * PAGE));
        peers.make(61 * PAGE, 5 * PAGE);
        assert_eq!(memory::pages_in(&fd, 0, LEN), Ok(5));
        assert!(own.is_there(61 * PAGE, 5 * PAGE));
        peers.make_bytes(70 * PAGE + 5, 2 * PAGE);
        assert_eq!(memory::pages_in(&fd, 0, LEN), Ok(8));
        let mut bytes = [0; 1];
        own.copy_out(two.0, &mut bytes);
        assert_eq!(&bytes, b"a");
        // The side that makes them does not look.
        assert!(peers.is_there(0, LEN));
        own.stop_looking();
        peers.make(0, PAGE);
        assert!(own.is_there(two.0, two.1) && !own.is_there(0, PAGE));
        assert!(own.looks_for_pages());
    }
}
