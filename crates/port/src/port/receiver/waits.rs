//! The waiters at a port that are not sleeping threads: its takers and its descriptor, and their requests to the
//! threads that have the poller.
//!
//! A task that finds nothing is entered among the port's takers, arms the lanes, and announces in the bells
//! that the receiver sleeps in a descriptor (E4). A peer that posts then rings through its link's socket; the
//! control thread, which sleeps in that socket anyway, calls one of the takers (`handfast_proto::takers`) and raises
//! the descriptor. From then on until a look finds nothing, posts ring no more than posts to a thread that
//! receives.
//!
//! One of these holds at any time while a waiter is here: the announcement stands, or a peer that has taken it
//! is about to ring; or a task that was called has not looked yet, and the descriptor is readable; or a thread
//! has the poller, and calls when it lets go (`Polled::leave`).

use crate::error::{Resource, SetError};
use crate::guest::{self, Woken, wake};
use crate::link::Link;
use crate::link::group;
use crate::link::group::Group;
use crate::port::receiver::Receiver;
use crate::rank;
use core::sync::atomic::Ordering;
use core::task::Waker;
use handfast_channel::bell;
use handfast_layout::bell as bell_layout;
use handfast_proto::takers::{Left, Takers};
use handfast_proto::timers::Timer;
use handfast_region::Memory;
use handfast_sys::poll::Flag;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{AsFd, BorrowedFd, clock};
use handfast_wait::word;
use std::sync::OnceLock;

/// The waiters at a port without a thread of their own. Each counts as one that sleeps there (`Polled::leave`).
#[derive(Default)]
pub(crate) struct Waits {
    state: Mutex<State, rank::Waits>,
    /// Made when it is first asked for.
    flag: OnceLock<Flag>,
}

#[derive(Default)]
struct State {
    takers: Takers<guest::Value<Waker>>,
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

impl Waits {
    fn state(&self) -> MutexGuard<'_, State, rank::Waits> {
        self.state.lock()
    }
}

/// A task waits from now on. Its waker was copied by the caller, while it held no lock.
pub(crate) fn enter_takers(port: &Receiver, waker: guest::Value<Waker>) -> u64 {
    // E15 waker, task half. Under the lock, before the announcement: as in `Tasks::enter`.
    let mut state = port.waits.state();
    // Relaxed: a thread that lets go of the poller looks at the list as well, or passes the fence of
    // `try_lock_again`.
    port.followers.fetch_add(1, Ordering::Relaxed);
    state.takers.enter(waker)
}

/// A task waits no more. One that has left already is ignored. The caller drops its waker without a lock: that is the
/// application's, and may be the last to hold a task that waits here.
#[must_use = "a waker is dropped without a lock"]
pub(crate) fn leave_takers(port: &Receiver, number: u64) -> Left<guest::Value<Waker>> {
    let mut state = port.waits.state();
    let left = state.takers.leave(number);
    if let Left::Waiting(Some(_)) = left {
        port.followers.fetch_sub(1, Ordering::Relaxed);
    }
    left
}

/// Whether no task is left to look, and threads sleep here.
pub(crate) fn has_only_threads(port: &Receiver) -> bool {
    let state = port.waits.state();
    let is_last = state.takers.waiting() == 0 && !state.takers.is_called();
    is_last && has_threads(port, &state)
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
    guest::check_may_wake();
    // E15 waker, control thread half. Under the lock, after the ring: as in `Tasks::wake`.
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

/// Control thread: a peer has rung, for the port at `receiver` or another. A ring is lost where the socket is full
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

/// The time of the next call is noted.
pub(crate) fn note_next_call(port: &Receiver) {
    let mut state = port.waits.state();
    (state.notes_call, state.called_ns) = (true, None);
}

/// When a waiter was called first since [`note_next_call`].
pub(crate) fn take_called_ns(port: &Receiver) -> Option<u64> {
    port.waits.state().called_ns.take()
}

/// When the control thread is to call a waiter here.
pub(crate) fn due_ns(port: &Receiver) -> Option<u64> {
    port.waits.state().due_ns
}

/// A thread has found the poller taken, and may have seen the descriptor readable for the last time.
pub(crate) fn note_miss(port: &Receiver) {
    port.waits.state().is_missed = true;
}

/// Has the control thread call the waiter here by then: a message waits no longer for the one it names. One system call at
/// most.
pub(crate) fn call_in(port: &Receiver, sleep_ns: u64) {
    // Under the lock: the control thread finds it, or has taken its mark away before this sets it.
    port.waits.state().due_ns = Some(clock::ticks_ns().saturating_add(sleep_ns));
    port.process.schedule_in(Timer::Receivers, sleep_ns);
}

/// The descriptor is readable no more, where there is one.
pub(crate) fn lower(port: &Receiver) {
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
