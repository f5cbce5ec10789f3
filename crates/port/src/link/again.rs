//! The rights of third processes that come to or from the peer of a link again and again.

use super::Link;
use crate::rank;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_proto::introductions::{Keeping, Remembered};
use handfast_proto::rights::Handle;
use handfast_sys::sync::{Mutex, MutexGuard};

/// A right of this process's: link and handle.
pub(crate) type Key = (u32, Handle);

/// A right that is kept: a `SendRight`, which holds a link itself.
pub(crate) type Kept = Box<dyn Any + Send + Sync>;

/// All that a link knows of rights of third processes that come again.
#[derive(Default)]
pub(crate) struct Again {
    tables: Mutex<Tables, rank::Again>,
    /// A right to a port of the peer was given to others.
    is_introduced: AtomicBool,
}

/// The rights of third processes, by the side that introduced them.
#[derive(Default)]
pub(crate) struct Tables {
    /// Introducer: the rights of others that the peer has been given.
    pub(crate) told: Remembered<Key>,
    /// Recipient: the rights kept for the peer.
    pub(crate) keeping: Keeping<Kept>,
}

/// The rights of third processes that come again.
pub(crate) fn lock(link: &Link) -> MutexGuard<'_, Tables, rank::Again> {
    link.rights.again.tables.lock()
}

/// A right to a port of the peer is given to others, who are told when this process gives it back.
pub(crate) fn is_introduced(link: &Link) {
    // Relaxed: read by a thread that has had such a right.
    link.rights
        .again
        .is_introduced
        .store(true, Ordering::Relaxed);
}

/// Whether one was.
pub(crate) fn was_introduced(link: &Link) -> bool {
    // Relaxed: set by a thread that had such a right, which has been dropped since.
    link.rights.again.is_introduced.load(Ordering::Relaxed)
}
