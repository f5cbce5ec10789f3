//! A well-behaved client: calls well-behaved servers, whose answers must all come and be right; servers that are
//! killed, whose calls must end; and servers that lie, whose calls must end in time.

use crate::caller::{Caller, Failure, Slowest};
use crate::child::{self, Spec};
use crate::server::Server;
use crate::talk::Op;
use handfast::error::{ConnectError, SendError};
use handfast::{SendRight, SharedArena};
use handfast_cli::Outcome;
use handfast_sys::clock;
use handfast_testing::Random;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads that call each of the servers.
const THREADS: u64 = 2;
/// A call to a server that may be killed, or lies.
const MORTAL: Duration = Duration::from_millis(500);
/// How often a client says how it is.
const REPORT: Duration = Duration::from_millis(500);
/// Most first failures that are reported.
const REASONS_MAX: usize = 10;
/// How many of its longest calls a client describes.
pub(crate) const STALLS_MAX: usize = 6;

/// A client's report on its calls.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Calls to servers that live, and how many of them had no answer.
    pub(crate) calls: u64,
    pub(crate) lost: u64,
    /// Answered with something else; any call.
    pub(crate) wrong: u64,
    /// Calls to servers that are killed or lie: in all, and how many ended with an error.
    pub(crate) mortal_calls: u64,
    pub(crate) mortal_errors: u64,
    /// The longest call to a server that lives.
    pub(crate) longest_us: u64,
    /// By how much a call to one that does not has outlived its deadline, at most.
    pub(crate) late_us: u64,
    /// How long the oldest call is under way that has not ended.
    pub(crate) open_us: u64,
    /// No call is under way: it was told to pause.
    pub(crate) paused: bool,
    pub(crate) reasons: Vec<String>,
    /// The longest calls to servers that live, the longest one first.
    pub(crate) stalls: Vec<Stall>,
}

/// A long call: of which kind, to whom, and when.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Stall {
    pub(crate) took_us: u64,
    /// By the monotonic clock, which the well-behaved and their parent share.
    pub(crate) ended_ns: u64,
    pub(crate) what: String,
}

/// The state that all threads of a client share.
struct Shared {
    report: Mutex<Report>,
    /// Since when each thread has been in a call; zero: in none.
    open_since_ns: Vec<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
    limit: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Go,
    Pause,
    Stop,
}

impl Shared {
    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.changed.notify_all();
    }

    /// Waits while there is a pause. Whether to go on.
    fn goes_on(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |state| *state == State::Pause);
        *state.unwrap_or_else(PoisonError::into_inner) != State::Stop
    }

    /// Runs `call` as thread `number`, and enters its outcome and how long it took.
    fn timed<T>(&self, number: usize, call: impl FnOnce() -> T) -> (T, u64) {
        let start = clock::now_ns();
        // Relaxed, both: for the thread that looks for hangs.
        self.open_since_ns[number].store(start, Relaxed);
        let outcome = call();
        self.open_since_ns[number].store(0, Relaxed);
        (outcome, (clock::now_ns() - start) / 1000)
    }

    fn enter(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn report(&self) -> Report {
        let mut report = self
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // Relaxed: as above.
        let open = self.open_since_ns.iter().map(|since| since.load(Relaxed));
        let oldest = open.filter(|since| *since > 0).min();
        report.open_us = oldest.map_or(0, |since| clock::now_ns().saturating_sub(since) / 1000);
        report.paused = oldest.is_none() && self.state() == State::Pause;
        report
    }
}

impl Report {
    fn stall(&mut self, took_us: u64, what: impl FnOnce() -> String) {
        let place = self.stalls.partition_point(|it| it.took_us >= took_us);
        if place < STALLS_MAX {
            let ended_ns = clock::now_ns();
            let what = what();
            self.stalls.insert(
                place,
                Stall {
                    took_us,
                    ended_ns,
                    what,
                },
            );
            self.stalls.truncate(STALLS_MAX);
        }
    }

    pub(crate) fn reason(&mut self, reason: String) {
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason);
        }
    }
}

/// The role. Words: the longest a call may take in milliseconds, how many servers are killed in turns, and the names of the
/// servers that are not.
pub(crate) fn run(spec: &Spec) -> Outcome {
    let limit = Duration::from_millis(spec.number(0)?);
    let mortal = spec.number(1)?;
    let servers = spec.words.get(2..).unwrap_or_default();
    let own = handfast::anonymous()?;
    let arena = SharedArena::create(16 << 10, 32)?;
    let rights: Vec<SendRight> = servers
        .iter()
        .map(|name| handfast::connect_timeout(name, limit))
        .collect::<Result<_, _>>()?;
    let threads = servers.len() * THREADS as usize;
    let shared = Shared {
        report: Mutex::default(),
        open_since_ns: (0..=threads).map(|_| AtomicU64::new(0)).collect(),
        state: Mutex::new(State::Go),
        changed: Condvar::new(),
        limit,
    };
    let stop = AtomicBool::new(false);
    let server = Server {
        port: &own,
        next: None,
        held: Mutex::default(),
        stop: &stop,
        lost_next: AtomicBool::new(false),
    };
    let caller = |number: usize, right: &SendRight| Caller {
        right: right.clone(),
        own: &own,
        third: None,
        arena: &arena,
        random: Random::of(spec.seed.wrapping_add(number as u64)),
        limit,
        slowest: Slowest::default(),
    };
    std::thread::scope(|scope| {
        let (jobs, _unused) = sync_channel(0);
        let server = &server;
        scope.spawn(move || server.serve(&jobs));
        let calling: Vec<_> = (0..threads)
            .map(|number| {
                let mut caller = caller(number, &rights[number % rights.len()]);
                // Rights of one server go to the other.
                let third = rights[(number + 1) % rights.len()].clone();
                let name = &servers[number % servers.len()];
                let shared = &shared;
                scope.spawn(move || {
                    while shared.goes_on() {
                        steady(shared, number, name, &mut caller, &third);
                    }
                })
            })
            .collect();
        let mut watcher = caller(threads, &rights[0]);
        let shared = &shared;
        let watching = scope.spawn(move || {
            watcher.limit = MORTAL;
            while shared.goes_on() {
                watch(shared, threads, &mut watcher, mortal);
            }
        });
        scope.spawn(|| {
            while shared.state() != State::Stop {
                say(shared);
                std::thread::sleep(REPORT);
            }
        });
        while let Some(told) = child::told() {
            match told.as_str() {
                "pause" => shared.set(State::Pause),
                "go" => shared.set(State::Go),
                _ => {
                    child::trim();
                }
            }
        }
        shared.set(State::Stop);
        for thread in calling.into_iter().chain([watching]) {
            let _ = thread.join();
        }
        // Relaxed: no more than a flag.
        stop.store(true, Relaxed);
    });
    say(&shared);
    Ok(())
}

fn say(shared: &Shared) {
    if let Ok(report) = serde_json::to_string(&shared.report()) {
        child::say(&report);
    }
}

/// One call of any kind to a server that lives: it must be answered, and be right.
fn steady(shared: &Shared, number: usize, name: &str, caller: &mut Caller<'_>, third: &SendRight) {
    let op = Op::any(&mut caller.random);
    caller.third = (op == Op::Use && caller.random.below(2) == 0).then(|| third.clone());
    let mut connected_us = None;
    caller.slowest = Slowest::default();
    let (outcome, took_us) = shared.timed(number, || {
        if caller.random.below(500) == 0 {
            let begun = clock::now_ns();
            caller.right = handfast::connect_timeout(name, shared.limit)?;
            connected_us = Some((clock::now_ns() - begun) / 1000);
        }
        caller.perform(op)
    });
    let slowest = std::mem::take(&mut caller.slowest);
    shared.enter(|report| {
        report.calls += 1;
        report.longest_us = report.longest_us.max(took_us);
        report.stall(took_us, || {
            let third = if caller.third.is_some() {
                " of the other server's right"
            } else {
                ""
            };
            let connected =
                connected_us.map_or(String::new(), |us| format!(", connected in {us} us"));
            let Slowest {
                step,
                took_us,
                asked,
                why,
            } = slowest;
            let asked = match asked {
                0 | 1 => String::new(),
                times => format!(", asked to call back {times} times, since: {why}"),
            };
            format!(
                "{name}, thread {number}: {}{third}; {step} took {took_us} us{asked}{connected}",
                op.name()
            )
        });
        match outcome {
            Ok(()) => {}
            Err(Failure::Wrong(what)) => {
                report.wrong += 1;
                report.reason(format!("{name}: {what}"));
            }
            // The server has no room for one more right of this process, or of its descriptors: those it had before count.
            Err(Failure::Unconnected(ConnectError::Exhausted(_))) => {}
            Err(failure) => {
                report.lost += 1;
                report.reason(format!("{name}: {op:?} after {took_us} us: {failure:?}"));
            }
        }
    });
}

/// Some calls to a server that may be killed at any moment, or whose peer writes anything.
fn watch(shared: &Shared, number: usize, caller: &mut Caller<'_>, mortal: u64) {
    let which = caller.random.below(mortal);
    let is_foul = caller.random.below(3) == 0;
    let name = match is_foul {
        true => format!("foul-{which}"),
        false => format!("prey-{which}"),
    };
    let (connected, took_us) = shared.timed(number, || handfast::connect_timeout(&name, MORTAL));
    let late_us = took_us.saturating_sub(MORTAL.as_micros() as u64);
    shared.enter(|report| report.late_us = report.late_us.max(late_us));
    let Ok(right) = connected else {
        // Most of the time nobody has that name.
        std::thread::sleep(Duration::from_millis(2));
        return;
    };
    let steady = std::mem::replace(&mut caller.right, right.clone());
    for _ in 0..1 + caller.random.below(200) {
        if shared.state() != State::Go {
            break;
        }
        let op = match is_foul {
            true => Op::Echo,
            false => Op::any(&mut caller.random),
        };
        // Also by way of a server that lives, which is to use a right to the one that does not.
        let is_used = op == Op::Use && caller.random.below(2) == 0;
        caller.third = is_used.then(|| right.clone());
        caller.right = match is_used {
            true => steady.clone(),
            false => right.clone(),
        };
        let (outcome, took_us) = shared.timed(number, || caller.perform(op));
        // Two calls, or many that were not answered, belong together.
        let allowed = match op {
            Op::Use | Op::Bounce | Op::Travel => None,
            _ => Some(2 * MORTAL.as_micros() as u64),
        };
        let late_us = allowed.map_or(0, |allowed| took_us.saturating_sub(allowed));
        let ended = outcome.is_err();
        shared.enter(|report| {
            report.mortal_calls += 1;
            report.mortal_errors += u64::from(ended);
            report.late_us = report.late_us.max(late_us);
            if let Err(failure) = outcome
                && let Some(why) = is_wrong(&failure, is_foul)
            {
                report.wrong += 1;
                report.reason(format!("{name}: {op:?}: {why}"));
            }
        });
        if ended {
            break;
        }
    }
    caller.right = steady;
    caller.third = None;
}

/// Outcomes that a call may not end with, though its server may die at any moment.
fn is_wrong(failure: &Failure, is_foul: bool) -> Option<String> {
    match failure {
        Failure::Ended(SendError::Gone(_) | SendError::TimedOut | SendError::Right(_)) => None,
        Failure::Ended(SendError::Exhausted(_)) => None,
        // Anything may come from a liar.
        Failure::Ended(SendError::Fault(_)) | Failure::Wrong(_) if is_foul => None,
        Failure::Unconnected(_) | Failure::Unmade(_) => None,
        failure => Some(format!("{failure:?}")),
    }
}
