//! Memory files that two processes write, and that neither can take pages away from.
//!
//! A hole punched into a memory file (`fallocate`, `MADV_REMOVE`) makes every process that touches the range wait for the
//! punch. `F_SEAL_FUTURE_WRITE` forbids punching, and new writable mappings, and leaves existing ones. So the file is
//! made without that seal, mapped by both, and sealed by the second. The first only *looks* at the seals: adding one waits
//! for any operation of the other process on the file meanwhile.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const ALL_SEALS: SealFlags = SIZE_SEALS
    .union(SealFlags::FUTURE_WRITE)
    .union(SealFlags::SEAL);

/// Creates a memory file of `len_bytes` zero bytes that keeps its size, to be mapped by two processes and then
/// [sealed](seal). `memfd_create`, `ftruncate`, `fcntl`.
///
/// # Errors
/// As [`create_sealed`](crate::memory::create_sealed).
pub fn create(name: &str, len_bytes: usize) -> Result<OwnedFd, Errno> {
    const FLAGS: MemfdFlags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
    let fd = match rustix::fs::memfd_create(name, FLAGS.union(MemfdFlags::NOEXEC_SEAL)) {
        // Kernels before 6.3 do not know the no-execute flag.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, FLAGS)?,
        other => other?,
    };
    rustix::fs::ftruncate(&fd, len_bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SIZE_SEALS)?;
    Ok(fd)
}

/// Whether `fd` is a memory file of exactly `len_bytes` bytes that keeps its size. Never blocks: `fcntl`, `fstat`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a memory file.
pub fn is_sized(fd: impl AsFd, len_bytes: usize) -> Result<bool, Errno> {
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    let size = rustix::fs::fstat(&fd)?.st_size;
    Ok(seals.contains(SIZE_SEALS) && usize::try_from(size) == Ok(len_bytes))
}

/// Forbids, for good, to take pages away from a file that both have mapped. Blocks while another process changes the
/// file (`fallocate`), for as long as that takes. `fcntl`.
///
/// # Errors
/// `EPERM` when it cannot be sealed any more.
pub fn seal(fd: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fcntl_add_seals(fd, ALL_SEALS)
}

/// Whether a file is as [`seal`] leaves it. Never blocks: `fcntl`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a memory file.
pub fn is_whole(fd: impl AsFd) -> Result<bool, Errno> {
    Ok(rustix::fs::fcntl_get_seals(fd)?.contains(ALL_SEALS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, Mapping};
    use rustix::fs::FallocateFlags;
    use rustix::mm::Advice;

    const LEN: usize = 8192;

    /// Takes the first page away, through the descriptor and through a mapping.
    fn punch(fd: &OwnedFd, mapping: &Mapping) -> [Result<(), Errno>; 2] {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // SAFETY: the range is the mapping's; nobody holds a reference into it.
        let removed = unsafe {
            rustix::mm::madvise(mapping.base().as_ptr().cast(), 4096, Advice::LinuxRemove)
        };
        [rustix::fs::fallocate(fd, hole, 0, 4096), removed]
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memory files")]
    fn security_finding_9_nobody_takes_pages_from_a_file_that_both_have_mapped() {
        let fd = create("shared", LEN).unwrap();
        assert!(is_sized(&fd, LEN).unwrap() && !is_sized(&fd, 4096).unwrap());
        assert!(!is_whole(&fd).unwrap());
        let [one, other] = [(); 2].map(|()| Mapping::new(&fd, LEN, Access::ReadWrite).unwrap());
        assert_eq!(punch(&fd, &one), [Ok(()), Ok(())]);
        seal(&fd).unwrap();
        assert!(is_whole(&fd).unwrap());
        for mapping in [&one, &other] {
            assert_eq!(punch(&fd, mapping), [Err(Errno::PERM); 2]);
        }
        // Both write as before, nobody else.
        // SAFETY: the first word of either mapping, which this test alone uses.
        let words = [&one, &other].map(|mapping| unsafe {
            core::sync::atomic::AtomicU32::from_ptr(mapping.base().as_ptr().cast())
        });
        words[0].store(7, core::sync::atomic::Ordering::Relaxed);
        assert_eq!(words[1].load(core::sync::atomic::Ordering::Relaxed), 7);
        assert!(Mapping::new(&fd, LEN, Access::ReadWrite).is_err());
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
        assert_eq!(seal(&fd), Err(Errno::PERM));
    }
}
