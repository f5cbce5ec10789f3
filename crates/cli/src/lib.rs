//! The parts of the command `handfast` that the development tools of its repository (`tools/`) share: how a command starts and
//! ends, and what it writes.
//!
//! No interface for other programs: every version may change it.

pub mod command;
pub mod descriptors;
pub mod output;
pub mod temporary;
pub mod usage;

/// The result of a command.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;
