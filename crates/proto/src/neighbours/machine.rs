//! The common part of the simulations of chains and crowds: a machine whose processors run threads in turn, and the waits of `Strategy::Adaptive` there. Steps
//! take as long as on the machines that were measured.

use super::Neighbours;
use crate::spin::SpinPolicy;
use crate::yields::YieldPolicy;
use alloc::collections::VecDeque;

/// Costs in nanoseconds: a look; a message's way to another processor; a yield, and the change to another thread; a sleep; a
/// wake-up, for its caller; and the time until an idle processor runs; a time slice.
pub(super) const LOOK: u64 = 50;
pub(super) const LINE: u64 = 100;
pub(super) const YIELD: u64 = 300;
pub(super) const SWITCH: u64 = 400;
pub(super) const SLEEP: u64 = 1_500;
pub(super) const WAKE: u64 = 1_000;
pub(super) const IDLE: u64 = 10_000;
const SLICE: u64 = 3_000_000;
/// T, and how much later a woken peer answers.
const T: u64 = 10_000;
const LATENCY: u64 = 7_000;
/// Yields of one wait to a peer on the same processor, as `handfast-wait` has them.
const YIELDS: u32 = 8;

/// How all threads of the simulated machine wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// As by `Strategy::Adaptive`.
    Adaptive,
    /// Each wait sleeps.
    Sleep,
    /// Each looks and yields, and never sleeps.
    Yield,
}

/// The same, and the controls of the tests.
#[cfg_attr(not(test), expect(dead_code, reason = "the controls of the tests"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Adaptive,
    /// As if nothing were known of neighbours: a thread looks as long as its limit says.
    Unaware,
    /// Yields that come late make nobody sleep.
    Patient,
    /// Nobody tries to yield again.
    Resigned,
    Sleep,
    Yield,
}

impl From<Waits> for Rule {
    fn from(waits: Waits) -> Self {
        match waits {
            Waits::Adaptive => Self::Adaptive,
            Waits::Sleep => Self::Sleep,
            Waits::Yield => Self::Yield,
        }
    }
}

/// A processor.
#[derive(Default)]
pub(super) struct Cpu {
    /// The first one runs.
    pub(super) queue: VecDeque<usize>,
    /// Until when its step takes, and since when it runs.
    pub(super) until_ns: u64,
    since_ns: u64,
}

impl Cpu {
    /// The step of its thread takes so long. `goes`: another thread runs then.
    pub(super) fn takes(&mut self, took_ns: u64, goes: bool) {
        self.until_ns += took_ns;
        if goes {
            self.since_ns = self.until_ns;
        }
        if self.queue.len() > 1 && self.until_ns.saturating_sub(self.since_ns) > SLICE {
            self.queue.rotate_left(1);
            self.since_ns = self.until_ns;
        }
    }

    /// A thread is woken, behind so many others.
    pub(super) fn wakes(&mut self, me: usize, place: usize, now_ns: u64) {
        if self.queue.is_empty() {
            self.until_ns = now_ns + IDLE;
            self.since_ns = self.until_ns;
        }
        self.queue.insert(place.min(self.queue.len()), me);
    }
}

/// How a wait begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Look,
    Yield,
    LookAndYield,
    /// Looks and yields for ever.
    Free,
    Sleep,
}

/// The next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Work,
    /// A look, after so many yields of this wait.
    Look(u32),
    Yield(u32),
    Sleep,
    Asleep,
}

/// The waits of a thread for one peer, or any.
pub(super) struct Wait {
    spin: SpinPolicy,
    pub(super) yields: YieldPolicy,
    neighbours: Neighbours,
    way: Way,
    began_ns: u64,
    limit_ns: u64,
    /// When its yield began, if it yields, and how long the longest one of this wait took.
    pub(super) yielded_ns: Option<u64>,
    longest_ns: u64,
    woke_peer: bool,
    /// When the last wait ended.
    ended_ns: u64,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self {
            spin: SpinPolicy::new(T, LATENCY, u64::MAX),
            yields: YieldPolicy::default(),
            neighbours: Neighbours::new(T, YIELD),
            way: Way::Look,
            began_ns: 0,
            limit_ns: T,
            yielded_ns: None,
            longest_ns: 0,
            woke_peer: false,
            ended_ns: 0,
        }
    }

    /// The way of a wait that begins, of one of a chain or not, for a peer that `shares` the processor or not.
    pub(super) fn adaptive(&mut self, now_ns: u64, shares: bool, is_chain: bool) -> Way {
        match (shares, is_chain) {
            (true, _) if self.yields.is_worth(|| now_ns) => Way::Yield,
            (true, _) => Way::Sleep,
            (false, true) if self.yields.is_worth(|| now_ns) => Way::LookAndYield,
            _ => Way::Look,
        }
    }

    /// A wait begins, and the peer has asked for a limit, or not.
    pub(super) fn begin(&mut self, way: Way, now_ns: u64, woke_peer: bool, asked_ns: Option<u64>) {
        let is_brief = self.spin.is_brief(now_ns.saturating_sub(self.ended_ns));
        let woke_peer = woke_peer && is_brief;
        let limit_ns = asked_ns.unwrap_or_else(|| self.spin.limit_ns(woke_peer, now_ns));
        self.limit_ns = match way {
            Way::Look | Way::LookAndYield => limit_ns,
            Way::Free => u64::MAX,
            Way::Yield | Way::Sleep => 0,
        };
        self.neighbours.begins(now_ns);
        (self.way, self.began_ns) = (way, now_ns);
        (self.woke_peer, self.longest_ns) = (woke_peer, 0);
    }

    /// A look begins, perhaps after a yield.
    pub(super) fn looks(&mut self, now_ns: u64) {
        if let Some(yielded_ns) = self.yielded_ns.take() {
            let lasted_ns = now_ns - yielded_ns;
            self.neighbours.yielded(now_ns, lasted_ns);
            self.longest_ns = self.longest_ns.max(lasted_ns);
        }
    }

    /// The step that follows a look in vain.
    pub(super) fn next(&self, now_ns: u64, yields: u32, is_put_off: bool) -> Step {
        let took_ns = now_ns - self.began_ns;
        let is_within = took_ns < self.limit_ns && !is_put_off;
        let is_short = !YieldPolicy::is_long(self.longest_ns);
        match self.way {
            Way::Free => Step::Yield(yields),
            Way::Yield if yields < YIELDS && !YieldPolicy::is_long(took_ns) => Step::Yield(yields),
            Way::Look if is_within => Step::Look(yields),
            Way::LookAndYield if is_within && is_short => match self.neighbours.is_due(now_ns) {
                true => Step::Yield(yields),
                false => Step::Look(yields),
            },
            _ => Step::Sleep,
        }
    }

    /// The looks and yields of a wait are over, of which the last one has found something, or none has.
    pub(super) fn looked(&mut self, now_ns: u64, found: Option<u32>, is_chain: bool) {
        match self.way {
            Way::Yield => {
                if let Some(yields) = found.filter(|yields| is_chain && *yields > 0) {
                    self.yields.found_by(yields);
                }
                self.yields.ended(found, now_ns - self.began_ns);
            }
            Way::LookAndYield | Way::Free => self.yields.ended(Some(0), self.longest_ns),
            Way::Look | Way::Sleep => {}
        }
    }

    /// The message has come, which was posted at this time.
    pub(super) fn ended(&mut self, now_ns: u64, posted_ns: u64) {
        let delay_ns = posted_ns.saturating_sub(self.began_ns);
        self.spin.ended(delay_ns, self.woke_peer);
        self.ended_ns = now_ns;
    }
}
