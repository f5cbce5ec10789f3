//! Landlock: rules about which files a process may open, which it puts on itself and never takes off again.

use crate::last_errno;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// The objects a rule can be about, and the access it allows; bits of the kernel's.
pub mod access {
    /// Opening a file to write to it.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Opening a file to read it.
    pub const READ_FILE: u64 = 1 << 2;
    /// Making a character device.
    pub const MAKE_CHAR: u64 = 1 << 6;
    /// Making a block device.
    pub const MAKE_BLOCK: u64 = 1 << 11;
    /// Linking or renaming into another directory; from version 2 on.
    pub const REFER: u64 = 1 << 13;
}

/// The version of the kernel's rules; 0 where it has none. `landlock_create_ruleset`.
#[must_use]
pub fn version() -> u32 {
    const VERSION: u32 = 1;
    let none: *const u8 = core::ptr::null();
    // SAFETY: with this flag the call reads no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Rules that are being made.
#[derive(Debug)]
pub struct Rules(OwnedFd);

impl Rules {
    /// Rules about `handled`: whatever of that no rule allows is denied. `landlock_create_ruleset`.
    ///
    /// # Errors
    /// `ENOSYS`, `EOPNOTSUPP` where the kernel has none; `EINVAL` for bits its version does not know.
    pub fn new(handled: u64) -> Result<Self, Errno> {
        // The first word of the kernel's structure: rights to files. The words left out are zero.
        // SAFETY: reads one word.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const handled,
                size_of::<u64>(),
                0,
            )
        };
        let fd = i32::try_from(fd).map_err(|_| Errno::INVAL)?;
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: a descriptor the kernel has just made for this call.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Allows `allowed` for a file, or for all that is in a directory. `landlock_add_rule`.
    ///
    /// # Errors
    /// `EINVAL` for rights that were not handled, or that a file cannot have.
    pub fn allow(&self, place: impl AsFd, allowed: u64) -> Result<(), Errno> {
        const BENEATH: u32 = 1;
        #[repr(C, packed)]
        struct Beneath {
            allowed: u64,
            place: i32,
        }
        let rule = Beneath {
            allowed,
            place: place.as_fd().as_raw_fd(),
        };
        // SAFETY: reads the structure.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.0.as_raw_fd(),
                BENEATH,
                &raw const rule,
                0,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    }

    /// Puts the rules on this thread, and on all threads and processes it makes from now on. `landlock_restrict_self`.
    ///
    /// # Errors
    /// `EPERM` without [`no_new_privileges`](crate::seccomp::no_new_privileges); `E2BIG` in 16 layers of rules.
    pub fn restrict(self) -> Result<(), Errno> {
        // SAFETY: takes integers.
        let result =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0) };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    }
}
