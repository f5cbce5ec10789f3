//! A handler that sleeps holds up nobody for long: a spare worker takes its place at the desk (paper 002, section 2: as many workers as
//! there are requests in service).
//!
//! Beside the worker at the desk there is a spare one. While handlers run, it looks now and then whether one is under way, and asks the
//! kernel whether that handler's worker is asleep. Then it serves at the desk itself, and the worker that comes back from its handler
//! finds it there, and is spare. A worker at the desk that finds no spare one starts one.
//!
//! Where handlers have slept lately, a worker leaves the desk before it begins a handler, and wakes a spare one. Mostly the handler has
//! returned before that one runs, and its worker goes on at the desk; if the handler sleeps, the other one is at the desk at once.
//! `docs/decisions/0038-handlers-that-sleep.md` has the other ways.

use super::{Desk, IDLE, Server, State, Worker};
use crate::rank;
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::futex::Wait;
use handfast_sys::sync::MutexGuard;
use handfast_sys::thread::{self, ThreadId};
use std::sync::Arc;

/// The workers of one CPU: one at the desk, those whose handlers sleep, and spare ones.
pub(super) const OF_CPU_MAX: u32 = 64;

/// The time between two looks, while handlers have slept lately, and otherwise.
const LOOKS_SOON: Duration = Duration::from_micros(50);
const LOOKS: Duration = Duration::from_millis(2);
/// How long ago lately is.
const LATELY_NS: u64 = 20_000_000;
/// Looks without a handler before the next handler has to wake the one who looks.
const LOOKS_IDLE: u32 = 8;

/// The part of a desk's state that is about handlers under way.
#[derive(Default)]
pub(super) struct Workers {
    /// Counts the workers that have had the desk.
    taken_up: u64,
    /// Counts handlers.
    handlers: u64,
    /// The worker at the desk, while it is in a handler.
    handler: Option<ThreadId>,
    /// All workers there are, and the spare ones among them.
    count: u32,
    spare: u32,
    /// A spare worker looks for handlers that sleep; and whether it waits for the next handler first.
    looks: bool,
    rests: bool,
    /// Until then handlers have slept lately, by [`clock::now_ns`].
    lately_ns: u64,
    /// A spare worker was wanted, and there were too many workers.
    is_full: bool,
    /// The desk waits for a spare worker, without a worker there.
    is_wanted: bool,
    /// A spare worker was woken, and has not come yet.
    is_called: bool,
}

/// A worker's time at the desk, until another takes its place.
pub(super) struct AtDesk(u64);

/// A handler under way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UnderWay {
    number: u64,
    worker: ThreadId,
}

impl Workers {
    pub(super) fn comes(&mut self) {
        self.count += 1;
    }

    pub(super) fn goes(&mut self) {
        self.count -= 1;
        self.is_full = false;
    }

    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether one is in a handler at the desk.
    pub(super) const fn is_handling(&self) -> bool {
        self.handler.is_some()
    }

    /// Whether a handler that sleeps holds up its CPU for want of another worker.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// A message has come, and no worker is at the desk: whether a spare worker comes, now or when its handler has returned.
    pub(super) fn is_to_come(&mut self) -> bool {
        let has_room = self.count < OF_CPU_MAX;
        self.is_wanted = self.spare > 0 || !has_room;
        self.is_full |= self.spare == 0 && !has_room;
        self.is_wanted
    }

    /// A worker is at the desk.
    pub(super) fn has_come(&mut self) {
        self.is_wanted = false;
    }

    fn under_way(&self) -> Option<UnderWay> {
        let number = self.handlers;
        self.handler.map(|worker| UnderWay { number, worker })
    }

    /// Whether handlers have slept lately, and for how long that counts still, in nanoseconds.
    fn slept_lately(&self) -> Option<u64> {
        match self.lately_ns {
            0 => None,
            lately_ns => lately_ns.checked_sub(clock::now_ns()),
        }
    }

    /// A handler was found asleep.
    fn sleeps(&mut self) {
        self.lately_ns = clock::now_ns() + LATELY_NS;
    }

    /// A spare worker comes to the desk.
    fn takes_over(&mut self) -> AtDesk {
        (self.taken_up, self.spare) = (self.taken_up + 1, self.spare - 1);
        self.handler = None;
        AtDesk(self.taken_up)
    }
}

impl AtDesk {
    /// The one that begins with the worker that has taken up the desk.
    pub(super) fn of(desk: &Desk) -> Self {
        Self(desk.state().workers.taken_up)
    }

    /// A handler has returned. Whether its worker is still at the desk; it is spare otherwise.
    pub(super) fn ends(&self, desk: &Desk) -> bool {
        let workers = &mut desk.state().workers;
        let is_there = workers.taken_up == self.0;
        match is_there {
            true => workers.handler = None,
            false => workers.spare += 1,
        }
        is_there
    }
}

impl Desk {
    /// Takes the place of the worker in this handler, if that is asleep there.
    fn takes_over(&self, of: UnderWay) -> Option<AtDesk> {
        if !thread::is_asleep(of.worker) {
            return None;
        }
        let workers = &mut self.state().workers;
        (workers.under_way() == Some(of)).then(|| {
            workers.looks = false;
            workers.sleeps();
            workers.takes_over()
        })
    }
}

impl Server {
    /// A worker at the desk begins a handler. From now on there is a spare worker that looks whether it sleeps.
    pub(super) fn begins(self: &Arc<Self>, index: usize) {
        let desk = &self.desks[index];
        let mut state = desk.state();
        let workers = &mut state.workers;
        workers.handlers += 1;
        workers.handler = Some(thread::id());
        if workers.spare > 0 {
            let mut wakes = !workers.looks || workers.rests;
            workers.rests = false;
            if workers.slept_lately().is_some() {
                // This one may sleep, too: whoever runs first is at the desk next, a spare worker or this one.
                workers.taken_up += 1;
                workers.is_wanted = true;
                wakes = !core::mem::replace(&mut workers.is_called, true);
                state.is_served = false;
            }
            drop(state);
            if wakes {
                desk.calls.add_and_wake_one();
            }
            return;
        }
        workers.is_full = workers.count >= OF_CPU_MAX;
        if !workers.is_full {
            workers.comes();
            workers.spare += 1;
            drop(state);
            let work = move |server: &Arc<Self>| {
                server.begin(index);
                server.stay(index, &Worker::at(&server.desks[index]), None);
            };
            // A handler that sleeps holds up its CPU then.
            self.start_thread(index, work, |state| state.workers.spare -= 1);
        }
    }

    /// Waits as a spare worker for a handler that sleeps, or for a message that finds no worker. `None`: this one is not needed any more.
    pub(super) fn spare(&self, index: usize) -> Option<AtDesk> {
        let desk = &self.desks[index];
        let mut spare = Spare::default();
        loop {
            let calls = desk.calls.load();
            let mut state = desk.state();
            state.workers.is_called &= !spare.has_waited;
            if self.is_over() {
                spare.leaves(&mut state.workers);
                return None;
            }
            if state.workers.is_wanted {
                state.workers.looks &= !spare.looks;
                return Some(self.comes(index, state, spare.has_waited));
            }
            let (handler, waits) = spare.look(&mut state.workers);
            drop(state);
            if let Some(at_desk) = handler.and_then(|handler| desk.takes_over(handler)) {
                return Some(at_desk);
            }
            let waited = desk.calls.wait(calls, Some(clock::deadline_ns(waits)));
            spare.has_waited = true;
            if waited == Wait::TimedOut
                && waits == IDLE
                && spare.is_unneeded(&mut desk.state().workers)
            {
                return None;
            }
        }
    }

    /// A spare worker comes to a desk that is free, perhaps because the handler of its last worker may sleep.
    fn comes(
        &self,
        index: usize,
        mut state: MutexGuard<'_, State, rank::Desk>,
        has_waited: bool,
    ) -> AtDesk {
        let workers = &mut state.workers;
        let last = workers.under_way().filter(|_| has_waited);
        let is_soon = |left_ns| left_ns < LATELY_NS / 2;
        let asks = workers.slept_lately().is_some_and(is_soon);
        let at_desk = workers.takes_over();
        self.is_taken_up_after(state, index);
        if asks && last.is_some_and(|last| thread::is_asleep(last.worker)) {
            self.desks[index].state().workers.sleeps();
        }
        at_desk
    }
}

/// A spare worker, as it waits.
#[derive(Default)]
struct Spare {
    /// It is the one that looks for handlers that sleep.
    looks: bool,
    /// Looks since it has seen a handler.
    idle: u32,
    /// The handlers there had been when it had last waited for as long as a worker stays idle.
    handlers: u64,
    has_waited: bool,
}

impl Spare {
    /// The handler under way, if this one is to look after that, and the time until it looks again.
    fn look(&mut self, workers: &mut Workers) -> (Option<UnderWay>, Duration) {
        self.looks |= !core::mem::replace(&mut workers.looks, true);
        if !self.looks {
            return (None, IDLE);
        }
        let handler = workers.under_way();
        self.idle = match handler {
            Some(_) => 0,
            None => self.idle + 1,
        };
        // The next handler that begins finds that.
        workers.rests = self.idle > LOOKS_IDLE;
        let waits = match workers.slept_lately() {
            _ if workers.rests => IDLE,
            Some(_) => LOOKS_SOON,
            None => LOOKS,
        };
        (handler, waits)
    }

    /// After a wait for as long as a worker stays idle: whether it ends as well.
    fn is_unneeded(&mut self, workers: &mut Workers) -> bool {
        let is_unneeded = workers.spare > 1 || workers.handlers == self.handlers;
        self.handlers = workers.handlers;
        if is_unneeded && !workers.is_wanted {
            self.leaves(workers);
            return true;
        }
        false
    }

    fn leaves(&self, workers: &mut Workers) {
        workers.looks &= !self.looks;
        workers.spare -= 1;
    }
}
