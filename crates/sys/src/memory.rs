//! Sealed memory files and their mappings.

mod whole;

use core::ptr::NonNull;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Creates an anonymous memory file of `len_bytes` zero bytes, sealed against shrinking, growing
/// and further seals. `memfd_create`, `ftruncate`, `fcntl(F_ADD_SEALS)`.
///
/// # Errors
/// `ENOSYS`/`EPERM` where a sandbox forbids memory files, `EMFILE`/`ENFILE` without descriptors,
/// `ENOMEM`/`ENOSPC` without memory.
pub fn create_sealed(name: &str, len_bytes: usize) -> Result<OwnedFd, Errno> {
    let fd = match rustix::fs::memfd_create(name, FLAGS.union(MemfdFlags::NOEXEC_SEAL)) {
        // Kernels before 6.3 do not know the no-execute flag.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, FLAGS)?,
        other => other?,
    };
    rustix::fs::ftruncate(&fd, len_bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SIZE_SEALS)?;
    Ok(fd)
}

/// As [`create_sealed`], mapped writable for the caller alone: after the mapping is made the file
/// is sealed so that every other mapping of it is read-only (`F_SEAL_FUTURE_WRITE`).
///
/// # Errors
/// As [`create_sealed`] and [`Mapping::new`].
pub fn create_owner_written(name: &str, len_bytes: usize) -> Result<(OwnedFd, Mapping), Errno> {
    let flags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
    let fd = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&fd, len_bytes as u64)?;
    let mapping = Mapping::new(&fd, len_bytes, Access::ReadWrite)?;
    rustix::fs::fcntl_add_seals(&fd, SIZE_SEALS.union(SealFlags::FUTURE_WRITE))?;
    Ok((fd, mapping))
}

/// As [`create_whole`], mapped writable for the caller alone, as [`create_owner_written`] does.
///
/// # Errors
/// As both.
pub fn create_lent(name: &str, len_bytes: usize) -> Result<(OwnedFd, Mapping), Errno> {
    let fd = create_whole(name, len_bytes)?;
    let mapping = Mapping::new(&fd, len_bytes, Access::ReadWrite)?;
    rustix::fs::fcntl_add_seals(&fd, LENT_SEALS)?;
    Ok((fd, mapping))
}

/// Whether `fd` is a memory file of exactly `len_bytes` bytes as [`create_lent`] makes them: it has all its
/// pages and keeps them, since a process that could write it only through a descriptor can punch no hole either.
/// So reading a mapping of it needs no further memory and raises no `SIGBUS`. `fcntl`, `fstat` twice, `cachestat`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a memory file.
pub fn is_lent(fd: impl AsFd, len_bytes: usize) -> Result<bool, Errno> {
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    if !seals.contains(LENT_SEALS) {
        return Ok(false);
    }
    Ok(whole::whole_len(fd.as_fd())? == Some(len_bytes as u64))
}

/// How many pages of a memory file there are in a range, pages in swap space included. The others cost the process that touches
/// them first a page. `cachestat`; waits for nobody.
///
/// # Errors
/// `ENOSYS` before Linux 6.5; `EPERM` in a sandbox that does not know the call.
pub fn pages_in(fd: impl AsFd, at: usize, len_bytes: usize) -> Result<u64, Errno> {
    whole::pages_from(fd.as_fd(), at as u64, len_bytes as u64)
}

/// Writes `len_bytes` bytes at `from` to a descriptor. `write`; blocks as that does. Returns how many were
/// written.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The bytes are readable during the call. Others may write them meanwhile.
pub unsafe fn write_from(
    to: BorrowedFd<'_>,
    from: NonNull<u8>,
    len_bytes: usize,
) -> Result<usize, Errno> {
    // SAFETY: the caller vouches for the bytes; the kernel alone looks at them.
    let written = unsafe { libc::write(to.as_raw_fd(), from.as_ptr().cast(), len_bytes) };
    usize::try_from(written).map_err(|_| crate::last_errno())
}

/// Whether `fd` is a memory file of exactly `len_bytes` bytes that can no longer change its size,
/// and is not of huge pages, which may run out, so that touching a mapping of it cannot raise `SIGBUS` for
/// lack of a page. `fcntl`, `fstat`, `fstatfs`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a memory file.
pub fn is_sealed(fd: impl AsFd, len_bytes: usize) -> Result<bool, Errno> {
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    let size = rustix::fs::fstat(&fd)?.st_size;
    let is_sealed = seals.contains(SIZE_SEALS) && usize::try_from(size) == Ok(len_bytes);
    Ok(is_sealed && whole::has_ordinary_pages(fd.as_fd())?)
}

/// Creates a memory file of `len_bytes` zero bytes that can still be sealed, with all its pages:
/// a lack of memory is an error here, and not a signal later. `sysinfo`, `memfd_create`, `fallocate` and `madvise`
/// for each 2 MiB; once or twice more for a thread that is moved to another processor meanwhile.
///
/// # Errors
/// As [`create_sealed`]; `ENOMEM` at once for more than the machine has.
pub fn create_whole(name: &str, len_bytes: usize) -> Result<OwnedFd, Errno> {
    let (machine, len_bytes) = (rustix::system::sysinfo(), len_bytes as u64);
    let pages = machine.totalram.saturating_add(machine.totalswap);
    // The kernel would go on until it kills somebody.
    if len_bytes > pages.saturating_mul(machine.mem_unit.into()) {
        return Err(Errno::NOMEM);
    }
    let tries = match len_bytes > STEP {
        // Of so many pages, few are in a list at any time, and allocating them again takes long.
        true => 1,
        false => CREATE_TRIES,
    };
    on_one_cpu(tries, crate::cpu::current, || allocate(name, len_bytes))
}

/// Makes something on one processor: anew for a thread that is moved meanwhile, so many times in all. Such a thread leaves new pages
/// in the list of the other processor, and sealing them would wait for that processor.
fn on_one_cpu<T>(
    tries: u32,
    cpu: impl Fn() -> u32,
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    for _ in 1..tries {
        let before = cpu();
        let made = make()?;
        if cpu() == before {
            return Ok(made);
        }
    }
    make()
}

/// Bytes allocated at once: a signal undoes what one call has done so far; in steps, it makes progress nevertheless.
const STEP: u64 = 2 << 20;

/// How often a file is allocated for a thread that is moved each time.
const CREATE_TRIES: u32 = 3;

fn allocate(name: &str, len_bytes: u64) -> Result<OwnedFd, Errno> {
    let fd = match rustix::fs::memfd_create(name, FLAGS.union(MemfdFlags::NOEXEC_SEAL)) {
        // Kernels before 6.3 do not know the no-execute flag.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, FLAGS)?,
        other => other?,
    };
    let mut at = 0;
    while at < len_bytes {
        let step = STEP.min(len_bytes - at);
        match rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), at, step) {
            Err(Errno::INTR) => {}
            other => {
                other?;
                list_new_pages();
                at += step;
            }
        }
    }
    Ok(fd)
}

/// Seals a memory file for good: nobody can write it or change its length any more. `fcntl`, of some microseconds; where the kernel
/// uses a page at that moment to move it, it waits for that, some 150 ms at most; where another processor has yet to list a page, until that
/// one has had time, a second on a busy machine.
///
/// # Errors
/// `EBUSY` while somebody has it mapped writable, or where the kernel has used a page for longer than that; `EPERM` when it cannot
/// be sealed.
pub fn seal(fd: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fcntl_add_seals(&fd, CONSTANT_SEALS)
}

/// Copies bytes of a file, from its beginning, until `into` is full. `pread`.
///
/// # Errors
/// The kernel's; `EIO` where the file is shorter.
pub fn read_whole(fd: impl AsFd, into: &mut [u8]) -> Result<(), Errno> {
    let mut at = 0;
    while at < into.len() {
        match rustix::io::pread(&fd, &mut into[at..], at as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => at += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Has the kernel put pages that this thread has just allocated into its lists. Until then they are in the list of new pages of one
/// processor, and [`seal`] on another waits until that one has had time. One system call.
fn list_new_pages() {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    static PAGE: Page = Page([0; 4096]);
    let page = core::ptr::from_ref(&PAGE.0).cast_mut();
    // SAFETY: the page is mapped, and says only that it is not needed soon; the kernel empties the list before it looks at it. An
    // error means that sealing may wait.
    let _ = unsafe { rustix::mm::madvise(page.cast(), 4096, Advice::LinuxCold) };
}

/// The length of a memory file that nobody can change any more and that has all its pages, so that
/// looking at it finds the same bytes at any time and raises no `SIGBUS`; `None` for one of another
/// kind. `fcntl`, `fstat` twice, `cachestat`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a memory file.
pub fn constant_len(fd: impl AsFd) -> Result<Option<usize>, Errno> {
    // First: it asks nothing of the file system behind a descriptor of another kind, which may be
    // one that does not answer.
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    if !seals.contains(CONSTANT_SEALS) {
        return Ok(None);
    }
    let len_bytes = whole::whole_len(fd.as_fd())?;
    // A file that may be larger is no slice.
    Ok(len_bytes.and_then(|len_bytes| Some(isize::try_from(len_bytes).ok()?.cast_unsigned())))
}

/// Whether it is a memory file, which never blocks a process that looks at it or closes it. One system call.
#[must_use]
pub fn has_seals(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok()
}

/// The identity of a memory file: device and inode. `fstat`.
///
/// # Errors
/// `EBADF` when it is no descriptor.
pub fn identity(fd: impl AsFd) -> Result<(u64, u64), Errno> {
    let status = rustix::fs::fstat(fd)?;
    Ok((status.st_dev, status.st_ino))
}

/// The access that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
    /// Read and write; what is written is this mapping's alone: a page is copied when it is first written. No access to what others write
    /// to the file later, where they can.
    CopyOnWrite,
}

/// A mapping of a memory file, most often a shared one; unmapped on drop. Not inherited by `fork`: a child that
/// touches it faults, which the fork check of the port layer prevents.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len_bytes: usize,
    /// The process that made it; a forked child has no such mapping to remove. `None`: it has.
    epoch: Option<u32>,
}

// SAFETY: the mapping is plain memory with no thread affinity; all access to it goes through raw
// pointers whose users state their own rules.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself only hands out its base address and length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len_bytes` bytes of `fd`. `mmap`, `madvise(MADV_DONTFORK)`.
    ///
    /// # Errors
    /// `ENOMEM` when the address space limit is reached; `EPERM` when the file's seals forbid it.
    pub fn new(fd: impl AsFd, len_bytes: usize, access: Access) -> Result<Self, Errno> {
        let both = ProtFlags::READ.union(ProtFlags::WRITE);
        let (protection, flags) = match access {
            Access::Read => (ProtFlags::READ, MapFlags::SHARED),
            Access::ReadWrite => (both, MapFlags::SHARED),
            Access::CopyOnWrite => (both, MapFlags::PRIVATE),
        };
        crate::process::watch_forks();
        let mut mapping = Self::map(fd, len_bytes, protection, flags)?;
        // SAFETY: the range was just mapped and belongs to this value alone. DONTFORK changes
        // only what a child process inherits.
        unsafe {
            rustix::mm::madvise(
                mapping.base.as_ptr().cast(),
                len_bytes,
                Advice::LinuxDontFork,
            )?;
        }
        mapping.epoch = Some(crate::process::fork_epoch());
        Ok(mapping)
    }

    /// Maps the first `len_bytes` bytes of a file that nobody can change ([`constant_len`]), read
    /// only; forked children have it, too. `mmap(MAP_PRIVATE)`: kernels before 6.7 refuse shared
    /// mappings of a file sealed against writing.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn constant(fd: impl AsFd, len_bytes: usize) -> Result<Self, Errno> {
        Self::map(fd, len_bytes, ProtFlags::READ, MapFlags::PRIVATE)
    }

    fn map(
        fd: impl AsFd,
        len_bytes: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Errno> {
        let anywhere = core::ptr::null_mut();
        // SAFETY: a null hint lets the kernel choose an unused range; nothing is replaced.
        let base = unsafe { rustix::mm::mmap(anywhere, len_bytes, protection, flags, &fd, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        #[cfg(feature = "simulation")]
        crate::simulation::mapped(base, len_bytes, fd);
        Ok(Self {
            base,
            len_bytes,
            epoch: None,
        })
    }

    /// Whether this process is a forked child of the one that made it, and has no such mapping.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.epoch
            .is_some_and(|epoch| epoch != crate::process::fork_epoch())
    }

    /// First byte. Valid for [`Self::len_bytes`] bytes while `self` lives; other processes may
    /// write there at any time.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        #[cfg(feature = "simulation")]
        crate::simulation::unmapped(self.base);
        // SAFETY: the range was mapped by `map` and no pointer into it outlives `self` (users
        // hold the mapping for as long as they access it).
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

const FLAGS: MemfdFlags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
const SIZE_SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);
const LENT_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::FUTURE_WRITE);
const CONSTANT_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::WRITE);

#[cfg(test)]
mod tests;
