//! Mechanisms that isolate a domain, and which of them this machine has.

use core::fmt;
use handfast_sys::keys;

/// The mechanism that isolates a domain from the rest of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Memory keys where the processor and the kernel have them, else a process; [`Isolation::here`] tells which.
    #[default]
    Automatic,
    /// Memory keys, on the caller's own thread: tens of nanoseconds a call.
    Keys,
    /// A child process, which runs the same program's functions: microseconds a call, and memory of its own.
    Process,
    /// No isolation: only panics are caught.
    Unprotected,
}

/// The reason for the meaning of [`Isolation::Automatic`] in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The environment variable `HANDFAST_ISOLATION` is set.
    Environment,
    /// The processor has memory keys, and the kernel lets programs use them.
    Keys,
    /// The processor has no memory keys.
    Processor,
    /// The processor has memory keys, and the kernel has not switched them on.
    Kernel,
    /// Memory keys of this kind of processor are not used.
    Architecture,
}

impl Isolation {
    /// The meaning of [`Isolation::Automatic`] in this process, and the reason. The environment variable `HANDFAST_ISOLATION` may be
    /// `keys` or `process`. No system call.
    #[must_use]
    pub fn here() -> (Self, Reason) {
        let wanted = handfast_sys::process::variable("HANDFAST_ISOLATION");
        match wanted.as_deref().and_then(|wanted| wanted.to_str()) {
            Some("keys") => return (Self::Keys, Reason::Environment),
            Some("process") => return (Self::Process, Reason::Environment),
            _ => {}
        }
        if keys::are_supported() && !cfg!(miri) {
            return (Self::Keys, Reason::Keys);
        }
        let reason = match keys::has_processor() {
            _ if cfg!(not(target_arch = "x86_64")) => Reason::Architecture,
            true => Reason::Kernel,
            false => Reason::Processor,
        };
        (Self::Process, reason)
    }

    /// This mechanism, or the one that [`Isolation::Automatic`] means here.
    pub(crate) fn resolved(self) -> Self {
        match self {
            Self::Automatic => Self::here().0,
            chosen => chosen,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "HANDFAST_ISOLATION says so",
            Self::Keys => "processor and kernel have memory keys",
            Self::Processor => "the processor has no memory keys",
            Self::Kernel => "the kernel has not switched the processor's memory keys on",
            Self::Architecture => "memory keys are used on x86-64 only",
        })
    }
}
