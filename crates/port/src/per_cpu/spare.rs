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
use crate::{guest, rank};
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::futex::Wait;
use handfast_sys::sync::MutexGuard;
use handfast_sys::thread::{self, ThreadId};
use std::sync::Arc;
use std::thread::Builder;

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
pub(super) struct Crew {
    /// Counts the workers that have had the desk.
    turn: u64,
    /// Counts handlers.
    handlers: u64,
    /// The worker at the desk, while it is in a handler.
    handler: Option<ThreadId>,
    /// All workers there are, and the spare ones among them.
    workers: u32,
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
pub(super) struct Turn(u64);

/// A handler under way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UnderWay {
    number: u64,
    worker: ThreadId,
}

impl Crew {
    pub(super) fn comes(&mut self) {
        self.workers += 1;
    }

    pub(super) fn goes(&mut self) {
        self.workers -= 1;
        self.is_full = false;
    }

    pub(super) const fn workers(&self) -> u32 {
        self.workers
    }

    /// Whether a handler that sleeps holds up its CPU for want of another worker.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// A message has come, and no worker is at the desk: whether a spare worker comes, now or when its handler has returned.
    pub(super) fn is_to_come(&mut self) -> bool {
        let has_room = self.workers < OF_CPU_MAX;
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
    fn takes_over(&mut self) -> Turn {
        (self.turn, self.spare) = (self.turn + 1, self.spare - 1);
        self.handler = None;
        Turn(self.turn)
    }
}

impl Turn {
    /// The one that begins with the worker that has taken up the desk.
    pub(super) fn of(desk: &Desk) -> Self {
        Self(desk.state().crew.turn)
    }

    /// A handler has returned. Whether its worker is still at the desk; it is spare otherwise.
    pub(super) fn ends(&self, desk: &Desk) -> bool {
        let crew = &mut desk.state().crew;
        let is_there = crew.turn == self.0;
        match is_there {
            true => crew.handler = None,
            false => crew.spare += 1,
        }
        is_there
    }
}

impl Desk {
    /// Takes the place of the worker in this handler, if that is asleep there.
    fn takes_over(&self, of: UnderWay) -> Option<Turn> {
        if !thread::is_asleep(of.worker) {
            return None;
        }
        let crew = &mut self.state().crew;
        (crew.under_way() == Some(of)).then(|| {
            crew.looks = false;
            crew.sleeps();
            crew.takes_over()
        })
    }
}

impl Server {
    /// A worker at the desk begins a handler. From now on there is a spare worker that looks whether it sleeps.
    pub(super) fn begins(self: &Arc<Self>, index: usize) {
        let desk = &self.desks[index];
        let mut state = desk.state();
        let crew = &mut state.crew;
        crew.handlers += 1;
        crew.handler = Some(thread::id());
        if crew.spare > 0 {
            let mut wakes = !crew.looks || crew.rests;
            crew.rests = false;
            if crew.slept_lately().is_some() {
                // This one may sleep, too: whoever runs first is at the desk next, a spare worker or this one.
                crew.turn += 1;
                crew.is_wanted = true;
                wakes = !core::mem::replace(&mut crew.is_called, true);
                state.is_served = false;
            }
            drop(state);
            if wakes {
                desk.calls.add_and_wake_one();
            }
            return;
        }
        crew.is_full = crew.workers >= OF_CPU_MAX;
        if !crew.is_full {
            crew.comes();
            crew.spare += 1;
            drop(state);
            self.start_spare(index);
        }
    }

    #[cold]
    fn start_spare(self: &Arc<Self>, index: usize) {
        let desk = &self.desks[index];
        // Relaxed: a count.
        desk.started.fetch_add(1, Ordering::Relaxed);
        self.running.add();
        let (server, running) = (self.clone(), self.running.clone());
        let made = Builder::new()
            .name("handfast-worker".into())
            .spawn(move || {
                server.begin(index);
                thread::wakes_in_time();
                server.stay(index, &Worker::at(&server.desks[index]), None);
                server.desks[index].state().crew.goes();
                drop(server);
                running.sub();
            });
        if let Err(error) = made {
            guest::tell!(warn, %error, "no thread for a spare worker: a handler that sleeps holds up its CPU");
            // Relaxed: as above.
            desk.started.fetch_sub(1, Ordering::Relaxed);
            let mut state = desk.state();
            state.crew.spare -= 1;
            state.crew.goes();
            drop(state);
            self.running.sub();
        }
    }

    /// Waits as a spare worker for a handler that sleeps, or for a message that finds no worker. `None`: this one is not needed any more.
    pub(super) fn spare(&self, index: usize) -> Option<Turn> {
        let desk = &self.desks[index];
        let mut spare = Spare::default();
        loop {
            let calls = desk.calls.load();
            let mut state = desk.state();
            state.crew.is_called &= !spare.has_waited;
            if self.is_over() {
                spare.leaves(&mut state.crew);
                return None;
            }
            if state.crew.is_wanted {
                state.crew.looks &= !spare.looks;
                return Some(self.comes(index, state, spare.has_waited));
            }
            let (handler, waits) = spare.look(&mut state.crew);
            drop(state);
            if let Some(turn) = handler.and_then(|handler| desk.takes_over(handler)) {
                return Some(turn);
            }
            let waited = desk.calls.wait(calls, Some(clock::deadline_ns(waits)));
            spare.has_waited = true;
            if waited == Wait::TimedOut
                && waits == IDLE
                && spare.is_unneeded(&mut desk.state().crew)
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
    ) -> Turn {
        let crew = &mut state.crew;
        let last = crew.under_way().filter(|_| has_waited);
        let is_soon = |left_ns| left_ns < LATELY_NS / 2;
        let asks = crew.slept_lately().is_some_and(is_soon);
        let turn = crew.takes_over();
        self.is_taken_up_after(state, index);
        if asks && last.is_some_and(|last| thread::is_asleep(last.worker)) {
            self.desks[index].state().crew.sleeps();
        }
        turn
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
    fn look(&mut self, crew: &mut Crew) -> (Option<UnderWay>, Duration) {
        self.looks |= !core::mem::replace(&mut crew.looks, true);
        if !self.looks {
            return (None, IDLE);
        }
        let handler = crew.under_way();
        self.idle = match handler {
            Some(_) => 0,
            None => self.idle + 1,
        };
        // The next handler that begins finds that.
        crew.rests = self.idle > LOOKS_IDLE;
        let waits = match crew.slept_lately() {
            _ if crew.rests => IDLE,
            Some(_) => LOOKS_SOON,
            None => LOOKS,
        };
        (handler, waits)
    }

    /// After a wait for as long as a worker stays idle: whether it ends as well.
    fn is_unneeded(&mut self, crew: &mut Crew) -> bool {
        let is_unneeded = crew.spare > 1 || crew.handlers == self.handlers;
        self.handlers = crew.handlers;
        if is_unneeded && !crew.is_wanted {
            self.leaves(crew);
            return true;
        }
        false
    }

    fn leaves(&self, crew: &mut Crew) {
        crew.looks &= !self.looks;
        crew.spare -= 1;
    }
}
