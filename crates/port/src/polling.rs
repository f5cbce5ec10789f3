//! Polling: threads take turns at a receiver's poller, follow the one that has it, and sleep.
//!
//! A receiver holds its poller as an object of any type: a poller holds messages, those rights, and one of these may be to receive from a
//! port, which holds its receiver. Only this module knows the type.

use crate::error::{Misuse, ReceiveError};
use crate::link::group::{self, Group};
use crate::poller::{Poller, clearing, idle, waiting};
use crate::port::notices::{MembersDue, Notices};
use crate::port::receiver::Receiver;
use crate::process::Process;
use crate::request::Request;
use crate::{guest, rank};
use core::sync::atomic::Ordering;
use handfast_region::{Memory, Region};
use handfast_sys::erased::Erased;
use handfast_sys::lock::{OwnedGuard, OwnedLock};
use handfast_sys::{cpu, futex};
use handfast_wait::{Ended, Strategy, Waiter, word};
use sleep::{Receiving, follow};
use std::sync::Arc;
use waits::call_takers;

mod sleep;
pub(crate) mod waits;

/// A thread's turn at the poller.
pub(crate) type Guard<'a> = OwnedGuard<'a, Poller, rank::Poller>;

/// A receiver's poller, on lines of its own.
#[repr(align(128))]
struct Polled(OwnedLock<Poller, rank::Poller>);

/// Messages for ports that have ended, passed over in one look; and looks while lanes of the dead are looked for.
const REFUSALS_MAX: u32 = 64;

const SPINS: usize = 8;
const PARKS: usize = 9;

/// The receiver with this number, for the port with this one.
pub(crate) fn receiver(
    process: &Arc<Process>,
    (index, port): (u32, u32),
    notices: &Arc<Notices>,
    waiter: Waiter,
) -> Receiver {
    let notices = (notices.clone(), Arc::<MembersDue>::default());
    let poller = Poller::new((index, port), process.clone(), notices.clone(), waiter);
    let polled = Erased::new(Polled(OwnedLock::new(poller)));
    Receiver::new(process.clone(), index, notices, polled)
}

#[inline(always)]
fn of(port: &Receiver) -> &Polled {
    match port.poller.get() {
        Some(polled) => polled,
        None => unreachable!("made by `receiver`"),
    }
}

pub(crate) fn lock(port: &Receiver) -> Guard<'_> {
    of(port).0.lock()
}

#[inline(always)]
pub(crate) fn try_lock(port: &Receiver) -> Option<Guard<'_>> {
    of(port).0.try_lock()
}

/// Replaces the strategy from the next long wait on. Does not wait for a thread that receives,
/// which may go on for ever.
pub(crate) fn set_waiter(port: &Receiver, waiter: Waiter) {
    port.set_newer(waiter);
    if let Some(mut poller) = try_lock(port) {
        renew_waiter(port, &mut poller);
        leave(port, poller);
    }
}

/// Takes a strategy that was set meanwhile.
fn renew_waiter(port: &Receiver, poller: &mut Poller) {
    if let Some(waiter) = port.take_newer() {
        poller.set_waiter(waiter);
    }
}

/// The fast path of a receive: looks a few times, and only then asks the strategy. A request that has come passes through `then`
/// while this thread still holds the poller.
#[inline(always)]
pub(crate) fn wait<'a, T>(
    port: &'a Receiver,
    guard: Option<Guard<'a>>,
    deadline_ns: Option<u64>,
    then: impl FnOnce(&mut Poller, Request) -> T,
) -> Result<T, ReceiveError> {
    if let Some(mut poller) = guard {
        let mut looks = poller.first_looks();
        while looks > 0 {
            if let Some(request) = poller.next() {
                let result = then(&mut poller, request);
                leave(port, poller);
                return Ok(result);
            }
            looks -= 1;
        }
        if guest::is_control() {
            leave(port, poller);
            return Err(ReceiveError::Misuse(Misuse::ControlThread));
        }
        return wait_long(port, poller, deadline_ns, then);
    }
    if guest::is_control() {
        return Err(ReceiveError::Misuse(Misuse::ControlThread));
    }
    let poller = follow(port, deadline_ns).ok_or(ReceiveError::TimedOut)?;
    wait_long(port, poller, deadline_ns, then)
}

#[cold]
fn wait_long<'a, T>(
    port: &'a Receiver,
    mut guard: Guard<'a>,
    deadline_ns: Option<u64>,
    then: impl FnOnce(&mut Poller, Request) -> T,
) -> Result<T, ReceiveError> {
    // For `cpu::recent`.
    let _ = cpu::current();
    let woke_peer = port.has_woken();
    loop {
        renew_waiter(port, &mut guard);
        let mut waiter = guard.waits.waiter.take();
        let strategy_gone = waiter.is_none();
        let mut place = Receiving {
            port,
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
            port.keep_waiter(waiter);
            return Err(ReceiveError::TimedOut);
        };
        // Another thread, or `set_options`, may have put a newer one there meanwhile.
        if !strategy_gone && held.waits.waiter.is_none() {
            held.keep_waiter(waiter);
        }
        if cost.spun {
            port.count(PARKS, parks);
            port.count(SPINS, 1);
        }
        if let Some(request) = found {
            let result = then(&mut held, request);
            leave(port, held);
            return Ok(result);
        }
        if port.process.is_over() || ended == Ended::TimedOut {
            leave(port, held);
            return Err(match port.why_empty() {
                ReceiveError::Empty => ReceiveError::TimedOut,
                over => over,
            });
        }
        guard = held;
    }
}

/// Takes a message if there is one for this port.
pub(crate) fn try_take(poller: &mut Poller) -> Option<Request> {
    for _ in 0..REFUSALS_MAX {
        let request = poller.next();
        let mut is_over = || !poller.look_again() && !clearing::goes_on_clearing(poller);
        if request.is_some() || is_over() {
            return request;
        }
    }
    None
}

/// Gives the poller up. If other threads sleep meanwhile, arranges that the next post wakes
/// one of them.
#[inline(always)]
pub(crate) fn leave(port: &Receiver, guard: Guard<'_>) {
    drop(guard);
    // E7 hand-over. Compiler fence. Pairs with the process-wide fence in `follow`, which acts
    // as a full one here: either this load sees the follower, or its attempt at the lock sees
    // the lock free.
    futex::fence_light();
    // Relaxed: ordered by the fence.
    if port.followers.load(Ordering::Relaxed) > 0 {
        hand_over(port);
    }
}

#[cold]
pub(crate) fn hand_over(port: &Receiver) {
    let called = call_takers(port);
    if called.task || !called.threads {
        return;
    }
    let sleep = Group::sleep(port.index);
    let mut how = port.how_to_sleep();
    // Also if the lock is taken: its owner may be a follower that will not keep it.
    let quiet = try_lock(port).is_some_and(|mut poller| {
        // Again: the last one that sleeps by notify may have had the poller, and let go of it.
        how = port.how_to_sleep();
        // The receiver may have rested until now.
        waits::resume_waits(port, &mut poller);
        // With a message that waits, a sleeper has to know until when.
        idle::prepare_sleep(&mut poller, how) && waiting::sleep_ns_max(&poller).is_none()
    });
    // A task that was entered meanwhile may have found the poller taken.
    call_takers(port);
    // After the lock is free: a follower that has this count finds it so.
    port.handed.advance();
    // E7 hand-over, count. Store-load fence; pairs with the kernel's own between queueing a sleeper and
    // comparing its words, in `follow`. Either the follower sees the count and does not sleep, or this
    // looks at the bells after a post that took the announcement and found no thread to wake.
    port.handed.fence();
    // Relaxed: ordered by the fence.
    let taken = |bells: &Region| bells.load(sleep, Ordering::Relaxed) == word::AWAKE;
    let groups = group::of(&port.process).all();
    if !quiet || groups.iter().any(|group| taken(&group.bells)) {
        if let Some(group) = groups.first() {
            group.bells.wake(sleep, 1);
        }
        // In the bells a peer may sleep, or have moved the sleeper away.
        port.handed.wake(1);
        if how == word::DESCRIPTOR {
            crate::arrivals::rouse();
        }
    }
}
