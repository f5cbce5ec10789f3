//! How long a link lasts.

use super::Link;
use super::usage::Usage;
use crate::error::PeerFault;
use crate::users::Charge;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{OnceLock, Weak};

/// How long the link lasts.
pub(crate) struct Life {
    pub(crate) down: AtomicBool,
    pub(crate) fault: OnceLock<PeerFault>,
    pub(crate) usage: Usage,
    /// The peer, which asked for a link when it had this one, has been told to look again.
    pub(crate) crossed: AtomicBool,
    /// Threads that may still take messages from it: see [`hearing`](super::hearing).
    pub(crate) hearers: AtomicU32,
    /// The charges to the peer's user.
    pub(crate) charges: Vec<Charge>,
    /// How many links of the process had ended when it did, or fewer; zero before.
    ended_at: AtomicU32,
    /// The fork epoch of its process; in a forked child its region is not mapped.
    pub(crate) epoch: u32,
    /// The other end, of a link of this process with itself.
    pub(crate) twin: OnceLock<Weak<Link>>,
}

impl Life {
    /// A link begins, for which the peer's user is charged; the peer may use it already.
    pub(super) fn new(charges: Vec<Charge>, is_granted: bool) -> Self {
        Self {
            down: AtomicBool::new(false),
            fault: OnceLock::new(),
            usage: Usage::new(is_granted),
            crossed: AtomicBool::new(false),
            hearers: AtomicU32::new(0),
            charges,
            ended_at: AtomicU32::new(0),
            epoch: handfast_sys::process::fork_epoch(),
            twin: OnceLock::new(),
        }
    }
    /// It ends as one of so many, at most.
    pub(crate) fn ends_at(&self, links: u32) {
        // Relaxed: published by the count of the links that have ended.
        self.ended_at.store(links.max(1), Ordering::Relaxed);
    }

    /// As which one it has ended, at the latest; `None`: not yet.
    pub(crate) fn ended_at(&self) -> Option<u32> {
        // Relaxed: as above.
        Some(self.ended_at.load(Ordering::Relaxed)).filter(|links| *links != 0)
    }
}
