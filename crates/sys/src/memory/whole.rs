//! Whether a memory file has all of its pages.
//!
//! A process that reads a page that is not there gets a new one, which is charged to the reader's memory limit. A file whose
//! pages are counted by `st_blocks` alone may have them *behind* its end instead (`FALLOC_FL_KEEP_SIZE`), and lose
//! them there after it was looked at (`ftruncate` to the same length). Seals forbid neither of the two later on, only
//! that pages within the file are taken away and that ones behind its end are added. So a file that is sealed against
//! growing, and has no page behind its end, has as many pages within it as its blocks say, for good.
//!
//! `SEEK_HOLE` would tell, too, but it looks at each page of an honest file, and waits for the holder of the file's lock:
//! before Linux 6.16 a peer that writes from memory which never comes (of a user-space file system) holds that for ever.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// The length of a memory file whose pages are all there, none of them a huge one of a pool. The file is sealed against growing,
/// shrinking, and punching holes (`F_SEAL_WRITE` or `F_SEAL_FUTURE_WRITE`): then they stay. `fstat` twice, `cachestat`; for a file of
/// more than [`SMALL_PAGES`] pages also `getrandom`, and `cachestat` [`SAMPLES`] times. Waits for nobody.
///
/// The time does not depend on the length or on pages behind the end, whose maker pays for them once and may show them often: an
/// honest file has no more of them than fill a large page. Others lie behind the end of a file that has as many holes, of which one is
/// found soon by looking at random.
///
/// Where the kernel has no `cachestat` (before Linux 6.5; a sandbox) pages behind the end count, too.
///
/// # Errors
/// `getrandom`'s; none else that the kernel documents for memory files.
pub(super) fn whole_len(fd: BorrowedFd<'_>) -> Result<Option<u64>, Errno> {
    let status = rustix::fs::fstat(fd)?;
    let page = rustix::param::page_size() as u64;
    let Ok(len_bytes) = u64::try_from(status.st_size) else {
        return Ok(None);
    };
    let pages = len_bytes.div_ceil(page);
    if !(pages..=pages + large_pages(page)).contains(&pages_of(&status, page)) {
        return Ok(None);
    }
    if pages > SMALL_PAGES && has_hole(fd, pages, page)? {
        return Ok(None);
    }
    let is_whole = match pages_from(fd, pages * page, TO_THE_END) {
        // Counted after the look behind the end, where none are added: what was there before it may be gone since.
        Ok(behind) if behind == 0 || len_bytes > 0 => {
            let all = pages_of(&rustix::fs::fstat(fd)?, page);
            all.checked_sub(behind)
                .is_some_and(|within| within >= pages)
        }
        Err(Errno::NOSYS | Errno::PERM) if !is_cachestat_known() => has_ordinary_pages(fd)?,
        Ok(_) | Err(_) => false,
    };
    Ok(is_whole.then_some(len_bytes))
}

/// Pages of a file whose pages behind the end are counted at once: about 0.2 ms at most.
const SMALL_PAGES: u64 = 4096;

/// Random looks into a larger file. If a part `p` of its pages is missing, they find none with a chance of `(1 - p)^64`, and so many
/// pages are counted behind the end: of 4 GiB, 6,000 on average where an owner chooses best.
const SAMPLES: usize = 64;

/// Pages in the largest page that the kernel may give a memory file, which the file does not need to fill.
const fn large_pages(page: u64) -> u64 {
    page / size_of::<u64>() as u64
}

/// Whether a page of a file is missing, as far as some looks at random tell.
fn has_hole(fd: BorrowedFd<'_>, pages: u64, page: u64) -> Result<bool, Errno> {
    let mut random = [[0; size_of::<u64>()]; SAMPLES];
    rustix::rand::getrandom(
        random.as_flattened_mut(),
        rustix::rand::GetRandomFlags::empty(),
    )?;
    let is_missing = |random: &[u8; 8]| {
        let at = u64::from_ne_bytes(*random) % pages * page;
        pages_from(fd, at, page) == Ok(0)
    };
    Ok(random.iter().any(is_missing))
}

/// Whether the pages of a memory file are the ones that all memory is made of: for huge pages there is a pool, and
/// `SIGBUS` when that is empty. `fstatfs`.
///
/// # Errors
/// None that the kernel documents for memory files.
pub(super) fn has_ordinary_pages(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(rustix::fs::fstatfs(fd)?.f_type == libc::TMPFS_MAGIC)
}

/// How many pages a file has, wherever they lie.
fn pages_of(status: &rustix::fs::Stat, page: u64) -> u64 {
    /// The unit of `st_blocks`.
    const BLOCK_BYTES: u64 = 512;
    let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
    blocks.saturating_mul(BLOCK_BYTES) / page
}

/// `struct cachestat_range` of the kernel.
#[repr(C)]
struct Range {
    at: u64,
    len_bytes: u64,
}

/// The length of a range without end.
const TO_THE_END: u64 = 0;

/// `struct cachestat` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Cached {
    here: u64,
    dirty: u64,
    being_written: u64,
    /// Pages of a memory file in swap space.
    evicted: u64,
    recently_evicted: u64,
}

/// The number on every architecture; the C library's bindings do not have it yet.
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages a file has in a range. `cachestat`, which takes no locks.
pub(super) fn pages_from(fd: BorrowedFd<'_>, at: u64, len_bytes: u64) -> Result<u64, Errno> {
    cachestat(fd.as_raw_fd(), &Range { at, len_bytes })
}

fn cachestat(fd: i32, range: &Range) -> Result<u64, Errno> {
    let mut cached = Cached::default();
    let range = core::ptr::from_ref(range);
    // SAFETY: both structures are the kernel's, and live during the call, which writes the second one only.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, range, &raw mut cached, 0) };
    match result {
        0 => Ok(cached.here.saturating_add(cached.evicted)),
        _ => Err(crate::last_errno()),
    }
}

/// Whether the kernel would have answered for another file. A refusal is no reason to trust the file then.
fn is_cachestat_known() -> bool {
    let nothing = Range {
        at: 0,
        len_bytes: 1,
    };
    cachestat(-1, &nothing) == Err(Errno::BADF)
}
