//! A receiver: the state that its threads, tasks and loops share. `polling` has how they poll and wait.

use crate::error::{Misuse, ReceiveError};
use crate::event_count::EventCount;
use crate::link::hearing::Hearing;
use crate::port::notices::{MembersDue, Notices};
use crate::process::Process;
use crate::rank;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use handfast_layout::counters;
use handfast_sys::erased::Erased;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_wait::Waiter;
pub(crate) use sleep::{park, park_at};
use std::sync::Arc;
use waits::Waits;

mod sleep;
pub(crate) mod waits;

/// One of the receivers of a process. On lines of its own: threads that receive write there.
#[repr(align(128))]
pub(crate) struct Receiver {
    /// Its number.
    pub(crate) index: u32,
    /// The notices of its own port, which the poller has too, and those of the ports that share it.
    pub(crate) notices: Arc<Notices>,
    pub(crate) members_due: Arc<MembersDue>,
    /// It is or was shared with [members](crate::MemberPort).
    pub(crate) is_shared: AtomicBool,
    /// Ports that come in messages may share it.
    pub(crate) takes_members: AtomicBool,
    pub(crate) process: Arc<Process>,
    /// The poller and its lock: of a type above this module, since it holds messages, those rights, and a right to receive a port.
    pub(crate) poller: Erased,
    /// Threads that sleep, or are about to, while another may hold the poller; tasks that wait, and one
    /// for the descriptor.
    pub(crate) followers: AtomicU32,
    /// The followers that sleep by *notify*, which no word ends.
    pub(crate) notified: AtomicU32,
    /// The tasks, and the descriptor.
    pub(crate) waits: Waits,
    /// Counts hand-overs: a follower that is about to sleep compares it, so that none is missed.
    pub(crate) handed: EventCount,
    /// A strategy set while another thread may hold the poller, for the next long wait.
    newer: Mutex<Option<Waiter>, rank::Newer>,
    is_newer: AtomicBool,
    /// The last reply had to wake its caller (for the adaptive strategy).
    woke: AtomicBool,
    /// Sleeps of its receivers that have ended with nothing to receive, less those that have not.
    futile: AtomicU32,
    /// Links that ended after they rang and before the poller looked.
    pub(crate) left: Mutex<Vec<Hearing>, rank::Left>,
}

/// Ended links whose messages wait for a port without a receiving thread; the oldest give way.
pub(crate) const LEFT_MAX: usize = 64;

/// So many wake-ups that bring nothing are not by chance; one that brings something makes up for some.
const FUTILE_MAX: u32 = 64;
pub(crate) const FUTILE_PER_USEFUL: i32 = 8;
/// Length of a pause between two sleeps, in which wake-ups go unheard: at some 10 us for each sleep, sleeps
/// take less than a twentieth of a processor.
const PAUSE_NS: u64 = 250_000;

impl Receiver {
    /// The receiver with this number, and its poller.
    pub(crate) fn new(
        process: Arc<Process>,
        index: u32,
        (notices, members_due): (Arc<Notices>, Arc<MembersDue>),
        poller: Erased,
    ) -> Self {
        Self {
            index,
            members_due,
            is_shared: AtomicBool::new(false),
            takes_members: AtomicBool::new(false),
            poller,
            notices,
            process,
            followers: AtomicU32::new(0),
            notified: AtomicU32::new(0),
            waits: Waits::default(),
            handed: EventCount::default(),
            newer: Mutex::new(None),
            is_newer: AtomicBool::new(false),
            woke: AtomicBool::new(false),
            futile: AtomicU32::new(0),
            left: Mutex::default(),
        }
    }

    /// A strategy for the next long wait.
    pub(crate) fn set_newer(&self, waiter: Waiter) {
        *self.newer() = Some(waiter);
        // Release: pairs with the Acquire in `take_newer`.
        self.is_newer.store(true, Ordering::Release);
    }

    /// The strategy that was set meanwhile, if one was.
    pub(crate) fn take_newer(&self) -> Option<Waiter> {
        // Acquire: pairs with the Release of `set_newer`.
        match self.is_newer.swap(false, Ordering::Acquire) {
            true => self.newer().take(),
            false => None,
        }
    }

    /// The poller's waiter, of a thread that does not hold the poller any more: for the next one.
    #[cold]
    pub(crate) fn keep_waiter(&self, waiter: Option<Box<Waiter>>) {
        let mut newer = self.newer();
        if let Some(waiter) = waiter
            && newer.is_none()
        {
            *newer = Some(*waiter);
            // Release: as in `set_newer`.
            self.is_newer.store(true, Ordering::Release);
        }
    }

    fn newer(&self) -> MutexGuard<'_, Option<Waiter>, rank::Newer> {
        self.newer.lock()
    }

    /// The links kept since the last time.
    pub(crate) fn take_rung(&self) -> Vec<Hearing> {
        core::mem::take(&mut *self.left.lock())
    }

    /// Why nothing was there to be received.
    #[cold]
    pub(crate) fn why_empty(&self) -> ReceiveError {
        match self.process.is_over() {
            true => ReceiveError::Misuse(Misuse::Shutdown),
            false => ReceiveError::Empty,
        }
    }

    /// A call that was passed on from here had to wake its receiver.
    #[cold]
    pub(crate) fn woke_receiver(&self) {
        let wakes = counters::port_word(self.index, counters::WAKES);
        self.process.counting.tally.add_shared(wakes, 1);
        self.woke_caller();
    }

    /// The last reply had to wake its caller.
    #[cold]
    pub(crate) fn woke_caller(&self) {
        // Relaxed: a hint of this port to itself.
        self.woke.store(true, Ordering::Relaxed);
    }

    /// Whether it had to, since this was asked last.
    pub(crate) fn has_woken(&self) -> bool {
        // Relaxed, both: a hint of this port to itself.
        let has_woken = self.woke.load(Ordering::Relaxed);
        if has_woken {
            self.woke.store(false, Ordering::Relaxed);
        }
        has_woken
    }

    pub(crate) fn count(&self, column: usize, amount: u64) {
        self.process
            .counting
            .tally
            .add(counters::port_word(self.index, column), amount);
    }

    /// Wakes every thread that sleeps here, so that it looks.
    pub(crate) fn nudge(&self) {
        // E7 hand-over, count. As in `hand_over`: a thread that is about to sleep finds another count.
        self.handed.wake_all();
    }
}
