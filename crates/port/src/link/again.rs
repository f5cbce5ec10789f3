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
    /// Introducer: the rights of others that the peer has been given.
    told: Mutex<Remembered<Key>, rank::Told>,
    /// Recipient: the rights kept for the peer.
    keeping: Mutex<Keeping<Kept>, rank::Keeping>,
    /// A right to a port of the peer was given to others.
    is_introduced: AtomicBool,
}

impl Link {
    pub(crate) fn told(&self) -> MutexGuard<'_, Remembered<Key>, rank::Told> {
        self.rights.again.told.lock()
    }

    pub(crate) fn keeping(&self) -> MutexGuard<'_, Keeping<Kept>, rank::Keeping> {
        self.rights.again.keeping.lock()
    }

    /// A right to a port of the peer is given to others, who are told when this process gives it back.
    pub(crate) fn is_introduced(&self) {
        // Relaxed: read by a thread that has had such a right.
        self.rights
            .again
            .is_introduced
            .store(true, Ordering::Relaxed);
    }

    /// Whether one was.
    pub(crate) fn was_introduced(&self) -> bool {
        // Relaxed: set by a thread that had such a right, which has been dropped since.
        self.rights.again.is_introduced.load(Ordering::Relaxed)
    }
}
