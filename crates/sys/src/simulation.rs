//! A simulated machine for whole nodes: one thread runs at a time, chosen by a seed, and time is virtual.
//!
//! The threads of a [`World`] are real, and what they do is what they do otherwise: this crate's calls that sleep or tell the time
//! ask the world instead of the kernel. A thread that would sleep hands on to another one that has something to do; where none
//! has, time goes on to the next deadline. Everything else (sockets, memory files, poll sets) is the kernel's, and never sleeps.
//! The same seed gives the same run. With the feature `simulation` alone, and only in threads of a world.

use core::cell::RefCell;
use core::ptr::NonNull;
use core::time::Duration;
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A simulated machine.
#[derive(Clone)]
pub struct World(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// One for each thread: its turn has come.
    turns: Mutex<Vec<Arc<Turn>>>,
}

#[derive(Default)]
struct Turn {
    has_come: Mutex<bool>,
    changed: Condvar,
}

struct State {
    random: u64,
    now_ns: u64,
    threads: Vec<Thread>,
    running: usize,
    alarms: BTreeMap<RawFd, u64>,
    /// By the file a listening socket is bound to: its process. By the number of the socket: that file.
    listeners: HashMap<u64, u32>,
    bound: HashMap<u64, u64>,
    /// By the number of a connected socket: the process it leads to.
    led: HashMap<u64, u32>,
    /// Sockets that processes have made, by the numbers of their files: some are closed by now.
    sockets: Vec<(u32, RawFd, u64)>,
    killed: Vec<u32>,
    turns: u64,
    trace: u64,
    /// Nothing will ever happen.
    is_stuck: bool,
    turns_max: u64,
}

struct Thread {
    name: String,
    process: u32,
    waits: Option<Waits>,
    has_ended: bool,
    /// It is not killed before it has given its locks back: some are not its process's alone.
    has_lock: bool,
    /// The last wait ended by its deadline.
    is_late: bool,
}

struct Waits {
    until_ns: Option<u64>,
    /// Words whose wake-up ends the wait, by their places in memory.
    words: Vec<Place>,
    is_woken: bool,
    is_over: Box<dyn FnMut() -> bool + Send>,
}

/// A place in memory, however it is mapped: a file and an offset, or zero and an address.
type Place = (u64, usize);

/// The thread of a world that runs here.
#[derive(Clone)]
struct Member {
    world: World,
    thread: usize,
    process: u32,
}

thread_local! {
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// A clock that is read has gone on by so much, so that a thread that spins for a time comes to its end.
const READ_NS: u64 = 40;
/// One choice in so many lets time go on although there are threads that could run: the others are slow.
const SLOW_ONE_IN: u64 = 24;
const SLOW_NS_MAX: u64 = 3_000_000;
/// One read of the clock in so many, one lock, and one call of a socket, is where another thread goes on.
const READ_ONE_IN: u64 = 16;
const LOCK_ONE_IN: u64 = 16;
pub(crate) const CALL_ONE_IN: u64 = 2;
/// Process ids of a world, beyond those of the kernel.
const PID_FIRST: u32 = 1 << 30;

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
        let first = Thread {
            name: "first".to_owned(),
            process: 0,
            waits: None,
            has_ended: false,
            has_lock: false,
            is_late: false,
        };
        let world = Self(Arc::new(Shared {
            state: Mutex::new(State {
                random: seed,
                now_ns: 1_000_000_000,
                threads: vec![first],
                running: 0,
                alarms: BTreeMap::new(),
                listeners: HashMap::new(),
                bound: HashMap::new(),
                led: HashMap::new(),
                sockets: Vec::new(),
                killed: Vec::new(),
                turns: 0,
                trace: 0,
                is_stuck: false,
                turns_max,
            }),
            turns: Mutex::new(vec![Arc::default()]),
        }));
        MEMBER.set(Some(Member {
            world: world.clone(),
            thread: 0,
            process: 0,
        }));
        world
    }

    /// This thread is none of a world any more. The other threads have ended.
    pub fn leave(self) {
        MEMBER.set(None);
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
                // What it was is closed, as far as it is nobody else's.
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

impl State {
    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn can_run(&mut self, thread: usize) -> bool {
        let now_ns = self.now_ns;
        let it = &mut self.threads[thread];
        if it.has_ended || !it.has_lock && self.killed.contains(&it.process) {
            return false;
        }
        let Some(waits) = &mut it.waits else {
            return true;
        };
        it.is_late = false;
        if waits.is_woken || (waits.is_over)() {
            return true;
        }
        it.is_late = waits.until_ns.is_some_and(|until_ns| until_ns <= now_ns);
        it.is_late
    }

    /// The next time at which something is due.
    fn next_due(&self) -> Option<u64> {
        let waiting = self.threads.iter().filter(|thread| {
            !thread.has_ended && thread.waits.is_some() && !self.killed.contains(&thread.process)
        });
        let deadlines =
            waiting.filter_map(|thread| thread.waits.as_ref().and_then(|waits| waits.until_ns));
        deadlines.chain(self.alarms.values().copied()).min()
    }

    fn go_on_to(&mut self, due_ns: u64) {
        self.now_ns = self.now_ns.max(due_ns);
        let now_ns = self.now_ns;
        self.alarms.retain(|fd, at_ns| {
            let is_due = *at_ns <= now_ns;
            if is_due {
                // SAFETY: an alarm is taken out before its descriptor is closed; eight bytes are readable.
                unsafe { libc::write(*fd, (&raw const RAISED).cast(), 8) };
            }
            !is_due
        });
    }

    /// The thread that runs next. `None`: none ever will.
    fn choose(&mut self) -> Option<usize> {
        self.turns += 1;
        if self.next().is_multiple_of(SLOW_ONE_IN)
            && let Some(due_ns) = self.next_due()
            && due_ns < self.now_ns + SLOW_NS_MAX
        {
            self.go_on_to(due_ns);
        }
        loop {
            let ready: Vec<_> = (0..self.threads.len())
                .filter(|thread| self.can_run(*thread))
                .collect();
            if !ready.is_empty() && self.turns < self.turns_max {
                let chosen = ready[(self.next() % ready.len() as u64) as usize];
                self.trace = (self.trace ^ chosen as u64 ^ self.now_ns << 8)
                    .wrapping_mul(0x0000_0100_0000_01b3);
                return Some(chosen);
            }
            let due_ns = self.next_due().filter(|_| ready.is_empty())?;
            self.go_on_to(due_ns);
        }
    }
}

impl core::fmt::Display for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "turn {}, {} ns", self.turns, self.now_ns)?;
        for thread in self.threads.iter().filter(|thread| !thread.has_ended) {
            let Thread {
                process,
                name,
                has_lock,
                ..
            } = thread;
            write!(f, "\n{name} of {process}, locks {has_lock}, ")?;
            match &thread.waits {
                Some(waits) => {
                    write!(f, "waits for {:x?} until {:?}", waits.words, waits.until_ns)?
                }
                None => write!(f, "runs")?,
            }
        }
        Ok(())
    }
}

static RAISED: u64 = 1;

impl Turn {
    fn come(&self) {
        *lock(&self.has_come) = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut has_come = lock(&self.has_come);
        while !*has_come {
            has_come = (self.changed)
                .wait(has_come)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *has_come = false;
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
        state.threads[self.thread].has_lock = crate::sync::is_any_held();
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
    state.threads.push(Thread {
        name: name.to_owned(),
        process: member.process,
        waits: None,
        has_ended: false,
        has_lock: false,
        is_late: false,
    });
    drop(state);
    lock(&member.world.0.turns).push(Arc::default());
    Some(Starting(member))
}

impl Starting {
    pub(crate) fn number(&self) -> usize {
        self.0.thread
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
        // What the thread holds ends before its turn does, also when it panics.
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
            member.hand_on(Some(Waits {
                until_ns: Some(now(&member) + 1_000_000),
                words: Vec::new(),
                is_woken: false,
                is_over: Box::new(|| false),
            }));
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
    let until_ns = now_ns().map(|now_ns| now_ns + duration.as_nanos() as u64);
    until_ns.is_some() && until(until_ns, || false).is_some()
}

/// Waits until something is so, or the deadline has passed, which it says. `None`: this is no thread of a world.
pub(crate) fn until(
    until_ns: Option<u64>,
    is_over: impl FnMut() -> bool + Send + 'static,
) -> Option<bool> {
    let member = member()?;
    Some(member.hand_on(Some(Waits {
        until_ns,
        words: Vec::new(),
        is_woken: false,
        is_over: Box::new(is_over),
    })))
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

struct Word(NonNull<u32>);
// SAFETY: only read, by whatever thread chooses while the thread sleeps that vouches for it.
unsafe impl Send for Word {}

impl Word {
    fn is(&self, expected: u32) -> bool {
        // SAFETY: mapped while the thread that sleeps on it does.
        let word = unsafe { core::sync::atomic::AtomicU32::from_ptr(self.0.as_ptr()) };
        // SeqCst: as the kernel.
        word.load(core::sync::atomic::Ordering::SeqCst) == expected
    }
}

/// As [`futex::wait_any`](crate::futex::wait_any).
///
/// # Safety
/// As there.
pub(crate) unsafe fn wait_any(
    words: &[(NonNull<u32>, u32)],
    until_ns: Option<u64>,
) -> Option<crate::futex::Wait> {
    let member = member()?;
    let places = words.iter().map(|(word, _)| place_of(*word)).collect();
    let words: Vec<_> = words.iter().map(|(word, of)| (Word(*word), *of)).collect();
    let is_over = move || words.iter().any(|(word, expected)| !word.is(*expected));
    if is_over() {
        member.hand_on(None);
        return Some(crate::futex::Wait::Changed);
    }
    let is_late = member.hand_on(Some(Waits {
        until_ns,
        words: places,
        is_woken: false,
        // A wake-up that never comes is found: a changed word ends no sleep that has begun.
        is_over: Box::new(|| false),
    }));
    Some(match is_late {
        true => crate::futex::Wait::TimedOut,
        false => crate::futex::Wait::Woken,
    })
}

/// As [`futex::wake`](crate::futex::wake).
pub(crate) fn wake(word: NonNull<u32>, count: u32) -> Option<u32> {
    let member = member()?;
    let place = place_of(word);
    let mut state = lock(&member.world.0.state);
    let mut woken = 0;
    let state = &mut *state;
    for thread in &mut state.threads {
        if state.killed.contains(&thread.process) {
            continue;
        }
        if let Some(waits) = &mut thread.waits
            && woken < count
            && !thread.has_ended
            && !waits.is_woken
            && waits.words.contains(&place)
        {
            waits.is_woken = true;
            woken += 1;
        }
    }
    Some(woken)
}

/// Files that are mapped, by their first addresses: bytes, and the file's number.
static MAPPED: Mutex<BTreeMap<usize, (usize, u64)>> = Mutex::new(BTreeMap::new());

pub(crate) fn mapped(at: NonNull<u8>, len_bytes: usize, fd: impl AsFd) {
    if let Ok(stat) = rustix::fs::fstat(fd) {
        lock(&MAPPED).insert(at.as_ptr() as usize, (len_bytes, stat.st_ino));
    }
}

pub(crate) fn unmapped(at: NonNull<u8>) {
    lock(&MAPPED).remove(&(at.as_ptr() as usize));
}

fn place_of(word: NonNull<u32>) -> Place {
    let at = word.as_ptr() as usize;
    let mapped = lock(&MAPPED);
    match mapped.range(..=at).next_back() {
        Some((first, (len_bytes, file))) if at - first < *len_bytes => (*file, at - first),
        _ => (0, at),
    }
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

/// Waits until a descriptor can be read, or for `timeout`. `false`: it has not, or this is no thread of a world.
pub(crate) fn readable(fd: impl AsFd, timeout: Duration) -> bool {
    let Some(now_ns) = now_ns() else { return false };
    let fd = fd.as_fd().as_raw_fd();
    let until_ns = now_ns.saturating_add(timeout.as_nanos() as u64);
    until(Some(until_ns), move || can_read(fd)) == Some(false)
}

pub(crate) fn can_read(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives during the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// This thread's process.
pub(crate) fn pid() -> Option<u32> {
    let member = member().filter(|member| member.process != 0)?;
    Some(PID_FIRST + member.process)
}

/// This process has made a socket.
pub(crate) fn made(socket: impl AsFd) {
    let Some(member) = member() else { return };
    if let Ok(stat) = rustix::fs::fstat(&socket) {
        let fd = socket.as_fd().as_raw_fd();
        let mut state = lock(&member.world.0.state);
        state.sockets.retain(|(_, known, _)| *known != fd);
        state.sockets.push((member.process, fd, stat.st_ino));
    }
}

/// This process listens at a socket: from its `bind` on, or as another process than before.
pub(crate) fn listens(socket: impl AsFd) {
    let Some(member) = member() else { return };
    let Ok(stat) = rustix::fs::fstat(&socket) else {
        return;
    };
    let mut state = lock(&member.world.0.state);
    let name = rustix::net::getsockname(socket);
    let name = name.and_then(rustix::net::SocketAddrUnix::try_from);
    let path = name.as_ref().ok().and_then(|name| name.path());
    let file = path.and_then(|path| rustix::fs::stat(path.as_ref()).ok());
    let file = match state.bound.get(&stat.st_ino) {
        Some(known) => *known,
        None => file.map_or(0, |file| file.st_ino),
    };
    state.bound.insert(stat.st_ino, file);
    state.listeners.insert(file, member.process);
}

/// This process is about to connect to the socket at a path.
pub(crate) fn connects(socket: impl AsFd, path: &std::path::Path) {
    let Some(member) = member() else { return };
    if let (Ok(file), Ok(stat)) = (rustix::fs::stat(path), rustix::fs::fstat(socket)) {
        let mut state = lock(&member.world.0.state);
        if let Some(process) = state.listeners.get(&file.st_ino).copied() {
            state.led.insert(stat.st_ino, process);
        }
    }
}

/// Has the other end of a connection see which process made it.
pub(crate) fn names(socket: impl AsFd) -> Result<(), Errno> {
    let Some(pid) = pid() else { return Ok(()) };
    let number = random(u64::MAX);
    let name = format!("handfast-simulated-{pid}-{number}");
    rustix::net::bind(
        socket,
        &rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )
}

/// The process at the other end.
pub(crate) fn peer(socket: impl AsFd) -> Option<u32> {
    let member = member()?;
    let stat = rustix::fs::fstat(&socket).ok()?;
    if let Some(process) = lock(&member.world.0.state).led.get(&stat.st_ino) {
        return Some(PID_FIRST + process);
    }
    let Some(name) = rustix::net::getpeername(socket).ok()? else {
        return pid();
    };
    let name = rustix::net::SocketAddrUnix::try_from(name).ok()?;
    let named = name.abstract_name().and_then(|name| {
        let name = core::str::from_utf8(name).ok()?;
        name.split('-').nth(2)?.parse().ok()
    });
    // A pair of this process's.
    named.or_else(pid)
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
