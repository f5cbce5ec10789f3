//! Byte-exact layouts: what two processes agree on before either may trust the other.
//!
//! Everything here is a constant or pure arithmetic on constants. No offset is ever read from
//! shared memory: both sides compute the same geometry from [`LAYOUT_VERSION`] alone, so a peer
//! has no number to lie about. All integers are fixed-width and little-endian (handfast runs on
//! 64-bit little-endian Linux; the build fails elsewhere).
//!
//! Reading order: [`link`] (one per pair of processes), [`bell`] (one page set per process and
//! trust group), [`part`] (what describes rights behind a message's bytes), [`loan`] (blocks lent with messages),
//! [`lane_control`] (what is said in lanes of rights and moves), [`control`] (what is said beside the lanes), [`counters`], [`queue`] (the plain shared queues), [`stream`] (upgraded stream sockets), [`hello`] (the handshake),
//! [`name`] (what a port may be called).
//! `spec/layout.md` draws the same pictures with the owner of each word.
#![forbid(unsafe_code)]

pub mod bell;
pub mod control;
pub mod counters;
#[cfg(test)]
mod golden;
pub mod hello;
pub mod lane_control;
pub mod link;
pub mod loan;
pub mod name;
pub mod part;
pub mod queue;
pub mod stream;

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("handfast's shared layouts are defined for 64-bit little-endian machines");

/// Version of everything in this crate. A link between two releases agrees on one version or
/// refuses with both named.
pub const LAYOUT_VERSION: u32 = 18;

/// Feature bits this release offers in the handshake. Bits the peer lacks are not used.
pub const FEATURES: u64 = 0;

/// A cache line. Words with different writers never share one unless the text says why.
pub const LINE: usize = 64;

/// The page size every region is rounded to.
pub const PAGE: usize = 4096;

/// The largest message, in bytes, that goes through a lane or a reply's buffer (paper 003, section 2.2). The bytes of longer ones are lent.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The largest message between processes of one user, in bytes. Between processes of two users it is [`MESSAGE_BYTES_MAX`]: a longer one is
/// copied by its receiver before the next message of anybody.
pub const LONG_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Parts a message may have beside its bytes: rights, memory, descriptors.
pub const PARTS_MAX: usize = 4;

/// Rounds `bytes` up to whole pages.
#[must_use]
pub const fn page_align(bytes: usize) -> usize {
    (bytes + PAGE - 1) & !(PAGE - 1)
}
