//! Memory protection keys: which pages this thread may touch, changed without a system call.

use crate::last_errno;
use rustix::io::Errno;

/// Keys a process can have beside key 0, which all memory has at first. The kernel takes one of
/// them itself for the first execute-only mapping.
pub const KEYS: u32 = 15;

/// A protection key; given back on drop.
#[derive(Debug)]
pub struct Key(u32);

impl Key {
    /// A key nobody has, to whose pages this thread has no access; nor has any other that never
    /// changed its own rights. `pkey_alloc`.
    ///
    /// # Errors
    /// `ENOSPC` when all are taken, or the processor or the kernel has none; [`are_supported`]
    /// tells which. `ENOSYS` where a sandbox forbids the call.
    pub fn allocate() -> Result<Self, Errno> {
        // SAFETY: the call takes two integers and touches no memory.
        let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, PKEY_DISABLE_ACCESS) };
        u32::try_from(key).map(Self).map_err(|_| last_errno())
    }

    /// Its number, 1 to [`KEYS`].
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the call takes an integer and touches no memory. Pages that still had the key
        // would become another's; users unmap theirs before.
        unsafe { libc::syscall(libc::SYS_pkey_free, self.0) };
    }
}

/// Whether the processor has keys and the kernel lets programs use them. No system call.
#[must_use]
pub fn are_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // Leaf 7: ECX bit 4 is set by the kernel's own switch (OSPKE), not by the processor.
        const OSPKE: u32 = 1 << 4;
        core::arch::x86_64::__cpuid_count(7, 0).ecx & OSPKE != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether the processor has keys, whatever the kernel does with them. No system call.
#[must_use]
pub fn has_processor() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        /// Leaf 7: ECX bit 3.
        const PKU: u32 = 1 << 3;
        core::arch::x86_64::__cpuid_count(7, 0).ecx & PKU != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

const PKEY_DISABLE_ACCESS: libc::c_ulong = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no keys")]
    fn keys_are_given_out_once_and_come_back() {
        if !are_supported() {
            assert!(Key::allocate().is_err());
            return;
        }
        let (one, two) = (Key::allocate().unwrap(), Key::allocate().unwrap());
        assert_ne!(one.number(), two.number());
        assert!((1..=KEYS).contains(&one.number()));
        drop((one, two));
        for _ in 0..100 {
            Key::allocate().unwrap();
        }
    }
}
