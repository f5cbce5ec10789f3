//! The Linux calls handfast makes, as safe typed functions, and nothing else.
//!
//! Every function names the call it makes and says whether it can block. Errors are the kernel's
//! ([`Errno`]); what they mean for a user is decided above. Reading order: [`memory`], [`private`],
//! [`keys`], [`futex`], [`socket`], [`poll`], [`clock`], [`cpu`], [`process`], [`members`],
//! [`signal`], [`signal_stack`], [`timer`], [`deadline`], [`seccomp`], [`landlock`].

pub mod child;
pub mod clock;
pub mod cpu;
pub mod deadline;
pub mod directory;
pub mod erased;
pub mod error;
pub mod futex;
pub mod keys;
pub mod landlock;
pub mod lock;
pub mod members;
pub mod memory;
pub mod poll;
pub mod private;
pub mod process;
pub mod seccomp;
pub mod shared;
pub mod signal;
pub mod signal_stack;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod socket;
pub mod sync;
pub mod tcp;
pub mod thread;
pub mod timer;

pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
/// The kernel's error numbers, as code inside this project sees them; programs see [`error::Errno`].
pub use rustix::io::Errno;

/// A second descriptor of the same open file, closed on exec. `fcntl(F_DUPFD_CLOEXEC)`.
///
/// # Errors
/// `EMFILE` without descriptors.
pub fn duplicate(descriptor: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 0)
}

/// The errno of the last failed libc call of this thread.
fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
