//! A receiver: where threads poll for messages, follow those that do, and sleep.

use crate::error::{Misuse, ReceiveError};
use crate::guest;
use crate::link::group;
use crate::link::group::Group;
use crate::link::hearing::Hearing;
use crate::poller::Poller;
use crate::port::notice::{MembersDue, Notices};
use crate::process::Process;
use crate::rank;
use crate::request::Request;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use handfast_layout::counters;
use handfast_region::{Memory, Region};
use handfast_sys::lock::{OwnedGuard as Guard, OwnedLock};
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{cpu, futex};
use handfast_wait::{Ended, Strategy, Waiter, word};
use sleep::Receiving;
pub(crate) use sleep::park;
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
    /// It is or was shared.
    pub(crate) is_shared: AtomicBool,
    pub(crate) process: Arc<Process>,
    poller: OwnedLock<Poller, rank::Poller>,
    /// Threads that sleep, or are about to, while another may hold the poller; tasks that wait, and one
    /// for the descriptor.
    pub(crate) followers: AtomicU32,
    /// The followers that sleep by *notify*, which no word ends.
    notified: AtomicU32,
    /// The tasks, and the descriptor.
    pub(crate) waits: Waits,
    /// Counts hand-overs: a follower that is about to sleep compares it, so that none is missed.
    handed: Region,
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

/// Messages for ports that have ended, passed over in one look; and looks while lanes of the dead are looked for.
const REFUSALS_MAX: u32 = 64;

/// So many wake-ups that bring nothing are not by chance; one that brings something makes up for some.
const FUTILE_MAX: u32 = 64;
const FUTILE_PER_USEFUL: i32 = 8;
/// Length of a pause between two sleeps, in which wake-ups go unheard: at some 10 us for each sleep, sleeps
/// take less than a twentieth of a processor.
const PAUSE_NS: u64 = 250_000;

const HANDED_BYTES: usize = 64;
const SPINS: usize = 8;
const PARKS: usize = 9;

impl Receiver {
    /// The receiver with this number, for the port with this one.
    pub(crate) fn new(
        process: Arc<Process>,
        (index, port): (u32, u32),
        notices: Arc<Notices>,
        waiter: Waiter,
    ) -> Self {
        let members_due = Arc::<MembersDue>::default();
        Self {
            index,
            members_due: members_due.clone(),
            is_shared: AtomicBool::new(false),
            poller: OwnedLock::new(Poller::new(
                (index, port),
                process.clone(),
                (notices.clone(), members_due),
                waiter,
            )),
            notices,
            process,
            followers: AtomicU32::new(0),
            notified: AtomicU32::new(0),
            waits: Waits::default(),
            handed: Region::heap(HANDED_BYTES),
            newer: Mutex::new(None),
            is_newer: AtomicBool::new(false),
            woke: AtomicBool::new(false),
            futile: AtomicU32::new(0),
            left: Mutex::default(),
        }
    }

    /// The links kept since the last time.
    pub(crate) fn take_rung(&self) -> Vec<Hearing> {
        core::mem::take(&mut *self.left.lock())
    }

    pub(crate) fn lock(&self) -> Guard<'_, Poller, rank::Poller> {
        self.poller.lock()
    }

    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, Poller, rank::Poller>> {
        self.poller.try_lock()
    }

    /// Replaces the strategy from the next long wait on. Does not wait for a thread that receives,
    /// which may go on for ever.
    pub(crate) fn set_waiter(&self, waiter: Waiter) {
        *self.newer() = Some(waiter);
        // Release: pairs with the Acquire in `wait_long`.
        self.is_newer.store(true, Ordering::Release);
        if let Some(mut poller) = self.try_lock() {
            if let Some(waiter) = self.newer().take() {
                poller.set_waiter(waiter);
            }
            self.leave(poller);
        }
    }

    /// Takes a strategy that was set meanwhile.
    pub(crate) fn renew_waiter(&self, poller: &mut Poller) {
        // Acquire: pairs with the Release of `set_waiter`.
        if self.is_newer.swap(false, Ordering::Acquire)
            && let Some(waiter) = self.newer().take()
        {
            poller.set_waiter(waiter);
        }
    }

    /// The poller's waiter, of a thread that does not hold the poller any more: for the next one.
    #[cold]
    fn keep_waiter(&self, waiter: Option<Box<Waiter>>) {
        let mut newer = self.newer();
        if let Some(waiter) = waiter
            && newer.is_none()
        {
            *newer = Some(*waiter);
            // Release: as in `set_waiter`.
            self.is_newer.store(true, Ordering::Release);
        }
    }

    fn newer(&self) -> MutexGuard<'_, Option<Waiter>, rank::Newer> {
        self.newer.lock()
    }

    /// The straight path: look, and only then ask the strategy. A request that has come passes through `then`
    /// while this thread still holds the poller.
    #[inline(always)]
    pub(crate) fn wait<'a, T>(
        &'a self,
        guard: Option<Guard<'a, Poller, rank::Poller>>,
        deadline_ns: Option<u64>,
        then: impl FnOnce(&mut Poller, Request) -> T,
    ) -> Result<T, ReceiveError> {
        if let Some(mut poller) = guard {
            let mut looks = poller.first_looks();
            while looks > 0 {
                if let Some(request) = poller.next() {
                    let result = then(&mut poller, request);
                    self.leave(poller);
                    return Ok(result);
                }
                looks -= 1;
            }
            if guest::is_control() {
                self.leave(poller);
                return Err(ReceiveError::Misuse(Misuse::ControlThread));
            }
            return self.wait_long(poller, deadline_ns, then);
        }
        if guest::is_control() {
            return Err(ReceiveError::Misuse(Misuse::ControlThread));
        }
        let poller = self.follow(deadline_ns).ok_or(ReceiveError::TimedOut)?;
        self.wait_long(poller, deadline_ns, then)
    }

    #[cold]
    fn wait_long<'a, T>(
        &'a self,
        mut guard: Guard<'a, Poller, rank::Poller>,
        deadline_ns: Option<u64>,
        then: impl FnOnce(&mut Poller, Request) -> T,
    ) -> Result<T, ReceiveError> {
        // For `cpu::recent`.
        let _ = cpu::current();
        // Relaxed: a hint of this port to itself.
        let woke_peer = self.woke.load(Ordering::Relaxed);
        if woke_peer {
            self.woke.store(false, Ordering::Relaxed);
        }
        loop {
            self.renew_waiter(&mut guard);
            let mut waiter = guard.waiter.take();
            let strategy_gone = waiter.is_none();
            let mut place = Receiving {
                port: self,
                guard: Some(guard),
                found: None,
                parks: 0,
            };
            let (ended, cost) = match &mut waiter {
                Some(waiter) => waiter.wait(&mut place, deadline_ns, woke_peer),
                None => Waiter::new(Strategy::Block, None).wait(&mut place, deadline_ns, false),
            };
            let parks = place.parks;
            let found = place.found.take();
            let Some(mut held) = place.guard.take() else {
                self.keep_waiter(waiter);
                return Err(ReceiveError::TimedOut);
            };
            // Another thread, or `set_options`, may have put a newer one there meanwhile.
            if !strategy_gone && held.waiter.is_none() {
                held.waiter = waiter;
            }
            if cost.spun {
                self.count(PARKS, parks);
                self.count(SPINS, 1);
            }
            if let Some(request) = found {
                let result = then(&mut held, request);
                self.leave(held);
                return Ok(result);
            }
            if self.process.is_over() || ended == Ended::TimedOut {
                self.leave(held);
                return Err(match self.why_empty() {
                    ReceiveError::Empty => ReceiveError::TimedOut,
                    over => over,
                });
            }
            guard = held;
        }
    }

    /// Why nothing was there to be received.
    #[cold]
    pub(crate) fn why_empty(&self) -> ReceiveError {
        match self.process.is_over() {
            true => ReceiveError::Misuse(Misuse::Shutdown),
            false => ReceiveError::Empty,
        }
    }

    /// Takes a message if there is one for this port.
    pub(crate) fn try_take(poller: &mut Poller) -> Option<Request> {
        for _ in 0..REFUSALS_MAX {
            let request = poller.next();
            let mut is_over = || !poller.look_again() && !poller.goes_on_clearing();
            if request.is_some() || is_over() {
                return request;
            }
        }
        None
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

    fn count(&self, column: usize, amount: u64) {
        self.process
            .counting
            .tally
            .add(counters::port_word(self.index, column), amount);
    }

    /// Gives the poller up. If other threads sleep meanwhile, arranges that the next post wakes
    /// one of them.
    #[inline(always)]
    pub(crate) fn leave(&self, guard: Guard<'_, Poller, rank::Poller>) {
        drop(guard);
        // E7 hand-over. Compiler fence. Pairs with the process-wide fence in `follow`, which acts
        // as a full one here: either this load sees the follower, or its attempt at the lock sees
        // the lock free.
        futex::fence_light();
        // Relaxed: ordered by the fence.
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.hand_over();
        }
    }

    #[cold]
    pub(crate) fn hand_over(&self) {
        let called = waits::call_takers(self);
        if called.task || !called.threads {
            return;
        }
        let sleep = Group::sleep(self.index);
        let mut how = self.how_to_sleep();
        // Also if the lock is taken: its owner may be a follower that will not keep it.
        let quiet = self.try_lock().is_some_and(|mut poller| {
            // Again: the last one that sleeps by notify may have had the poller, and let go of it.
            how = self.how_to_sleep();
            // With a message that waits, a sleeper has to know until when.
            poller.prepare_sleep(how) && poller.sleep_ns_max().is_none()
        });
        // A task that was entered meanwhile may have found the poller taken.
        waits::call_takers(self);
        // After the lock is free: a follower that has this count finds it so.
        self.count_hand_over();
        // E7 hand-over, count. Store-load fence; pairs with the kernel's own between queueing a sleeper and
        // comparing its words, in `follow`. Either the follower sees the count and does not sleep, or this
        // looks at the bells after a post that took the announcement and found no thread to wake.
        self.handed.fence();
        // Relaxed: ordered by the fence.
        let taken = |bells: &Region| bells.load(sleep, Ordering::Relaxed) == word::AWAKE;
        let groups = group::of(&self.process).all();
        if (!quiet || groups.iter().any(|group| taken(&group.bells)))
            && let Some(group) = groups.first()
        {
            group.bells.wake(sleep, 1);
            if how == word::DESCRIPTOR {
                crate::arrivals::rouse();
            }
        }
    }

    /// The count to give to [`Self::nudged`], read before a sleep is announced.
    pub(crate) fn handed(&self) -> u32 {
        // Acquire: a count seen brings what came before it.
        self.handed.load(0, Ordering::Acquire)
    }

    /// The word that ends a sleep whatever others do to the bells: while it holds the count.
    pub(crate) const fn nudged(&self, handed: u32) -> (&Region, usize, u32) {
        (&self.handed, 0, handed)
    }

    /// Wakes every thread that sleeps here, so that it looks.
    pub(crate) fn nudge(&self) {
        // E7 hand-over, count. As in `hand_over`: a thread that is about to sleep finds another count.
        self.count_hand_over();
        self.handed.fence();
        self.handed.wake(0, u32::MAX);
    }

    fn count_hand_over(&self) {
        // Relaxed: the exchange decides.
        let mut count = self.handed.load(0, Ordering::Relaxed);
        while let Err(found) = self
            .handed
            .compare_exchange(0, count, count.wrapping_add(1))
        {
            count = found;
        }
    }
}
