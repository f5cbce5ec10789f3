//! Which thread of a simulated machine runs next.

use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fd::RawFd;
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

static RAISED: u64 = 1;

/// One choice in so many lets time go on although there are threads that could run: the others are slow.
const SLOW_ONE_IN: u64 = 24;
const SLOW_NS_MAX: u64 = 3_000_000;

#[derive(Default)]
pub(super) struct Turn {
    has_come: AtomicBool,
    thread: OnceLock<std::thread::Thread>,
}

pub(super) struct State {
    pub(super) random: u64,
    pub(super) now_ns: u64,
    pub(super) threads: Vec<Thread>,
    pub(super) running: usize,
    pub(super) alarms: BTreeMap<RawFd, u64>,
    /// By the file a listening socket is bound to: its process. By the number of the socket: that file.
    pub(super) listeners: HashMap<u64, u32>,
    pub(super) bound: HashMap<u64, u64>,
    /// By the number of a connected socket: the process it leads to.
    pub(super) led: HashMap<u64, u32>,
    /// Sockets that processes have made, by the numbers of their files: some are closed by now.
    pub(super) sockets: Vec<(u32, RawFd, u64)>,
    pub(super) killed: Vec<u32>,
    pub(super) turns: u64,
    pub(super) trace: u64,
    /// Nothing will ever happen.
    pub(super) is_stuck: bool,
    pub(super) turns_max: u64,
    /// One wake-up, or message of a socket, in so many is lost; zero for none.
    pub(super) loses_wakes: u64,
    pub(super) loses_messages: u64,
}

pub(super) struct Thread {
    pub(super) name: String,
    pub(super) process: u32,
    pub(super) waits: Option<Waits>,
    pub(super) has_ended: bool,
    /// It is not killed before it has given its locks back: some are not its process's alone.
    pub(super) has_lock: bool,
    /// The last wait ended by its deadline.
    pub(super) is_late: bool,
}

pub(super) struct Waits {
    pub(super) until_ns: Option<u64>,
    /// Words whose wake-up ends the wait, by their places in memory.
    pub(super) words: Vec<Place>,
    pub(super) is_woken: bool,
    pub(super) is_over: Box<dyn FnMut() -> bool + Send>,
}

/// A place in memory, however it is mapped: a file and an offset, or zero and an address.
pub(super) type Place = (u64, usize);

impl Thread {
    pub(super) fn new(name: &str, process: u32) -> Self {
        Self {
            name: name.to_owned(),
            process,
            waits: None,
            has_ended: false,
            has_lock: false,
            is_late: false,
        }
    }
}

impl Waits {
    /// Until something is so.
    pub(super) fn until(
        until_ns: Option<u64>,
        is_over: impl FnMut() -> bool + Send + 'static,
    ) -> Self {
        Self {
            until_ns,
            words: Vec::new(),
            is_woken: false,
            is_over: Box::new(is_over),
        }
    }

    /// Until one of these words is woken. A wake-up that never comes is found: a changed word ends no sleep that has begun.
    pub(super) fn on(words: Vec<Place>, until_ns: Option<u64>) -> Self {
        Self {
            words,
            ..Self::until(until_ns, || false)
        }
    }
}

impl State {
    pub(super) fn new(seed: u64, turns_max: u64) -> Self {
        Self {
            random: seed,
            now_ns: 1_000_000_000,
            threads: vec![Thread::new("first", 0)],
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
            loses_wakes: 0,
            loses_messages: 0,
        }
    }

    /// Whether one is lost.
    pub(super) fn is_lost(&mut self, one_in: u64) -> bool {
        one_in != 0 && self.next().is_multiple_of(one_in)
    }

    /// splitmix64.
    pub(super) fn next(&mut self) -> u64 {
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
    pub(super) fn choose(&mut self) -> Option<usize> {
        self.turns += 1;
        if self.next().is_multiple_of(SLOW_ONE_IN)
            && let Some(due_ns) = self.next_due()
            && due_ns < self.now_ns + SLOW_NS_MAX
        {
            self.go_on_to(due_ns);
        }
        loop {
            // One of those that can, each as likely as the others: most of those asked can.
            let mut asked: Vec<_> = (0..self.threads.len()).collect();
            let mut chosen = None;
            while chosen.is_none() && !asked.is_empty() {
                let at = (self.next() % asked.len() as u64) as usize;
                chosen = Some(asked.swap_remove(at)).filter(|thread| self.can_run(*thread));
            }
            if let Some(chosen) = chosen.filter(|_| self.turns < self.turns_max) {
                self.trace = (self.trace ^ chosen as u64 ^ self.now_ns << 8)
                    .wrapping_mul(0x0000_0100_0000_01b3);
                return Some(chosen);
            }
            let due_ns = self.next_due().filter(|_| chosen.is_none())?;
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

impl Turn {
    /// The thread that waits, before anybody has its turn come.
    pub(super) fn is_of(&self, thread: &std::thread::Thread) {
        let _ = self.thread.set(thread.clone());
    }

    pub(super) fn come(&self) {
        self.has_come.store(true, Ordering::Release);
        self.thread
            .get()
            .expect("a thread that has started")
            .unpark();
    }

    pub(super) fn wait(&self) {
        while !self.has_come.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}
