//! Running a strategy: look, spin, and sleep at a [`Place`].

use crate::Strategy;
use crate::calibration::{Calibration, calibration};
use crate::chain;
use crate::place::{Cost, Ended, Place, Sleep, Start};
use crate::sleep_wake::SleepWake;
use core::time::Duration;
use handfast_proto::neighbours::Neighbours;
use handfast_proto::spin::SpinPolicy;
use handfast_proto::yields::YieldPolicy;
use handfast_sys::clock;

/// One endpoint's waiting: its strategy and what that has learned.
#[derive(Clone, Debug)]
pub struct Waiter {
    strategy: Strategy,
    cap_ns: u64,
    machine: Calibration,
    policy: SpinPolicy,
    yields: YieldPolicy,
    neighbours: Neighbours,
    /// When the last wait ended that asked the strategy.
    ended_ns: u64,
}

/// Looks an eager waiter makes before it asks its strategy: about half a microsecond, without
/// pauses and without the clock. Shorter than this is what both sides busy look like.
pub const FIRST_LOOKS: u32 = 128;
/// As [`FIRST_LOOKS`], for looks with a pause in between.
pub const FIRST_PAUSED_LOOKS: u32 = 32;
/// The longest that a task blocks its executor: a few system calls.
pub const BRIEF_NS: u64 = 20_000;
/// Yields to a peer on the same processor before a wait sleeps: others of its peers run as well meanwhile.
const YIELDS: u32 = 8;
/// As long as the kernel lets another thread run when one yields to it, or longer.
const SLICE: Duration = Duration::from_millis(10);
/// Looks between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 16;

impl Waiter {
    /// A waiter with `strategy`; adaptive spinning never exceeds `cap`.
    #[must_use]
    pub fn new(strategy: Strategy, cap: Option<Duration>) -> Self {
        let machine = calibration();
        let cap_ns = cap.map_or(u64::MAX, |cap| {
            u64::try_from(cap.as_nanos()).unwrap_or(u64::MAX)
        });
        let policy = SpinPolicy::new(machine.block_cost_ns, machine.wake_latency_ns, cap_ns);
        Self {
            strategy,
            cap_ns,
            machine,
            policy,
            yields: YieldPolicy::default(),
            neighbours: Neighbours::new(machine.block_cost_ns, machine.yield_ns),
            ended_ns: 0,
        }
    }

    /// The strategy in use.
    #[must_use]
    pub const fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Whether this waiter looks a few hundred times before anything else: all do but waiters that
    /// sleep at once, and none does where only one processor is online.
    #[must_use]
    pub const fn is_eager(&self) -> bool {
        self.strategy.is_eager_on(self.machine.cpus)
    }

    /// Whether other threads ran on this processor when this waiter yielded last, as one of a chain, and it is to yield again.
    #[must_use]
    pub const fn has_neighbours(&self) -> bool {
        self.neighbours.has_any() && !self.yields.is_skipping()
    }

    /// Waits at `place`. `woke_peer`: the caller's own last post had to wake the peer it now
    /// waits for.
    pub fn wait(
        &mut self,
        place: &mut impl Place,
        deadline_ns: Option<u64>,
        woke_peer: bool,
    ) -> (Ended, Cost) {
        if let Some(protocol) = SleepWake::of(self.strategy) {
            let one_cpu = self.machine.cpus < 2 || place.shares_processor();
            return protocol.wait(place, deadline_ns, (one_cpu, woke_peer));
        }
        if place.look() {
            return (Ended::Ready, Cost::default());
        }
        self.wait_long(place, deadline_ns, woke_peer)
    }

    fn wait_long(
        &mut self,
        place: &mut impl Place,
        deadline_ns: Option<u64>,
        woke_peer: bool,
    ) -> (Ended, Cost) {
        // Of earlier waits.
        let _ = place.worked_ns();
        let start_ns = clock::ticks_ns();
        let cost = Cost { spun: true };
        let is_chain = chain::begins();
        // Else the peer was asleep in any case.
        let woke_peer = woke_peer && self.policy.is_brief(start_ns.saturating_sub(self.ended_ns));
        let spun = match self.strategy {
            Strategy::Spin => spin(place, None, deadline_ns, start_ns),
            Strategy::Sched => sched(place, deadline_ns),
            Strategy::SpinSched { limit } => {
                let limit_ns = Some(self.fixed(limit));
                spin(place, limit_ns, deadline_ns, start_ns).or_else(|| sched(place, deadline_ns))
            }
            Strategy::SpinBlock { limit } | Strategy::SpinNotify { limit } => {
                spin(place, Some(self.fixed(limit)), deadline_ns, start_ns)
            }
            Strategy::Adaptive if place.shares_processor() => {
                self.yield_briefly(place, start_ns, is_chain)
            }
            Strategy::Adaptive
                if is_chain && is_far(deadline_ns) && self.yields.is_worth(clock::now_ns) =>
            {
                self.look_and_yield(place, (woke_peer, deadline_ns), start_ns)
            }
            Strategy::Adaptive => {
                let limit_ns = self.adaptive_limit(place, woke_peer);
                spin(place, Some(limit_ns), deadline_ns, start_ns)
            }
            Strategy::Block | Strategy::Notify => None,
            // By `SleepWake`, in `wait`.
            Strategy::Bss | Strategy::Bsw | Strategy::Bswy | Strategy::Bsls { .. } => None,
        };
        let learns = self.strategy == Strategy::Adaptive;
        if let Some(ended) = spun {
            if ended == Ended::Ready && learns {
                self.learn_of(place, start_ns, None, woke_peer);
            }
            return (ended, cost);
        }
        let how = if self.strategy.notifies() {
            Sleep::Notify
        } else {
            Sleep::Block
        };
        let start = learns.then_some(Start::at(start_ns));
        loop {
            let parked = place.park(how, deadline_ns, start);
            if parked.ready {
                if learns {
                    self.learn_of(place, start_ns, parked.posted_after_ns, woke_peer);
                }
                return (Ended::Ready, cost);
            }
            if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
                return (Ended::TimedOut, cost);
            }
        }
    }

    /// A wait ends that began then, and for whose event its waker has left a stamp or not.
    fn learn_of(
        &mut self,
        place: &mut impl Place,
        start_ns: u64,
        posted_after_ns: Option<u64>,
        woke_peer: bool,
    ) {
        self.ended_ns = clock::ticks_ns();
        let elapsed_ns = self.ended_ns.saturating_sub(start_ns);
        let elapsed_ns = elapsed_ns.saturating_sub(place.worked_ns());
        let delay_ns = posted_after_ns.map_or(elapsed_ns, |ns| ns.min(elapsed_ns));
        self.policy.ended(delay_ns, woke_peer);
    }

    /// Spins as the strategy says, for a task, which blocks its executor meanwhile and is not to sleep here:
    /// at the longest for [`BRIEF_NS`]. Whether something is there. The outcome of the wait
    /// otherwise is told to [`Self::learn`].
    pub fn spin_briefly(&mut self, place: &mut impl Place) -> bool {
        let start_ns = clock::ticks_ns();
        let limit_ns = match self.strategy {
            Strategy::Block | Strategy::Notify | Strategy::Bsw | Strategy::Bswy => 0,
            Strategy::Adaptive => self.adaptive_limit(place, false),
            Strategy::SpinBlock { limit }
            | Strategy::SpinNotify { limit }
            | Strategy::SpinSched { limit } => self.fixed(limit),
            _ => self.machine.block_cost_ns,
        };
        let spun = spin(place, Some(limit_ns.min(BRIEF_NS)), None, start_ns);
        if spun.is_some() {
            self.learn(clock::ticks_ns().saturating_sub(start_ns));
        }
        spun.is_some()
    }

    /// The event of a wait that goes on elsewhere has come, so long after the wait began.
    pub fn learn(&mut self, delay_ns: u64) {
        if self.strategy == Strategy::Adaptive {
            self.policy.ended(delay_ns, false);
        }
    }

    /// For a peer that cannot run meanwhile: lets it, where that has been worth it.
    fn yield_briefly(
        &mut self,
        place: &mut impl Place,
        start_ns: u64,
        is_chain: bool,
    ) -> Option<Ended> {
        if !self.yields.is_worth(clock::now_ns) {
            return None;
        }
        let (mut found, mut took_ns) = (None, 0);
        for yields in 1..=YIELDS {
            place.give_way();
            found = place.look().then_some(yields);
            took_ns = clock::ticks_ns().saturating_sub(start_ns);
            if found.is_some() || YieldPolicy::is_long(took_ns) {
                break;
            }
        }
        if let Some(yields) = found.filter(|_| is_chain) {
            self.yields.found_by(yields);
        }
        self.yields.ended(found, took_ns);
        found.map(|_| Ended::Ready)
    }

    /// For one of several peers, of which some may share this processor: looks as long as one that spins does, and lets them run
    /// meanwhile.
    fn look_and_yield(
        &mut self,
        place: &mut impl Place,
        (woke_peer, deadline_ns): (bool, Option<u64>),
        start_ns: u64,
    ) -> Option<Ended> {
        let limit_ns = self.adaptive_limit(place, woke_peer);
        let mut longest_ns = 0;
        self.neighbours.begins(start_ns);
        let ended = loop {
            let now_ns = clock::ticks_ns();
            let is_over = now_ns.saturating_sub(start_ns) >= limit_ns;
            if is_over || YieldPolicy::is_long(longest_ns) || place.is_put_off() {
                break None;
            }
            if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
                break Some(Ended::TimedOut);
            }
            if self.neighbours.is_due(now_ns) {
                place.give_way();
                let after_ns = clock::ticks_ns();
                let took_ns = after_ns.saturating_sub(now_ns);
                self.neighbours.yielded(after_ns, took_ns);
                longest_ns = took_ns.max(longest_ns);
            } else {
                place.pause(1);
            }
            if place.look() {
                break Some(Ended::Ready);
            }
        };
        // Yields in vain cost no more than looks in vain.
        self.yields.ended(Some(0), longest_ns);
        ended
    }

    /// Spins are worth nothing when the peer cannot run meanwhile.
    fn adaptive_limit(&mut self, place: &mut impl Place, woke_peer: bool) -> u64 {
        if self.machine.cpus < 2 || place.shares_processor() {
            return 0;
        }
        match place.asked_limit_ns() {
            Some(asked_ns) => asked_ns.min(self.cap_ns),
            None => self.policy.limit_ns(woke_peer, clock::now_ns()),
        }
    }

    fn fixed(&self, limit: Option<Duration>) -> u64 {
        limit.map_or(self.machine.block_cost_ns, |limit| {
            u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
        })
    }
}

/// Whether a yield that takes a time slice of another thread ends before the deadline.
fn is_far(deadline_ns: Option<u64>) -> bool {
    deadline_ns.is_none_or(|deadline_ns| deadline_ns > clock::deadline_ns(SLICE))
}

/// Looks until something is there, the limit or the deadline passes, or the peer puts us off.
fn spin(
    place: &mut impl Place,
    limit_ns: Option<u64>,
    deadline_ns: Option<u64>,
    start_ns: u64,
) -> Option<Ended> {
    loop {
        if limit_ns.is_some_and(|limit| clock::ticks_ns().saturating_sub(start_ns) >= limit) {
            return None;
        }
        for _ in 0..LOOKS_PER_CLOCK {
            if place.look() {
                return Some(Ended::Ready);
            }
            place.pause(1);
        }
        if limit_ns.is_some() && place.is_put_off() {
            return None;
        }
        if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
            return Some(Ended::TimedOut);
        }
    }
}

/// Looks and yields until something is there or the deadline passes.
fn sched(place: &mut impl Place, deadline_ns: Option<u64>) -> Option<Ended> {
    loop {
        place.give_way();
        if place.look() {
            return Some(Ended::Ready);
        }
        if deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns) {
            return Some(Ended::TimedOut);
        }
    }
}

#[cfg(test)]
mod tests;
