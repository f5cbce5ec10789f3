//! Why a process was not confined, and what to do about it.

use core::fmt;
use handfast_sys::Errno;
use std::path::PathBuf;

/// Why a process was not confined. Nothing has changed then, but after [`ConfineError::Half`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfineError {
    /// The processor or the kernel lacks something.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The process is confined already, or was left half confined.
    Already,
    /// No protected domain is loaded, and none can be later.
    NoDomains,
    /// The process has other threads, whose signals and restartable sequences cannot be seen to from here.
    Threads {
        /// How many threads it has.
        count: usize,
    },
    /// A signal has a handler: it could never return.
    Handler {
        /// The signal.
        signal: i32,
    },
    /// A descriptor leads around the rules.
    Descriptor {
        /// Its number.
        number: i32,
        /// The target of the descriptor.
        leads_to: String,
    },
    /// The process makes all readable memory executable (`personality`).
    Personality,
    /// Memory that can be written and executed, that is executable and cannot be read, that lies below 4 GiB and is
    /// executable, or that has a domain's key and is shared.
    Memory {
        /// Where it begins.
        at: usize,
        /// The reason that the mapping is refused.
        why: &'static str,
        /// The file it comes from, if any.
        file: String,
    },
    /// Code that could give itself a domain's rights.
    Stray {
        /// The instruction.
        instruction: &'static str,
        /// Where it is in memory.
        at: usize,
        /// The file it comes from, if any.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// More pieces of memory than a filter can look at.
    Ranges {
        /// How many there are.
        count: usize,
        /// How many there can be.
        limit: usize,
    },
    /// A path that was to be allowed leads to what must stay closed, or to nothing.
    Path {
        /// The path.
        path: PathBuf,
        /// The reason that the path is refused.
        why: &'static str,
    },
    /// A system call failed.
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// A step failed after others had taken hold: the process looks confined and is not. It must end.
    Half {
        /// The step.
        step: &'static str,
        /// Its error.
        errno: Errno,
    },
}

impl fmt::Display for ConfineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { what } => {
                write!(f, "this machine cannot confine a process: {what}; use a process of its own")
            }
            Self::Already => f.write_str("the process is confined already, or half confined"),
            Self::NoDomains => f.write_str(
                "no protected domain is loaded; load all domains first, a confined process can load none",
            ),
            Self::Threads { count } => write!(
                f,
                "the process has {count} threads, and must have one; confine it before it starts others"
            ),
            Self::Handler { signal } => write!(
                f,
                "signal {signal} has a handler, which could not return in a confined process; set it to default or \
                 ignored, and receive it by signalfd"
            ),
            Self::Descriptor { number, leads_to } => write!(
                f,
                "descriptor {number} leads to {leads_to}, by which a domain's memory can be reached; close it first"
            ),
            Self::Personality => f.write_str(
                "the process makes all readable memory executable (READ_IMPLIES_EXEC); start it without setarch -X \
                 and with a stack that is not executable",
            ),
            Self::Memory { at, why, file } => {
                write!(f, "memory at {at:#x}")?;
                if !file.is_empty() {
                    write!(f, " ({file})")?;
                }
                f.write_str(": ")?;
                f.write_str(why)
            }
            Self::Stray {
                instruction,
                at,
                file,
                offset,
            } => write!(
                f,
                "code at {at:#x} ({}, offset {offset:#x}) has the bytes of {instruction}, and would let anybody into \
                 domains; do without it, build it differently, or have it overwritten (Options::overwrite)",
                if file.is_empty() { "no file" } else { file }
            ),
            Self::Ranges { count, limit } => write!(
                f,
                "{count} pieces of memory are to be guarded, more than {limit}; load fewer domains or libraries"
            ),
            Self::Path { path, why } => {
                write!(f, "{} cannot be allowed: {why}", path.display())
            }
            Self::Os { call, errno } => write!(f, "{call} failed: {errno}"),
            Self::Half { step, errno } => write!(
                f,
                "{step} failed ({errno}) after other steps had taken hold: the process is half confined and must end"
            ),
        }
    }
}

impl std::error::Error for ConfineError {}
