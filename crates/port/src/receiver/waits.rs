//! The waiters at a port that are not sleeping threads: its takers and its descriptor, and their requests to the
//! threads that have the poller.
//!
//! A task that finds nothing is entered among the port's takers, arms the lanes, and announces in the bells
//! that the receiver sleeps in a descriptor (E4). A peer that posts then rings through its link's socket; the
//! keeper, which sleeps in that socket anyway, calls one of the takers (`handfast_proto::takers`) and raises
//! the descriptor. From then on until a look finds nothing, posts ring no more than posts to a thread that
//! receives.
//!
//! One of these holds at any time while a waiter is here: the announcement stands, or a peer that has taken it
//! is about to ring; or a task that was called has not looked yet, and the descriptor is readable; or a thread
//! has the poller, and calls when it lets go (`Port::leave`).

use crate::error::{Resource, SetError};
use crate::guest::{Woken, wake};
use crate::link::Link;
use crate::link::group;
use crate::link::group::Group;
use crate::poller::Poller;
use crate::rank;
use crate::receiver::Receiver;
use crate::request::Request;
use core::sync::atomic::Ordering;
use core::task::Waker;
use handfast_channel::{bell, stamped_after};
use handfast_layout::bell as bell_layout;
use handfast_proto::takers::{Left, Takers};
use handfast_proto::timers::Timer;
use handfast_region::Memory;
use handfast_sys::lock::OwnedGuard as Guard;
use handfast_sys::poll::Flag;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{AsFd, BorrowedFd, clock, futex};
use handfast_wait::waiter::{Parked, Place, Sleep, Start};
use handfast_wait::word;
use std::sync::OnceLock;

/// The waiters at a port without a thread of their own. Each counts as one that sleeps there ([`Port::leave`]).
#[derive(Default)]
pub(crate) struct Waits {
    state: Mutex<State, rank::Waits>,
    /// Made when it is first asked for.
    flag: OnceLock<Flag>,
}

#[derive(Default)]
struct State {
    takers: Takers<Waker>,
    /// The flag is up.
    is_up: bool,
    /// A thread has found the port taken, and may have seen the flag up for the last time.
    is_missed: bool,
    /// Until then, by [`clock::ticks_ns`], a message waits for the message it names, and no waiter has been called since one began to
    /// wait last.
    due_ns: Option<u64>,
    /// The time of the next call is noted.
    notes_call: bool,
    /// When one was called first since then.
    called_ns: Option<u64>,
}

/// The waiters that will look.
pub(crate) struct Called {
    /// A task has been called, and will look.
    pub(crate) task: bool,
    /// Threads sleep here, too.
    pub(crate) threads: bool,
}

/// Attempts to go to sleep over a message that is there and cannot be taken: it waits for the right it names.
const RESTS: u32 = 4;

impl Waits {
    fn state(&self) -> MutexGuard<'_, State, rank::Waits> {
        self.state.lock()
    }
}

/// A task waits from now on.
pub(crate) fn enter_takers(port: &Receiver, waker: &Waker) -> u64 {
    let waker = waker.clone();
    // E15 waker, task half. Under the lock, before the announcement: as in `Tasks::enter`.
    let mut state = port.waits.state();
    // Relaxed: a thread that lets go of the poller looks at the list as well, or passes the fence of
    // `try_lock_again`.
    port.followers.fetch_add(1, Ordering::Relaxed);
    state.takers.enter(waker)
}

/// Whether it had been called. A taker that has left already is ignored.
pub(crate) fn leave_takers(port: &Receiver, number: u64) -> bool {
    let mut state = port.waits.state();
    let left = state.takers.leave(number);
    if let Left::Waiting(Some(_)) = left {
        port.followers.fetch_sub(1, Ordering::Relaxed);
    }
    // Without the lock: a waker is the application's, and may be the last to hold a task that waits here.
    drop(state);
    matches!(left, Left::Called)
}

/// A task goes without a look.
pub(crate) fn taker_gone(port: &Receiver, number: u64) {
    let is_called = leave_takers(port, number);
    let (is_last, threads) = {
        let state = port.waits.state();
        let is_last = state.takers.waiting() == 0 && !state.takers.is_called();
        (is_last, has_threads(port, &state))
    };
    // Another looks in its place; or threads, which no ring for tasks wakes.
    if is_called || is_last && threads {
        port.hand_over();
    }
}

/// Whether threads sleep here. E7 hand-over: ordered by the fence of the asking thread.
fn has_threads(port: &Receiver, state: &State) -> bool {
    let flag = usize::from(port.waits.flag.get().is_some());
    let own = state.takers.waiting() + flag;
    // Relaxed: as in `leave`. Changes with the list under the lock, but for threads.
    port.followers.load(Ordering::Relaxed) as usize > own
}

/// Something may be there, or the poller is free: calls a task, and makes the descriptor readable.
pub(crate) fn call_takers(port: &Receiver) -> Called {
    // E15 waker, keeper half. Under the lock, after the ring: as in `Tasks::wake`.
    let mut state = port.waits.state();
    if let Some(flag) = port.waits.flag.get()
        && (!state.is_up || state.is_missed)
    {
        flag.raise();
        (state.is_up, state.is_missed) = (true, false);
    }
    state.due_ns = None;
    if core::mem::take(&mut state.notes_call) {
        state.called_ns = Some(clock::ticks_ns());
    }
    let waker = state.takers.call();
    if waker.is_some() {
        port.followers.fetch_sub(1, Ordering::Relaxed);
    }
    let called = Called {
        task: state.takers.is_called(),
        threads: has_threads(port, &state),
    };
    drop(state);
    waker.map(Woken::Own).map(wake).unwrap_or_default();
    called
}

/// Keeper: a peer has rung, for the port at `receiver` or another. A ring is lost where the socket is full
/// of others: so each port looks whether its announcement has been taken.
pub(crate) fn rung_at(port: &Receiver, link: &Link, receiver: u32) {
    let sleep = bell_layout::bell(port.index) + bell_layout::SLEEP;
    let groups = group::of(&port.process).all();
    // Relaxed: a hint; a receiver whose ring came needs none.
    let is_taken = |group: &Group| group.bells.load(sleep, Ordering::Relaxed) == word::AWAKE;
    // Another user's processes take no announcement.
    let has_rung = || match link.group.is_foreign {
        true => bell::link_rang(&link.region, link.calls.other(), port.index),
        false => groups
            .iter()
            .any(|group| !group.is_foreign && is_taken(group)),
    };
    if port.index != receiver && !has_rung() {
        return;
    }
    for group in groups.iter().filter(|group| group.is_foreign) {
        // In their place, so that they do not ring again. E15: before the list of wakers.
        word::withdraw(&group.bells, sleep);
    }
    let called = call_takers(port);
    // A readable descriptor does not mean that a thread looks; nor does waking the sleepers in the bells. A thread that
    // is only about to sleep is no follower yet.
    if !called.task && (called.threads || port.index == receiver) {
        port.nudge();
    }
}

/// After a look that found nothing, of a task that has been entered, or where there is a descriptor: has
/// the next post ring the keeper, and lets go of the poller. A message that has come meanwhile passes
/// through `then`; the task waits no more then.
pub(crate) fn rest<T>(
    port: &Receiver,
    mut poller: Guard<'_, Poller, rank::Poller>,
    number: Option<u64>,
    then: impl FnOnce(&mut Poller, Request) -> T,
) -> Option<T> {
    lower(port);
    for _ in 0..RESTS {
        note_calls(port, &poller);
        if poller.prepare_to_wait(word::DESCRIPTOR) {
            if let Some(sleep_ns) = poller.sleep_ns_max() {
                call_in(port, sleep_ns);
            }
            return None;
        }
        if let Some(request) = look(port, &mut poller) {
            if let Some(number) = number {
                leave_takers(port, number);
            }
            let result = then(&mut poller, request);
            port.leave(poller);
            return Some(result);
        }
    }
    // Calls a waiter that looks again: this task, or the loop.
    port.leave(poller);
    None
}

/// Has the keeper call the waiter here by then: a message waits no longer for the one it names. One system call at
/// most.
fn call_in(port: &Receiver, sleep_ns: u64) {
    // Under the lock: the keeper finds it, or has taken its mark away before this sets it.
    port.waits.state().due_ns = Some(clock::ticks_ns().saturating_add(sleep_ns));
    port.process.schedule_in(Timer::Receivers, sleep_ns);
}

/// Before a thread, a task or a loop prepares to wait, and a message with it: the time of the first call here is noted. Until then
/// nothing has come.
pub(crate) fn note_calls(port: &Receiver, poller: &Poller) {
    if poller.has_waiting() {
        let mut state = port.waits.state();
        (state.notes_call, state.called_ns) = (true, None);
    }
}

/// Before a look of a thread that has not slept itself.
pub(crate) fn resume(port: &Receiver, poller: &mut Poller) {
    // First: what rang is heard by the others.
    poller.resume(|| port.waits.state().called_ns.take());
    poller.refresh();
    poller.hear_foreign_all();
}

/// Keeper: calls a waiter here, if it is time for that. Returns how long until it is.
pub(crate) fn call_due_at(port: &Receiver, now_ns: u64) -> Option<u64> {
    let due_ns = port.waits.state().due_ns?;
    if now_ns < due_ns {
        return Some(due_ns - now_ns);
    }
    port.hand_over();
    None
}

fn lower(port: &Receiver) {
    let mut state = port.waits.state();
    state.is_missed = false;
    if core::mem::take(&mut state.is_up)
        && let Some(flag) = port.waits.flag.get()
    {
        flag.lower();
    }
}

/// Whether there is a descriptor and it is readable.
pub(crate) fn is_raised(port: &Receiver) -> bool {
    has_descriptor(port) && port.waits.state().is_up
}

/// Takes what is there, for a task or a loop.
pub(crate) fn look(port: &Receiver, poller: &mut Poller) -> Option<Request> {
    let request = Receiver::try_take(poller)?;
    if let Some(since_ns) = poller.waits_since_ns.take() {
        let stamp = bell_layout::bell(port.index) + bell_layout::STAMP;
        let groups = poller.groups();
        let posted = groups.iter();
        let posted = posted.map(|group| stamped_after(&group.bells, stamp, since_ns));
        let posted = posted.filter(|after_ns| *after_ns > 0).min();
        let elapsed_ns = clock::now_ns().saturating_sub(since_ns);
        if let Some(waiter) = &mut poller.waiter {
            waiter.learn(posted.map_or(elapsed_ns, |ns| ns.min(elapsed_ns)));
        }
    }
    Some(request)
}

/// As [`look`], by the port's strategy as far as that is without sleep.
pub(crate) fn look_long(port: &Receiver, poller: &mut Poller) -> Option<Request> {
    for _ in 0..poller.first_looks().max(1) {
        if let Some(request) = look(port, poller) {
            return Some(request);
        }
    }
    port.renew_waiter(poller);
    let mut waiter = poller.waiter.take()?;
    poller.waits_since_ns = Some(clock::now_ns());
    let mut place = Spinning {
        poller,
        found: None,
    };
    if waiter.spin_briefly(&mut place) {
        place.poller.waits_since_ns = None;
    }
    let found = place.found;
    poller.waiter = Some(waiter);
    found
}

/// The port's descriptor, made when first asked for.
pub(crate) fn descriptor(port: &Receiver) -> Result<BorrowedFd<'_>, SetError> {
    let mut state = port.waits.state();
    if port.waits.flag.get().is_none() {
        let flag = Flag::new().map_err(|errno| Resource::of("eventfd", errno))?;
        // There may be something.
        flag.raise();
        state.is_up = true;
        port.followers.fetch_add(1, Ordering::Relaxed);
        // No other thread sets the flag: under the lock.
        let _ = port.waits.flag.set(flag);
    }
    drop(state);
    match port.waits.flag.get() {
        Some(flag) => Ok(flag.as_fd()),
        None => unreachable!("it is never taken out"),
    }
}

pub(crate) fn has_descriptor(port: &Receiver) -> bool {
    port.waits.flag.get().is_some()
}

/// As [`Port::try_lock`] for a waiter that will wait, after that has failed: the thread that has the poller
/// now calls when it lets go.
pub(crate) fn try_lock_again(port: &Receiver) -> Option<Guard<'_, Poller, rank::Poller>> {
    // E7 hand-over. Fence of all threads of this process. Pairs with the compiler fence in `leave`: either
    // the holder sees that a thread waits, or the poller is free.
    futex::fence_own_threads();
    port.try_lock()
}

/// As [`Port::try_lock`]; if there is a descriptor, a thread that finds the poller taken is told when it is
/// free.
pub(crate) fn try_lock_or_miss(port: &Receiver) -> Option<Guard<'_, Poller, rank::Poller>> {
    port.try_lock().or_else(|| {
        if !has_descriptor(port) {
            return None;
        }
        port.waits.state().is_missed = true;
        try_lock_again(port)
    })
}

/// The poller at which a task or a loop spins.
struct Spinning<'a> {
    poller: &'a mut Poller,
    found: Option<Request>,
}

impl Place for Spinning<'_> {
    fn look(&mut self) -> bool {
        if self.found.is_none() {
            self.found = Receiver::try_take(self.poller);
        }
        self.found.is_some()
    }

    fn shares_processor(&mut self) -> bool {
        self.poller.shares_processor()
    }

    fn park(&mut self, _: Sleep, _: Option<u64>, _: Option<Start>) -> Parked {
        unreachable!("who spins briefly does not sleep")
    }
}
