//! Why a process was not confined, and what to do about it.

use handfast_sys::error::Errno;
use std::path::PathBuf;

/// Why a process was not confined. Nothing has changed then, except after [`ConfineError::Half`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// The processor or the kernel lacks something.
    #[error(
        "this machine cannot confine a process: {what}; run untrusted code in a process of its own instead"
    )]
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The process is confined already, or was left half confined.
    #[error("the process is confined already, or half confined; confine a process once")]
    Already,
    /// No protected domain is loaded, and none can be later.
    #[error(
        "no protected domain is loaded; load all domains first, a confined process can load none"
    )]
    NoDomains,
    /// The process has other threads, whose signals and restartable sequences cannot be seen to from here.
    #[error(
        "the process has {count} threads, and must have exactly one; confine it before it starts others"
    )]
    Threads {
        /// How many threads it has.
        count: usize,
    },
    /// A signal has a handler: it could never return.
    #[error(
        "signal {signal} has a handler, which could not return in a confined process; set it to default \
         or ignored, and receive it by signalfd"
    )]
    Handler {
        /// The signal.
        signal: i32,
    },
    /// A descriptor leads around the rules.
    #[error(
        "descriptor {number} leads to {leads_to}, by which a domain's memory can be reached; close it first"
    )]
    Descriptor {
        /// Its number.
        number: i32,
        /// The target of the descriptor.
        leads_to: String,
    },
    /// The process makes all readable memory executable (`personality`).
    #[error(
        "the process makes all readable memory executable (READ_IMPLIES_EXEC); start it without setarch \
         -X and with a stack that is not executable"
    )]
    Personality,
    /// Memory that can be written and executed, that is executable and cannot be read, that lies below 4 GiB and is
    /// executable, or that has a domain's key and is shared.
    #[error("memory at {at:#x}{}: {why}", of_file(.file))]
    Memory {
        /// Where it begins.
        at: usize,
        /// The reason that the mapping is refused.
        why: &'static str,
        /// The file it comes from, if any.
        file: String,
    },
    /// Code that could give itself a domain's rights.
    #[error(
        "code at {at:#x} ({}, offset {offset:#x}) has the bytes of {instruction}, which would give any \
         caller a domain's rights; leave that code out, build it differently, or have it overwritten \
         (ConfineOptions::overwrite)",
        if .file.is_empty() { "no file" } else { .file }
    )]
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
    #[error(
        "{count} pieces of memory must be guarded, and the limit is {limit}; load fewer domains or libraries"
    )]
    Ranges {
        /// How many there are.
        count: usize,
        /// How many there can be.
        limit: usize,
    },
    /// A path that was to be allowed leads to a file that must stay closed, or to none.
    #[error("{} cannot be allowed: {why}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The reason that the path is refused.
        why: &'static str,
    },
    /// A system call failed.
    #[error("{call} failed: {errno}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// A step failed after others had taken hold: the process looks confined and is not. It must end.
    #[error(
        "{step} failed ({errno}) after other steps had taken effect: the process is half confined and must end"
    )]
    Half {
        /// The step.
        step: &'static str,
        /// Its error.
        errno: Errno,
    },
}

fn of_file(file: &str) -> String {
    match file {
        "" => String::new(),
        file => format!(" ({file})"),
    }
}
