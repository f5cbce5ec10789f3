//! Memory of this process alone, reserved in one piece and used in parts.

use crate::keys::Key;
use crate::last_errno;
use core::ptr::NonNull;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// A private anonymous mapping, readable and writable; unmapped on drop. Pages exist once they are
/// touched. A forked child has a copy.
#[derive(Debug)]
pub struct Private {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: plain memory with no thread affinity; all access goes through raw pointers whose users
// state their own rules.
unsafe impl Send for Private {}
// SAFETY: as above; `Private` itself only hands out its base address and length.
unsafe impl Sync for Private {}

impl Private {
    /// Reserves `len_bytes` bytes of zeros. `mmap`.
    ///
    /// # Errors
    /// `ENOMEM` when the address space limit is reached; `EINVAL` for no bytes.
    pub fn new(len_bytes: usize) -> Result<Self, Errno> {
        let anywhere = core::ptr::null_mut();
        let protection = ProtFlags::READ.union(ProtFlags::WRITE);
        let flags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);
        // SAFETY: a null hint lets the kernel choose an unused range; nothing is replaced.
        let base = unsafe { rustix::mm::mmap_anonymous(anywhere, len_bytes, protection, flags)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len_bytes })
    }

    /// First byte; a page boundary.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Puts all of it under `key`: threads without rights to it fault from now on. `pkey_mprotect`.
    ///
    /// # Errors
    /// `ENOMEM` when the kernel has no room for another kind of mapping.
    pub fn protect(&self, key: &Key) -> Result<(), Errno> {
        const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is this mapping. The call changes only who may touch it, and a touch
        // without rights is a signal, not a wrong value.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pkey_mprotect,
                self.base.as_ptr(),
                self.len_bytes,
                READ_WRITE,
                key.number(),
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and no pointer into it outlives `self` (users hold
        // the mapping for as long as they access it).
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// Bytes of a page. No system call.
#[must_use]
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Makes whole pages inaccessible for good. `mprotect`.
///
/// # Errors
/// `ENOMEM` when the kernel has no room for another kind of mapping.
///
/// # Safety
/// The pages are part of a [`Private`] that lives, and nothing in them is used.
pub unsafe fn close(at: NonNull<u8>, len_bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller vouches for the pages.
    unsafe { rustix::mm::mprotect(at.as_ptr().cast(), len_bytes, MprotectFlags::empty()) }
}

/// Makes whole pages readable only, or writable again. `mprotect`.
///
/// # Errors
/// `ENOMEM` when the kernel has no room for another kind of mapping.
///
/// # Safety
/// The pages are the caller's, and nobody writes them while they are readable only.
pub unsafe fn set_writable(at: NonNull<u8>, len_bytes: usize, on: bool) -> Result<(), Errno> {
    let flags = if on {
        MprotectFlags::READ.union(MprotectFlags::WRITE)
    } else {
        MprotectFlags::READ
    };
    // SAFETY: the caller vouches for the pages.
    unsafe { rustix::mm::mprotect(at.as_ptr().cast(), len_bytes, flags) }
}

/// Gives the memory of whole pages back; they are zeros when they are touched again. `madvise`.
///
/// # Safety
/// The pages are part of a [`Private`] that lives, and nobody relies on what is in them.
pub unsafe fn give_back(at: NonNull<u8>, len_bytes: usize) {
    // SAFETY: the caller vouches for the pages. A failure leaves them as they were.
    let _ = unsafe { rustix::mm::madvise(at.as_ptr().cast(), len_bytes, Advice::LinuxDontNeed) };
}

/// How many of the pages of a range exist. `mincore`; for tests and reports.
///
/// # Errors
/// `ENOMEM` when part of the range is not mapped.
pub fn resident_pages(at: NonNull<u8>, len_bytes: usize) -> Result<usize, Errno> {
    let mut pages = vec![0u8; len_bytes.div_ceil(page_bytes())];
    // SAFETY: the vector has a byte for every page of the range; the range itself is not touched.
    let result = unsafe { libc::mincore(at.as_ptr().cast(), len_bytes, pages.as_mut_ptr()) };
    if result != 0 {
        return Err(last_errno());
    }
    Ok(pages.iter().filter(|page| **page & 1 != 0).count())
}
