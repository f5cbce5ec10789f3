//! How tasks and loops look, rest, and are called when it is time.

use super::{Guard, hand_over, leave, renew_waiter, try_lock, try_take};
use crate::poller::{Poller, bells, clearing, idle, waiting};
use crate::port::receiver::Receiver;
use crate::port::receiver::waits::{
    call_in, due_ns, has_only_threads, lower, note_miss, note_next_call, take_called_ns,
};
pub(crate) use crate::port::receiver::waits::{
    call_takers, descriptor, enter_takers, has_descriptor, is_raised, leave_takers, rung_at,
};
use crate::request::Request;
use handfast_channel::stamped_after;
use handfast_layout::bell as bell_layout;
use handfast_proto::takers::Left;
use handfast_sys::{clock, futex};
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::word;

/// Attempts to go to sleep over a message that is there and cannot be taken: it waits for the right it names.
const RESTS: u32 = 4;

/// A task goes without a look.
pub(crate) fn taker_gone(port: &Receiver, number: u64) {
    let is_called = matches!(leave_takers(port, number), Left::Called);
    // Another looks in its place; or threads, which no ring for tasks wakes.
    if is_called || has_only_threads(port) {
        hand_over(port);
    }
}

/// After a look that found nothing, of a task that has been entered, or where there is a descriptor: has
/// the next post ring the control thread, and lets go of the poller. A message that has come meanwhile passes
/// through `then`; the task waits no more then.
pub(crate) fn rest<T>(
    port: &Receiver,
    mut poller: Guard<'_>,
    number: Option<u64>,
    then: impl FnOnce(&mut Poller, Request) -> T,
) -> Option<T> {
    lower(port);
    for _ in 0..RESTS {
        note_calls(port, &poller);
        if idle::prepare_to_wait(&mut poller, word::DESCRIPTOR) {
            if let Some(sleep_ns) = waiting::sleep_ns_max(&poller) {
                call_in(port, sleep_ns);
            }
            return None;
        }
        if let Some(request) = look(port, &mut poller) {
            let left = number.map(|number| leave_takers(port, number));
            let result = then(&mut poller, request);
            leave(port, poller);
            drop(left);
            return Some(result);
        }
    }
    // Calls a waiter that looks again: this task, or the loop.
    leave(port, poller);
    None
}

/// Before a thread, a task or a loop prepares to wait, and a message with it: the time of the first call here is noted. Until then
/// nothing has come.
pub(crate) fn note_calls(port: &Receiver, poller: &Poller) {
    if waiting::has_waiting(poller) {
        note_next_call(port);
    }
}

/// Before a look of a thread that has not slept itself: how long messages have waited meanwhile.
pub(super) fn resume_waits(port: &Receiver, poller: &mut Poller) {
    waiting::resume(poller, || take_called_ns(port));
}

/// As [`resume_waits`], and takes up what rang.
pub(crate) fn resume(port: &Receiver, poller: &mut Poller) {
    // First: what rang is heard by the others.
    resume_waits(port, poller);
    clearing::refresh(poller);
    bells::hear_foreign_all(poller);
}

/// Control thread: calls a waiter here, if it is time for that. Returns how long until it is.
pub(crate) fn call_due_at(port: &Receiver, now_ns: u64) -> Option<u64> {
    let due_ns = due_ns(port)?;
    if now_ns < due_ns {
        return Some(due_ns - now_ns);
    }
    hand_over(port);
    None
}

/// Takes what is there, for a task or a loop.
pub(crate) fn look(port: &Receiver, poller: &mut Poller) -> Option<Request> {
    let request = try_take(poller)?;
    if let Some(since_ns) = poller.waits.since_ns.take() {
        let stamp = bell_layout::bell(port.index) + bell_layout::STAMP;
        let groups = bells::groups(poller);
        let posted = groups.iter();
        let posted = posted.map(|group| stamped_after(&group.bells, stamp, since_ns));
        let posted = posted.filter(|after_ns| *after_ns > 0).min();
        let elapsed_ns = clock::now_ns().saturating_sub(since_ns);
        if let Some(waiter) = &mut poller.waits.waiter {
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
    renew_waiter(port, poller);
    let mut waiter = poller.waits.waiter.take()?;
    poller.waits.since_ns = Some(clock::now_ns());
    let mut place = Spinning {
        poller,
        found: None,
    };
    if waiter.spin_briefly(&mut place) {
        place.poller.waits.since_ns = None;
    }
    let found = place.found;
    poller.waits.waiter = Some(waiter);
    found
}

/// As [`try_lock`] for a waiter that will wait, after that has failed: the thread that has the poller
/// now calls when it lets go.
pub(crate) fn try_lock_again(port: &Receiver) -> Option<Guard<'_>> {
    // E7 hand-over. Fence of all threads of this process. Pairs with the compiler fence in `leave`: either
    // the holder sees that a thread waits, or the poller is free.
    futex::fence_own_threads();
    try_lock(port)
}

/// As [`try_lock`]; if there is a descriptor, a thread that finds the poller taken is told when it is
/// free.
pub(crate) fn try_lock_or_miss(port: &Receiver) -> Option<Guard<'_>> {
    try_lock(port).or_else(|| {
        if !has_descriptor(port) {
            return None;
        }
        note_miss(port);
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
            self.found = try_take(self.poller);
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
