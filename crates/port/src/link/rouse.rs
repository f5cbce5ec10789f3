//! Wake-ups of this process's own threads, whatever the peer has done to the words in which they sleep.
//!
//! The peer can move the sleepers to words of its own (`FUTEX_REQUEUE`). Any number of its threads may sleep there, too, and the kernel
//! wakes one after the other. So only a few are woken there. A thread that has slept for a moment sleeps in a word of this process, too
//! ([`park_at`](crate::port::receiver::park_at)).

use super::Link;
use super::tasks::{self, Tasks};
use crate::event_count::EventCount;
use crate::parked::Parked;
use crate::rank;
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::link::{LANES, REPLIES};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::sync::{Condvar, Mutex};
use handfast_wait::word;

/// Threads and tasks that wait for something of the link.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Threads parked on words of this link.
    pub(crate) parked: Parked,
    pub(crate) slot_freed: (Mutex<u32, rank::SlotFreed>, Condvar),
    /// The waiters that are futures.
    pub(crate) tasks: Tasks,
    /// Counts the events at the link, for threads that have slept for long.
    pub(crate) roused: EventCount,
}

impl Link {
    /// Makes every thread and task of this process that waits on the link look again.
    pub(crate) fn disturb(&self) {
        self.disturb_threads();
        // After the count of troubles: a task that is entered after this sees that.
        tasks::wake(self);
    }

    /// As [`Self::disturb`], without the tasks: their wakers are the application's, and the calling thread may hold locks.
    pub(crate) fn disturb_threads(&self) {
        // AcqRel: the data that the waiter shall find was stored before.
        self.trouble.fetch_add(1, Ordering::AcqRel);
        self.waiters.slot_freed.1.notify_all();
        // E4 wake: orders the count above before this look for sleepers. Pairs with the fence in
        // `announce`: a thread that is not counted yet sees the trouble before it sleeps.
        self.region.fence();
        if !self.waiters.parked.any() {
            return;
        }
        self.waiters.roused.wake_all();
        let replies = (0..REPLIES).map(|index| Slot::of(self.calls, index).wait());
        let lanes = (0..LANES).map(|lane| Place::of(self.calls, lane).space());
        let words = replies.chain(lanes).chain(self.returns().sleepers());
        words.for_each(|at| rouse(self, at));
        crate::arrivals::rouse();
    }
}

/// Wakes the sleepers on a word, some of them at least, whatever the word says: the peer may have died after it took the announcement
/// away and before it woke the sleeper.
pub(super) fn rouse(link: &Link, at: usize) {
    // AcqRel: as in `word::taken`.
    link.region.swap(at, word::AWAKE, Ordering::AcqRel);
    link.region.wake(at, ROUSED_MAX);
}

/// So many are woken on one word by a thread that has other things to do: as many as sleep there of this process, mostly.
pub(super) const ROUSED_MAX: u32 = 4;
