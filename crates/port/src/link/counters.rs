//! The counters that the peer of a link shows.

use super::Link;
use crate::rank;
use crate::users::Foreign;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use handfast_layout::counters::REGION_BYTES;
use handfast_ring::{Fault, Rule};
use handfast_sys::OwnedFd;
use handfast_sys::memory::is_sealed;
use handfast_sys::sync::{Mutex, MutexGuard};

/// The counters of a link's peer.
#[derive(Default)]
pub(crate) struct PeerCounters {
    fd: Mutex<Option<OwnedFd>, rank::PeerCounters>,
    /// How often they were asked for in vain so far.
    asked: AtomicU32,
    /// The peer does not show them.
    are_hidden: AtomicBool,
}

impl PeerCounters {
    /// The file that has them, once it has come.
    pub(crate) fn shown(&self) -> MutexGuard<'_, Option<OwnedFd>, rank::PeerCounters> {
        self.fd.lock()
    }

    /// Whether the peer has said that it does not show them. After [`Self::shown`].
    pub(crate) fn are_hidden(&self) -> bool {
        // Relaxed: told by the lock.
        self.are_hidden.load(Ordering::Relaxed)
    }

    /// The peer is asked for them.
    pub(crate) fn ask(&self) {
        // AcqRel: before the question, as its answer finds.
        self.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// They come, or none, after a question. Returns whether that was asked.
    fn came(&self, fd: Option<OwnedFd>) -> bool {
        // AcqRel: each question has one answer.
        let asked = |count: u32| count.checked_sub(1);
        let was_asked = self
            .asked
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, asked);
        if was_asked.is_err() {
            return false;
        }
        let mut place = self.fd.lock();
        match fd {
            Some(fd) => *place = Some(fd),
            // Relaxed: under the lock.
            None => self.are_hidden.store(true, Ordering::Relaxed),
        }
        true
    }
}

/// Control thread: the peer's counters, which were asked for.
pub(crate) fn hear(link: &Link, fd: Option<Foreign>) -> Result<(), Fault> {
    let is_whole = |fd: &Foreign| is_sealed(fd, REGION_BYTES).unwrap_or(false);
    let is_good = fd.as_ref().is_none_or(is_whole);
    if !is_good || !link.counters.came(fd.map(Foreign::into_inner)) {
        return Err(Rule::ControlDescriptor.broken());
    }
    link.waiters.slot_freed.1.notify_all();
    Ok(())
}
