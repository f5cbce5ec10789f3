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
/// shrinking, and punching holes (`F_SEAL_WRITE` or `F_SEAL_FUTURE_WRITE`): then they stay. `fstat` twice, `cachestat`; the time
/// does not depend on the length, unless there are pages behind the end. Waits for nobody.
///
/// Where the kernel has no `cachestat` (before Linux 6.5; a sandbox) pages behind the end count, too.
///
/// # Errors
/// None that the kernel documents for memory files.
pub(super) fn whole_len(fd: BorrowedFd<'_>) -> Result<Option<u64>, Errno> {
    let status = rustix::fs::fstat(fd)?;
    let (page, size) = (rustix::param::page_size() as u64, status.st_size);
    let (Ok(len_bytes), true) = (u64::try_from(size), has_blocks(&status)) else {
        return Ok(None);
    };
    let pages = len_bytes.div_ceil(page);
    let is_whole = match pages_from(fd, pages * page, TO_THE_END) {
        // Counted after the look behind the end: what was there before it may be gone since.
        Ok(0) => has_blocks(&rustix::fs::fstat(fd)?),
        // Honest where the kernel gives memory files large pages that they do not fill.
        Ok(_) if len_bytes > 0 => pages_from(fd, 0, len_bytes) == Ok(pages),
        Err(Errno::NOSYS | Errno::PERM) if !is_cachestat_known() => has_ordinary_pages(fd)?,
        Ok(_) | Err(_) => false,
    };
    Ok(is_whole.then_some(len_bytes))
}

/// Whether the pages of a memory file are the ones that all memory is made of: for huge pages there is a pool, and
/// `SIGBUS` when that is empty. `fstatfs`.
///
/// # Errors
/// None that the kernel documents for memory files.
pub(super) fn has_ordinary_pages(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(rustix::fs::fstatfs(fd)?.f_type == libc::TMPFS_MAGIC)
}

/// Whether a file's blocks would do for its length.
fn has_blocks(status: &rustix::fs::Stat) -> bool {
    /// The unit of `st_blocks`.
    const BLOCK_BYTES: i64 = 512;
    status.st_blocks.saturating_mul(BLOCK_BYTES) >= status.st_size
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
