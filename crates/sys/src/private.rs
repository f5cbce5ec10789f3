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

/// As [`give_back`]; where the kernel refuses (a confined process), writes zeros over whatever is not zero. That keeps
/// the memory.
///
/// # Safety
/// As there; and this thread may touch the pages.
pub unsafe fn clear(at: NonNull<u8>, len_bytes: usize) {
    // SAFETY: the caller vouches for the pages.
    if unsafe { rustix::mm::madvise(at.as_ptr().cast(), len_bytes, Advice::LinuxDontNeed) }.is_ok()
    {
        return;
    }
    let first = at.cast::<u64>();
    for number in 0..len_bytes / size_of::<u64>() {
        // SAFETY: inside the pages.
        let word = unsafe { first.add(number) };
        // Looked at first: reading makes no page of one that does not exist.
        // SAFETY: the caller vouches for the pages.
        if unsafe { word.read_volatile() } != 0 {
            // SAFETY: as above.
            unsafe { word.write_volatile(0) };
        }
    }
}

/// A forked child has zeros in the place of these pages, whatever it is forked with. `madvise`.
///
/// # Errors
/// `EINVAL` for memory that is shared or has a file.
///
/// # Safety
/// Whole pages, of which no child needs what is in them.
pub unsafe fn wipe_in_children(at: NonNull<u8>, len_bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller vouches for the pages; this process's stay as they are.
    unsafe { rustix::mm::madvise(at.as_ptr().cast(), len_bytes, Advice::LinuxWipeOnFork) }
}

/// Whole pages of code, or of what is only read, in memory of their own: no file stands behind them any more.
/// `change` gets the copy before it takes the place of the original. Four system calls.
///
/// # Errors
/// `EACCES` where a security module forbids it. The pages are then as they were.
///
/// # Safety
/// The pages can be read, and belong to one mapping. No other thread runs, and nothing refers to the pages in a way
/// that `change` breaks.
pub unsafe fn replace(
    at: NonNull<u8>,
    len_bytes: usize,
    is_code: bool,
    change: impl FnOnce(&mut [u8]),
) -> Result<(), Errno> {
    let copy = Private::new(len_bytes)?;
    // SAFETY: the caller vouches for the source; the target is new and as long.
    unsafe { core::ptr::copy_nonoverlapping(at.as_ptr(), copy.base().as_ptr(), len_bytes) };
    // SAFETY: the whole new mapping, all of it written, and nobody else's.
    change(unsafe { core::slice::from_raw_parts_mut(copy.base().as_ptr(), len_bytes) });
    let last = if is_code {
        MprotectFlags::READ.union(MprotectFlags::EXEC)
    } else {
        MprotectFlags::READ
    };
    // SAFETY: the new mapping.
    unsafe { rustix::mm::mprotect(copy.base().as_ptr().cast(), len_bytes, last) }?;
    // SAFETY: the kernel puts the copy in the place of the original in one step: a thread that runs in it goes on in the
    // copy, which the caller vouches for.
    unsafe {
        rustix::mm::mremap_fixed(
            copy.base().as_ptr().cast(),
            len_bytes,
            len_bytes,
            rustix::mm::MremapFlags::MAYMOVE,
            at.as_ptr().cast(),
        )
    }?;
    // It lies elsewhere now.
    core::mem::forget(copy);
    Ok(())
}

/// New memory at an address where nothing is, readable and writable. `mmap`.
///
/// # Errors
/// `EEXIST` when something is there.
pub fn take_at(at: usize, len_bytes: usize) -> Result<Private, Errno> {
    let protection = ProtFlags::READ.union(ProtFlags::WRITE);
    let flags = MapFlags::PRIVATE.union(MapFlags::FIXED_NOREPLACE);
    let wanted: *mut core::ffi::c_void = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: with this flag nothing is replaced.
    let base = unsafe { rustix::mm::mmap_anonymous(wanted, len_bytes, protection, flags)? };
    let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
    // Kernels without the flag take the address for a wish.
    let memory = Private { base, len_bytes };
    if base.addr().get() == at {
        Ok(memory)
    } else {
        Err(Errno::EXIST)
    }
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
