//! Where one waits: what a strategy looks at, and its steps.

use handfast_sys::{clock, cpu};

/// The event one waits for, and how one sleeps there.
pub trait Place {
    /// Looks once; cheap. `true` ends the wait.
    fn look(&mut self) -> bool;

    /// Whether to stop spinning and go to sleep now: the peer has said that it will be long
    /// (a deferral).
    fn is_put_off(&mut self) -> bool {
        false
    }

    /// The spin limit the peer asks for while it is overloaded, in nanoseconds.
    fn asked_limit_ns(&mut self) -> Option<u64> {
        None
    }

    /// Whether the peer was last seen on the processor this thread runs on.
    fn shares_processor(&mut self) -> bool {
        false
    }

    /// Whether the event is the answer to a call of this thread's own.
    fn is_caller(&self) -> bool {
        false
    }

    /// How long the looks of this wait have worked on an event that was about to come: the wait was over before. Asked for at
    /// the beginning, and at the end.
    fn worked_ns(&mut self) -> u64 {
        0
    }

    /// A delay of so many pauses.
    fn pause(&mut self, pauses: u32) {
        (0..pauses).for_each(|_| core::hint::spin_loop());
    }

    /// Looks until something is there, for so long at most.
    fn poll(&mut self, limit_ns: u64) {
        let end_ns = clock::ticks_ns() + limit_ns;
        while !self.look() && clock::ticks_ns() < end_ns {
            self.pause(1);
        }
    }

    /// Lets another thread run on this processor.
    fn give_way(&mut self) {
        cpu::yield_now();
    }

    /// Announces, looks again, sleeps at most once, withdraws. Returns whether the second look or
    /// the one after the sleep found something, and how long after the `start` of the wait it was
    /// posted, if somebody wants to know and the waker left a stamp.
    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start: Option<Start>) -> Parked;
}

/// When a wait began.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// By [`clock::ticks_ns`].
    ticks_ns: u64,
}

impl Start {
    /// By [`clock::ticks_ns`].
    #[must_use]
    pub const fn at(ticks_ns: u64) -> Self {
        Self { ticks_ns }
    }

    /// By [`clock::now_ns`], which stamps of other processes are made with. Two clock readings.
    #[must_use]
    pub fn now_ns(self) -> u64 {
        let elapsed_ns = clock::ticks_ns().saturating_sub(self.ticks_ns);
        clock::now_ns().saturating_sub(elapsed_ns)
    }
}

/// How to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// In the kernel, on a wait word.
    Block,
    /// Until a signal handler has run.
    Notify,
}

/// The result of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Something is there.
    pub ready: bool,
    /// When it was posted, in nanoseconds after the start of the wait, if known.
    pub posted_after_ns: Option<u64>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Something is there.
    Ready,
    /// The deadline passed first.
    TimedOut,
}

/// The cost of a wait, for the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The wait went past its first looks.
    pub spun: bool,
}
