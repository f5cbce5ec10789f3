//! The errors of system calls, as programs see them.

use core::fmt;

/// An error number of the system's, as in `errno(3)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

impl Errno {
    /// Its number, as `EPERM` of the C library.
    #[must_use]
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl From<crate::Errno> for Errno {
    fn from(errno: crate::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}
