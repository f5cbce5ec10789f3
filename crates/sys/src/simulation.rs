//! A simulated machine for whole nodes: one thread runs at a time, chosen by a seed, and time is virtual.
//!
//! The threads of a [`World`] are real, and what they do is what they do otherwise: this crate's calls that sleep or tell the time
//! ask the world instead of the kernel. A thread that would sleep hands on to another one that has something to do; where none
//! has, time goes on to the next deadline. Everything else (sockets, memory files, poll sets) is the kernel's, and never sleeps.
//! The same seed gives the same run. With the feature `simulation` alone, and only in threads of a world.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use turns::{State, Thread, Turn, Waits};

mod sockets;
mod turns;
mod words;
pub(crate) use sockets::{
    can_read, connects, is_lost, listens, made, names, peer, readable, received,
};
pub(crate) use words::{mapped, sleep_on, unmapped, wake};

/// A simulated machine.
#[derive(Clone)]
pub struct World(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The processors of the machine, as nodes see them.
    cpus: u32,
    /// Where this process's threads ran before.
    ran_on: Option<CpuSet>,
    /// One for each thread: its turn has come.
    turns: Mutex<Vec<Arc<Turn>>>,
}

/// The thread of a world that runs here.
#[derive(Clone)]
struct Member {
    world: World,
    thread: usize,
    process: u32,
}

thread_local! {
    /// This thread holds a lock with a rank.
    static LOCKS: Cell<bool> = const { Cell::new(false) };
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// A clock that is read has gone on by so much, so that a thread that spins for a time comes to its end.
const READ_NS: u64 = 40;
/// As the kernel's timers are late.
const SLACK_NS: u64 = 50_000;
/// One read of the clock in so many, one lock, and one call of a socket, is where another thread goes on.
const READ_ONE_IN: u64 = 16;
const LOCK_ONE_IN: u64 = 16;
pub(crate) const CALL_ONE_IN: u64 = 2;
/// Process ids of a world, beyond those of the kernel.
const PID_FIRST: u32 = 1 << 30;
const CPUS_MAX: u32 = 3;

/// Has this thread, and those that it starts, run on one processor from now on: they take turns, and handing on to a processor that
/// sleeps takes several times as long. Where they ran before.
fn stay() -> Option<CpuSet> {
    let before = rustix::thread::sched_getaffinity(None).ok()?;
    let mut here = CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).ok()?;
    Some(before)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn member() -> Option<Member> {
    MEMBER
        .try_with(|member| member.borrow().clone())
        .ok()
        .flatten()
}

/// Whether this thread is one of a world.
#[must_use]
pub fn is_active() -> bool {
    let active = MEMBER.try_with(|member| member.borrow().is_some());
    active.unwrap_or_default()
}

impl World {
    /// Makes a world, and this thread its first, of no process of the world.
    ///
    /// # Panics
    /// In a thread of a world.
    #[must_use]
    pub fn enter(seed: u64, turns_max: u64) -> Self {
        assert!(!is_active(), "one world at a time");
        let world = Self(Arc::new(Shared {
            state: Mutex::new(State::new(seed, turns_max)),
            cpus: 1 + (seed % u64::from(CPUS_MAX)) as u32,
            ran_on: stay(),
            turns: Mutex::new(vec![Arc::default()]),
        }));
        lock(&world.0.turns)[0].is_of(&std::thread::current());
        MEMBER.set(Some(Member {
            world: world.clone(),
            thread: 0,
            process: 0,
        }));
        world
    }

    /// From now on one wake-up, and one message of a socket, in so many is lost; zero for none. No such machine is: what is said of
    /// others must be found not to hold on this one.
    pub fn lose(&self, wakes_one_in: u64, messages_one_in: u64) {
        let mut state = lock(&self.0.state);
        (state.loses_wakes, state.loses_messages) = (wakes_one_in, messages_one_in);
    }

    /// This thread is none of a world any more. The other threads have ended.
    pub fn leave(self) {
        MEMBER.set(None);
        if let Some(cpus) = &self.0.ran_on {
            let _ = rustix::thread::sched_setaffinity(None, cpus);
        }
    }

    /// Does something as a process of the world: the threads that it starts are of that one too.
    pub fn as_process<T>(&self, process: u32, work: impl FnOnce() -> T) -> T {
        let before = MEMBER.with_borrow_mut(|member| {
            let member = member.as_mut().expect("a thread of the world");
            core::mem::replace(&mut member.process, process)
        });
        let done = work();
        MEMBER.with_borrow_mut(|member| {
            if let Some(member) = member {
                member.process = before;
            }
        });
        done
    }

    /// The threads of this process do not run any more, and its sockets are closed, until [`Self::revive`].
    pub fn kill(&self, process: u32) {
        lock(&self.0.state).killed.push(process);
        let has_lock =
            |thread: &Thread| thread.process == process && thread.has_lock && !thread.has_ended;
        while lock(&self.0.state).threads.iter().any(has_lock) {
            pause();
        }
        let nothing = std::fs::File::open("/dev/null").expect("a descriptor");
        let sockets = lock(&self.0.state).sockets.clone();
        for (_, fd, file) in sockets.into_iter().filter(|(of, ..)| *of == process) {
            // SAFETY: only compared; a number that is another file's by now is left alone.
            let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
            if rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_ino == file) {
                // The connection is closed, as far as it is nobody else's.
                // SAFETY: both are open; a socket that is nothing any more fails all that is done to it.
                unsafe { libc::dup3(nothing.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
            }
        }
    }

    /// Threads of killed processes run again, once nobody is left that could see it.
    pub fn revive(&self) {
        lock(&self.0.state).killed.clear();
    }

    /// How often a thread was chosen, and a number that two runs have in common only when they are the same.
    #[must_use]
    pub fn trace(&self) -> (u64, u64) {
        let state = lock(&self.0.state);
        (state.turns, state.trace)
    }
}

impl Member {
    fn turn(&self, thread: usize) -> Arc<Turn> {
        lock(&self.world.0.turns)[thread].clone()
    }

    /// Hands on, and returns when it is this thread's turn again; whether its wait has ended by its deadline.
    fn hand_on(&self, waits: Option<Waits>) -> bool {
        let mut state = lock(&self.world.0.state);
        state.threads[self.thread].waits = waits;
        state.threads[self.thread].has_lock = LOCKS.get();
        // Nothing happens any more: the first thread tells.
        let chosen = state.choose().unwrap_or_else(|| {
            state.is_stuck = true;
            0
        });
        state.running = chosen;
        drop(state);
        if chosen != self.thread {
            self.turn(chosen).come();
            self.turn(self.thread).wait();
        }
        let mut state = lock(&self.world.0.state);
        state.threads[self.thread].waits = None;
        let is_late = state.threads[self.thread].is_late;
        let is_stuck = state.is_stuck && self.thread == 0;
        if is_stuck {
            state.is_stuck = false;
            state.turns_max = u64::MAX;
        }
        let told = is_stuck.then(|| state.to_string());
        drop(state);
        if let Some(told) = told {
            panic!("nothing will ever happen: {told}");
        }
        is_late
    }

    fn end(&self) {
        let mut state = lock(&self.world.0.state);
        state.threads[self.thread].has_ended = true;
        let chosen = state.choose().unwrap_or_else(|| {
            state.is_stuck = true;
            0
        });
        state.running = chosen;
        drop(state);
        self.turn(chosen).come();
    }
}

/// A thread that is about to start.
pub(crate) struct Starting(Member);

/// Enters a thread that this one starts, in its process.
pub(crate) fn starting(name: &str) -> Option<Starting> {
    let mut member = member()?;
    let mut state = lock(&member.world.0.state);
    member.thread = state.threads.len();
    state.threads.push(Thread::new(name, member.process));
    drop(state);
    lock(&member.world.0.turns).push(Arc::default());
    Some(Starting(member))
}

impl Starting {
    pub(crate) fn number(&self) -> usize {
        self.0.thread
    }

    /// It has been started, and waits for its turn.
    pub(crate) fn started(number: usize, thread: &std::thread::Thread) {
        if let Some(member) = member() {
            member.turn(number).is_of(thread);
        }
    }

    /// It could not be started.
    pub(crate) fn failed(number: usize) {
        if let Some(member) = member() {
            lock(&member.world.0.state).threads[number].has_ended = true;
        }
    }

    /// In the new thread: runs it, when its turn has come.
    pub(crate) fn run(self, work: impl FnOnce()) {
        let member = self.0;
        member.turn(member.thread).wait();
        MEMBER.set(Some(member.clone()));
        // All that the thread holds ends before its turn does, also when it panics.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        MEMBER.set(None);
        member.end();
        if let Err(payload) = ended {
            std::panic::resume_unwind(payload);
        }
    }
}

/// Waits until a thread that was started here has ended.
pub(crate) fn ended(thread: usize) {
    if let Some(member) = member() {
        let world = member.world.clone();
        // Nobody holds the state while it waits: it is this thread's, or the chooser's.
        let waits = move || world.0.has_ended(thread);
        while !waits() {
            member.hand_on(Some(Waits::until(Some(now(&member) + 1_000_000), || false)));
        }
    }
}

impl Shared {
    fn has_ended(&self, thread: usize) -> bool {
        lock(&self.state).threads[thread].has_ended
    }
}

fn now(member: &Member) -> u64 {
    let mut state = lock(&member.world.0.state);
    state.now_ns += READ_NS;
    state.now_ns
}

/// The time of this thread's world, which does not go on by this.
#[must_use]
pub fn time_ns() -> u64 {
    member().map_or(0, |member| lock(&member.world.0.state).now_ns)
}

/// The time of this thread's world.
pub(crate) fn now_ns() -> Option<u64> {
    preempt(READ_ONE_IN);
    member().map(|member| now(&member))
}

/// Sleeps, if this is a thread of a world.
pub(crate) fn sleep(duration: Duration) -> bool {
    let until_ns = now_ns().map(|now_ns| now_ns + SLACK_NS + duration.as_nanos() as u64);
    until_ns.is_some() && until(until_ns, || false).is_some()
}

/// Waits until something is so, or the deadline has passed, which it says. `None`: this is no thread of a world.
pub(crate) fn until(
    until_ns: Option<u64>,
    is_over: impl FnMut() -> bool + Send + 'static,
) -> Option<bool> {
    let member = member()?;
    Some(member.hand_on(Some(Waits::until(until_ns, is_over))))
}

/// Another thread may run, one time in so many.
pub(crate) fn preempt(one_in: u64) {
    if let Some(member) = member() {
        let chosen = lock(&member.world.0.state).next();
        if chosen.is_multiple_of(one_in) {
            member.hand_on(None);
        }
    }
}

/// This thread holds a lock with a rank, or none.
pub(crate) fn has_lock(has_any: bool) {
    LOCKS.set(has_any);
}

/// Lets others run until a lock is free, which another thread may hold that does not run now.
pub(crate) fn until_free(is_free: impl Fn() -> bool) {
    preempt(LOCK_ONE_IN);
    if let Some(member) = member() {
        while !is_free() {
            member.hand_on(None);
        }
    }
}

/// Another thread may run.
pub fn pause() {
    if let Some(member) = member() {
        member.hand_on(None);
    }
}

/// A number below `count`.
#[must_use]
pub fn random(count: u64) -> u64 {
    member().map_or(0, |member| lock(&member.world.0.state).next() % count)
}

/// The processors of this thread's world.
pub(crate) fn cpus() -> Option<u32> {
    member().map(|member| member.world.0.cpus)
}

/// The one on which this thread runs now: any, at each question.
pub(crate) fn cpu() -> Option<u32> {
    cpus().map(|cpus| random(cpus.into()) as u32)
}

/// Sets the alarm of an event descriptor. `None`: there is no alarm any more.
pub(crate) fn set_alarm(fd: RawFd, from_now_ns: Option<u64>) -> bool {
    let Some(member) = member() else { return false };
    let now_ns = now(&member);
    let mut state = lock(&member.world.0.state);
    match from_now_ns {
        Some(from_now_ns) => state.alarms.insert(fd, now_ns + from_now_ns),
        None => state.alarms.remove(&fd),
    };
    true
}

/// This thread's process.
pub(crate) fn pid() -> Option<u32> {
    let member = member().filter(|member| member.process != 0)?;
    Some(PID_FIRST + member.process)
}

/// Sixteen bytes of the seed.
pub(crate) fn random_bytes() -> Option<[u8; 16]> {
    let member = member()?;
    let mut state = lock(&member.world.0.state);
    let (first, second) = (state.next(), state.next());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    Some(bytes)
}

/// An event descriptor in the place of a timer.
pub(crate) fn timer() -> Option<Result<OwnedFd, Errno>> {
    member()?;
    let flags = rustix::event::EventfdFlags::CLOEXEC.union(rustix::event::EventfdFlags::NONBLOCK);
    Some(rustix::event::eventfd(0, flags))
}
