//! Wake-ups of this process's own threads, whatever the peer has done to the words in which they sleep.
//!
//! Any number of the peer's threads may sleep there, too, and the kernel wakes one after the other. So a thread that others rely
//! on wakes a few, and a thread that works for the peer's user the rest.

use super::Link;
use super::tasks::{self, Tasks};
use crate::parked::Parked;
use crate::rank;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::link::{LANES, REPLIES};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::sync::{Condvar, Mutex};
use handfast_wait::word;
use std::sync::OnceLock;
use std::sync::Weak;

/// Threads and tasks that wait for something of the link.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Threads parked on words of this link.
    pub(crate) parked: Parked,
    /// A thread is about to wake all that sleep on its words; and the link, for that one.
    pub(crate) rouses: AtomicBool,
    pub(crate) slot_freed: (Mutex<u32, rank::SlotFreed>, Condvar),
    /// The waiters that are futures.
    pub(crate) tasks: Tasks,
    pub(crate) itself: OnceLock<Weak<Link>>,
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
        if rouse_all(self, ROUSED_MAX) {
            rouse_crowd(self);
        }
        crate::arrivals::rouse();
    }
}

/// Wakes those that sleep on all words of ours, at most so many on each. Whether more may.
fn rouse_all(link: &Link, count: u32) -> bool {
    let replies = (0..REPLIES).map(|index| Slot::of(link.calls, index).wait());
    let lanes = (0..LANES).map(|lane| Place::of(link.calls, lane).space());
    let words = replies.chain(lanes).chain(link.returns().sleepers());
    let has_more = |at: &usize| rouse(link, *at, count) == count;
    words.filter(has_more).count() > 0
}

/// Wakes the sleepers on a word, at most so many, whatever the word says: the peer may have died after it took
/// the announcement away and before it woke the sleeper. Returns how many there were.
pub(super) fn rouse(link: &Link, at: usize, count: u32) -> u32 {
    // AcqRel: as in `word::taken`.
    link.region.swap(at, word::AWAKE, Ordering::AcqRel);
    link.region.wake(at, count)
}

/// More sleep on a word than threads of this process mostly do: they may be the peer's, and any number. A thread that works for the
/// peer's user wakes them all.
#[cold]
fn rouse_crowd(this: &Link) {
    // AcqRel: a thread that finds it set comes before the other's wake-ups.
    if this.waiters.rouses.swap(true, Ordering::AcqRel) {
        return;
    }
    let Some(link) = this.waiters.itself.get().and_then(Weak::upgrade) else {
        return;
    };
    let users = this.users().clone();
    users.expend(this.peer.uid, move || {
        // Release: pairs with the exchange above. A thread that comes from now on has this done once more.
        link.waiters.rouses.store(false, Ordering::Release);
        rouse_all(&link, u32::MAX);
    });
}

/// So many are woken on one word by a thread that has other things to do: as many as sleep there of this process, mostly.
pub(super) const ROUSED_MAX: u32 = 4;
