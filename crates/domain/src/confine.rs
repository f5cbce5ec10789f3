//! Confined mode: from now on domains are a boundary against code of this process that nobody trusts, not only
//! against its faults. Which ways around the gate there are, what closes each of them, and what stays open:
//! `docs/decisions/0013-confined-domains.md` and SECURITY.md.
//!
//! [`confine`] is called once, when all domains are loaded, by a process that has one thread and has not run code that
//! it does not trust. Its effect holds for all threads and processes that this one makes. It costs a call into a
//! domain nothing.
//!
//! A confined process can no longer:
//!
//! * **Handle signals.** The kernel writes a handler's frame wherever the stack pointer is, also into a domain, and
//!   takes any rights back out of it. So there are no handlers, and none returns (`rt_sigreturn` ends the process).
//!   Signals are received by `signalfd` or `sigwait`; what is not blocked does what the kernel does by default. A
//!   fault in a domain that is not a panic ends the process. So do `pthread_cancel`, and `setuid` and its like with
//!   other threads, which the C library does by signals. Calls have no deadlines
//!   ([`NoDeadline::Confined`](crate::NoDeadline::Confined)).
//! * **Load code**: `dlopen`, compilers at run time, other programs (`execve`).
//! * **Fork with domains.** A forked child has zeros in the place of their memory: nobody gets copies to try things on.
//! * **Load or unload domains.** A handle that is dropped leaves its domain as it is.
//! * **Open** `/proc`, devices, and the files of tracing.
//!
//! Reading order: [`confine`], `maps` (what is mapped, and what is guarded), `scan` and `code` (instructions that
//! change rights), `filter` (system calls), `paths` and `descriptors` (files).

use std::path::PathBuf;

#[cfg(target_arch = "x86_64")]
mod code;
#[cfg(target_arch = "x86_64")]
mod descriptors;
mod error;
#[cfg(target_arch = "x86_64")]
mod filter;
#[cfg(target_arch = "x86_64")]
mod maps;
#[cfg(target_arch = "x86_64")]
mod paths;
#[cfg(target_arch = "x86_64")]
mod scan;
#[cfg(target_arch = "x86_64")]
mod unwind;

pub use crate::confined::is_confined;
pub use error::ConfineError;

/// How a process is confined.
#[derive(Clone, Debug, Default)]
pub struct ConfineOptions {
    only: Vec<PathBuf>,
    overwrite: bool,
}

impl ConfineOptions {
    /// All files can be opened, except those that lead to memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows this file, or the files in this directory. Only allowed files can be opened then; files that
    /// must stay closed stay closed. A few harmless devices (`/dev/null`, terminals) can be opened in any case.
    #[must_use]
    pub fn allow_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.only.push(path.into());
        self
    }

    /// Overwrites instructions that change rights with traps, wherever they are found, instead of refusing. Code that
    /// executes such an instruction ends the process then. Where the bytes were part of other instructions, the behaviour of that code is
    /// undefined.
    #[must_use]
    pub const fn overwrite(mut self) -> Self {
        self.overwrite = true;
        self
    }
}

/// A report of the steps that confined the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    /// Places of the code that were changed, since they could change rights.
    pub places_changed: usize,
    /// Pieces of memory that are guarded.
    pub ranges: usize,
    /// Code and constants that were copied out of their files, in bytes.
    pub copied_bytes: usize,
    /// The version of Landlock.
    pub landlock: u32,
}

/// The reason that a process cannot be confined on this machine, if there is one. A few system calls.
///
/// # Errors
/// [`ConfineError::Unsupported`].
pub fn check_machine() -> Result<(), ConfineError> {
    let missing = if cfg!(not(target_arch = "x86_64")) {
        "domains are only protected on x86-64"
    } else if !handfast_sys::keys::are_supported() {
        "the processor or the kernel has no memory protection keys"
    } else if !handfast_sys::seccomp::is_supported() {
        "the kernel has no filters for system calls (seccomp)"
    } else if handfast_sys::landlock::version() == 0 {
        "the kernel has no Landlock, or it is turned off"
    } else {
        return Ok(());
    };
    Err(ConfineError::Unsupported { what: missing })
}

/// Confines this process, for good. Reads `/proc`, scans all code, and copies code and constants out of their
/// files into memory: some tens of milliseconds, and as much memory as the code and constants have.
///
/// ```no_run
/// use handfast_domain::confine::{ConfineOptions, confine};
///
/// // All domains are loaded, and no thread is started yet.
/// let confined = confine(&ConfineOptions::new().allow_path("/var/lib/mine"))?;
/// assert!(confined.ranges > 0);
/// // From here on, untrusted code may run.
/// # Ok::<(), handfast_domain::confine::ConfineError>(())
/// ```
///
/// # Errors
/// [`ConfineError`]. After [`ConfineError::Half`] some steps hold and others do not: the process must end. After any
/// other nothing has changed.
pub fn confine(options: &ConfineOptions) -> Result<Confined, ConfineError> {
    if is_confined() {
        return Err(ConfineError::Already);
    }
    check_machine()?;
    #[cfg(target_arch = "x86_64")]
    return steps::confine(options);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = options;
        Err(ConfineError::Unsupported {
            what: "domains are only protected on x86-64",
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod steps;
