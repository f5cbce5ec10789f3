//! The two tables of a link: which rights a process has given to its peer, and which it has got.
//!
//! A right in a message is a *handle*: an index into the exporter's private table, with a
//! generation (`docs/decisions/0004-rights.md`). The handle's meaning is looked up there, so writing shared memory
//! forges nothing. Handles mean nothing on any other link.
//!
//! The exporter counts how often it has sent a handle, the importer how often it has received it.
//! When the importer has no use for it any more it gives back as many as it has received; a handle
//! that is sent again at that moment stays counted (the rule of Cap'n Proto and `CapTP`). An entry
//! whose count is zero ends, and its index is used again.
//!
//! Messages travel in lanes and releases outside of them, so a release could overtake a message
//! that uses its handle. The importer therefore keeps a right it no longer holds until the messages
//! it sent with it have been consumed; [`Imports::give_back`] asks.
//!
//! The exporter may revoke a right: its entry stays, so that releases find it and its index is nobody
//! else's meanwhile, but it stands for nothing, and is not found by its former target. The importer is
//! told by handle, perhaps before the handle has come; it keeps that in mind.

mod early;
mod exports;
mod hash;
mod imports;
mod names;
mod target;
mod trail;
mod trails;
mod watched;

#[cfg(test)]
mod followed;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use early::Early;
pub use exports::{Ended, Exports, Meaning, Revoked};
pub use hash::{Entry, Map};
pub use imports::{Imports, Use};
pub use target::{ALL_PERMISSIONS, Target};
pub use trail::REFUSED_MAX;
pub use watched::Watched;

use handfast_layout::PARTS_MAX;
use handfast_layout::link::{ANSWERS, LANES, SLOTS};
use handfast_layout::part::{IS_HANDLE, is_handle};

/// A right as it travels: bit 31, then 11 bits of generation and 20 of index. Numbers without bit
/// 31 are ports' own.
pub type Handle = u32;

/// Rights one process can have given to another at once.
pub const EXPORTS_MAX: u32 = 1 << INDEX_BITS;
/// Rights that can be under way to one process in the lanes and answers of one link.
const UNDER_WAY_MAX: usize = (LANES * SLOTS + ANSWERS) as usize * PARTS_MAX;

const INDEX_BITS: u32 = 20;
const fn handle(index: u32, generation: u32) -> Handle {
    IS_HANDLE | (generation << INDEX_BITS) & !IS_HANDLE | index
}

pub(crate) const fn index(handle: Handle) -> u32 {
    handle & (EXPORTS_MAX - 1)
}

/// A violation by a peer that no honest peer commits, or a limit of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The handle was never given, or has been given back.
    Unknown,
    /// More was given back than was ever given.
    Release,
    /// A handle that is known came again for another port.
    Port,
    /// The link has ended.
    Over,
    /// The table is full: [`EXPORTS_MAX`] rights, or 2^32 transfers of one.
    Full,
}
