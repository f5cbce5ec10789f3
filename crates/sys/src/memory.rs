//! Sealed memory files and their mappings.

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
/// pages and keeps them, since whoever could write it only through a descriptor can punch no hole either.
/// So reading a mapping of it needs no further memory and raises no `SIGBUS`. `fcntl`, `fstat`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a memory file.
pub fn is_lent(fd: impl AsFd, len_bytes: usize) -> Result<bool, Errno> {
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    if !seals.contains(LENT_SEALS) {
        return Ok(false);
    }
    let status = rustix::fs::fstat(&fd)?;
    let is_whole = status.st_blocks.saturating_mul(BLOCK_BYTES) >= status.st_size;
    Ok(is_whole && usize::try_from(status.st_size) == Ok(len_bytes))
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
/// so that touching a mapping of it cannot raise `SIGBUS` for lack of a page. `fcntl`, `fstat`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a memory file.
pub fn is_sealed(fd: impl AsFd, len_bytes: usize) -> Result<bool, Errno> {
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    let size = rustix::fs::fstat(&fd)?.st_size;
    Ok(seals.contains(SIZE_SEALS) && usize::try_from(size) == Ok(len_bytes))
}

/// Creates a memory file of `len_bytes` zero bytes that can still be sealed, with all its pages:
/// a lack of memory is an error here, and not a signal later. `sysinfo`, `memfd_create`, `fallocate`
/// for each 2 MiB.
///
/// # Errors
/// As [`create_sealed`]; `ENOMEM` at once for more than the machine has.
pub fn create_whole(name: &str, len_bytes: usize) -> Result<OwnedFd, Errno> {
    /// A signal undoes what one call has done so far; in steps, it makes progress nevertheless.
    const STEP: u64 = 2 << 20;
    let (machine, len_bytes) = (rustix::system::sysinfo(), len_bytes as u64);
    let pages = machine.totalram.saturating_add(machine.totalswap);
    // The kernel would go on until it kills somebody.
    if len_bytes > pages.saturating_mul(machine.mem_unit.into()) {
        return Err(Errno::NOMEM);
    }
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
                at += step;
            }
        }
    }
    Ok(fd)
}

/// Seals a memory file for good: nobody can write it or change its length any more. `fcntl`.
///
/// # Errors
/// `EBUSY` while somebody has it mapped writable; `EPERM` when it cannot be sealed.
pub fn seal(fd: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fcntl_add_seals(fd, CONSTANT_SEALS)
}

/// The length of a memory file that nobody can change any more and that has all its pages, so that
/// looking at it finds the same bytes at any time and raises no `SIGBUS`; `None` for one of another
/// kind. `fcntl`, `fstat`.
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
    let status = rustix::fs::fstat(&fd)?;
    let is_whole = status.st_blocks.saturating_mul(BLOCK_BYTES) >= status.st_size;
    let len_bytes = usize::try_from(status.st_size).ok();
    // What may be larger is no slice.
    Ok(len_bytes.filter(|len_bytes| is_whole && isize::try_from(*len_bytes).is_ok()))
}

/// What tells one memory file from another: device and inode. `fstat`.
///
/// # Errors
/// `EBADF` when it is no descriptor.
pub fn identity(fd: impl AsFd) -> Result<(u64, u64), Errno> {
    let status = rustix::fs::fstat(fd)?;
    Ok((status.st_dev, status.st_ino))
}

/// What a mapping may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
}

/// A shared mapping of a memory file; unmapped on drop. Not inherited by `fork`: a child that
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
    /// Maps the first `len_bytes` bytes of `fd`. `mmap(MAP_SHARED)`, `madvise(MADV_DONTFORK)`.
    ///
    /// # Errors
    /// `ENOMEM` when the address space limit is reached; `EPERM` when the file's seals forbid it.
    pub fn new(fd: impl AsFd, len_bytes: usize, access: Access) -> Result<Self, Errno> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ.union(ProtFlags::WRITE),
        };
        crate::process::watch_forks();
        let mut mapping = Self::map(fd, len_bytes, protection, MapFlags::SHARED)?;
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
        let base = unsafe { rustix::mm::mmap(anywhere, len_bytes, protection, flags, fd, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
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
/// What `st_blocks` counts.
const BLOCK_BYTES: i64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn a_sealed_file_keeps_its_size_and_says_so() {
        let fd = create_sealed("test", 8192).unwrap();
        assert!(is_sealed(&fd, 8192).unwrap());
        assert!(!is_sealed(&fd, 4096).unwrap());
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn an_unsealed_file_and_an_ordinary_file_are_told_apart() {
        let open = rustix::fs::memfd_create("open", FLAGS).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert_eq!(is_sealed(&open, 4096), Ok(false));
        let plain = std::fs::File::open("/proc/self/status").unwrap();
        assert!(is_sealed(&plain, 4096).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn only_the_owner_writes_an_owner_written_file() {
        let (fd, _mapping) = create_owner_written("counters", 4096).unwrap();
        assert!(is_sealed(&fd, 4096).unwrap());
        assert!(Mapping::new(&fd, 4096, Access::ReadWrite).is_err());
        assert!(Mapping::new(&fd, 4096, Access::Read).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn a_lent_file_is_whole_and_stays_so_and_only_its_owner_writes_it() {
        let (fd, mapping) = create_lent("lent", 8192).unwrap();
        assert_eq!(is_lent(&fd, 8192), Ok(true));
        assert_eq!(is_lent(&fd, 4096), Ok(false));
        assert!(Mapping::new(&fd, 8192, Access::ReadWrite).is_err());
        assert!(Mapping::new(&fd, 8192, Access::Read).is_ok());
        assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&fd, hole, 0, 4096), Err(Errno::PERM));
        // Nor can its owner take pages away through the mapping.
        // SAFETY: the range is the mapping's; nobody holds a reference into it.
        let removed = unsafe {
            rustix::mm::madvise(mapping.base().as_ptr().cast(), 4096, Advice::LinuxRemove)
        };
        assert_eq!(removed, Err(Errno::PERM));
        assert_eq!(is_lent(&fd, 8192), Ok(true));

        let (sparse, _mapping) = create_owner_written("sparse", 8192).unwrap();
        assert_eq!(is_lent(&sparse, 8192), Ok(false));
        assert_eq!(
            is_lent(create_sealed("sized", 4096).unwrap(), 4096),
            Ok(false)
        );
        assert_eq!(
            is_lent(create_whole("open", 4096).unwrap(), 4096),
            Ok(false)
        );
        let plain = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(is_lent(&plain, 0), Err(Errno::INVAL));
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn a_constant_file_is_sealed_in_every_way_and_whole() {
        let fd = create_whole("whole", 5000).unwrap();
        assert_eq!(constant_len(&fd), Ok(None));
        let mapping = Mapping::new(&fd, 5000, Access::ReadWrite).unwrap();
        assert_eq!(seal(&fd), Err(Errno::BUSY));
        drop(mapping);
        seal(&fd).unwrap();
        assert_eq!(constant_len(&fd), Ok(Some(5000)));
        assert!(rustix::io::write(&fd, b"x").is_err());
        assert!(Mapping::new(&fd, 5000, Access::ReadWrite).is_err());
        assert!(Mapping::constant(&fd, 5000).is_ok());

        let sized = create_sealed("sized", 4096).unwrap();
        assert_eq!(constant_len(&sized), Ok(None));
        let (owned, _writes) = create_owner_written("owned", 4096).unwrap();
        assert_eq!(constant_len(&owned), Ok(None));
        let plain = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(constant_len(&plain), Err(Errno::INVAL));
        // With a hole, which would have to be filled by whoever looks.
        let sparse = rustix::fs::memfd_create("sparse", FLAGS).unwrap();
        rustix::fs::ftruncate(&sparse, 1 << 20).unwrap();
        rustix::io::write(&sparse, b"x").unwrap();
        seal(&sparse).unwrap();
        assert_eq!(constant_len(&sparse), Ok(None));
        let empty = rustix::fs::memfd_create("empty", FLAGS).unwrap();
        seal(&empty).unwrap();
        assert_eq!(constant_len(&empty), Ok(Some(0)));
    }
}
