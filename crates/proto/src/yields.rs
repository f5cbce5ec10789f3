//! When a waiter whose peer shares its processor should yield before it sleeps.
//!
//! While both are busy a yield is the whole exchange: the peer runs, answers, and yields back; nobody goes to sleep
//! and nobody has to be woken, which is two system calls for each message instead of four. But it is
//! the peer's turn only where nobody else waits for the processor: a third one gets a whole time slice from each
//! yield, and a peer that is not ready makes it one for nothing. So each failure makes the next yields rarer,
//! and one that took long far rarer:
//!
//! * Found, and soon: the next wait yields too.
//! * Not found: one wait sleeps at once, then twice as many with each failure that follows, 16 at the most. Found by the third yield, or a later
//!   one: likewise, since a sleep and a wake-up would have cost less. So do calls through five processes on one processor, whose answers come back by
//!   a round of all five at each step.
//! * Long: 128, likewise, 65,536 at the most; half as many only after 16 times as many that were short, since one
//!   that computes lets many pass between two of its time slices.
//! * Long for all: of many that share a processor, those that sleep are woken before those that yield, so that each yield takes long as
//!   long as most of them sleep. None can end that alone. Whenever the clock, which all share, passes a multiple of 134 ms, all yield for
//!   8 ms, whatever that takes; half as often after each time that was in vain, every 2.1 s at the least.
//! * Found again and again, and never by the first yield, by one of three or more peers that take turns: one wait sleeps at once. They run in the
//!   wrong order then, so that each turn takes a round of all, and one that is woken comes next to its waker.
//!
//! (Paper 000, section 4.1, Figures 7 and 8: BSWY, which always yields, once, falls behind as clients become more, because a
//! yield that does not bring the peer is only time lost.)

/// Waits without a yield after the first that found nothing.
const FEW: u32 = 1;
/// At the most.
const FEW_MOST: u32 = 16;
/// After the first that took long.
const MANY: u32 = 128;
/// At the most.
const MOST: u32 = 1 << 16;
/// Longer than the peer and its neighbours take for their work, shorter than a time slice.
const LONG_NS: u64 = 500_000;

/// Yields that cost no more than a sleep and a wake-up.
const WORTH: u32 = 2;
/// Found by a second yield, or a later one, so often that one wait sleeps to be woken in turn.
const LATE: u32 = 4;
/// At the most.
const LATE_MOST: u32 = 64;
/// Short ones for each that may be long, before that is thought to be over.
const TRUST: u32 = 16;
/// Whenever the clock, which all processes share, passes a multiple of this, long waits do not count for a while.
const TRY_EVERY_NS: u64 = 1 << 27;
const TRY_NS: u64 = 1 << 23;
/// Tries in vain, of which each doubles the time until the next one.
const VAIN_MOST: u32 = 4;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct YieldPolicy {
    /// Waits that are to sleep at once.
    skips: u32,
    /// How many after the next that finds nothing, and after the next that takes long.
    few: u32,
    many: u32,
    /// Found in a row, none of them long.
    found: u32,
    /// Found in a row, none of them by the first yield; and how many make one sleep.
    late: u32,
    late_most: u32,
    /// The number of the last try, whether it goes on, and how many were in vain.
    tried: u64,
    is_trying: bool,
    vain: u32,
}

impl Default for YieldPolicy {
    fn default() -> Self {
        Self {
            skips: 0,
            few: FEW,
            many: MANY,
            found: 0,
            late: 0,
            late_most: LATE,
            tried: 0,
            is_trying: false,
            vain: 0,
        }
    }
}

impl YieldPolicy {
    /// Whether this wait should yield first. The clock is that of all processes.
    #[must_use]
    pub fn is_worth(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        if self.skips == 0 {
            self.is_trying = false;
            return true;
        }
        if self.skips > FEW_MOST && self.tries(now_ns()) {
            return true;
        }
        self.skips -= 1;
        false
    }

    /// Whether it is time for a try.
    fn tries(&mut self, now_ns: u64) -> bool {
        let (number, since_ns) = (now_ns / TRY_EVERY_NS, now_ns % TRY_EVERY_NS);
        let is_new = number != self.tried && number.is_multiple_of(1 << self.vain);
        self.is_trying = since_ns < TRY_NS && (is_new || number == self.tried);
        if self.is_trying && is_new {
            self.tried = number;
            self.vain = (self.vain + 1).min(VAIN_MOST);
        }
        self.is_trying
    }

    /// Whether the next wait is to sleep at once.
    #[must_use]
    pub const fn is_skipping(&self) -> bool {
        self.skips > 0
    }

    /// Whether others have run meanwhile: no more yields then.
    #[must_use]
    pub const fn is_long(took_ns: u64) -> bool {
        took_ns >= LONG_NS
    }

    /// For one of several peers that take turns: the message or answer was there after so many yields.
    pub fn found_by(&mut self, yields: u32) {
        if yields < 2 {
            (self.late, self.late_most) = (0, LATE);
            return;
        }
        self.late += 1;
        if self.late >= self.late_most {
            self.late = 0;
            self.late_most = (2 * self.late_most).min(LATE_MOST);
            self.skips = self.skips.max(1);
        }
    }

    /// The yields of a wait took so long, and what was waited for was there after so many of them, or not at all.
    pub fn ended(&mut self, found: Option<u32>, took_ns: u64) {
        if Self::is_long(took_ns) {
            self.skips = self.many;
            if !self.is_trying {
                self.many = (2 * self.many).min(MOST);
            }
            self.found = 0;
        } else if found.is_none_or(|yields| yields > WORTH) {
            self.skips = self.few;
            self.few = (2 * self.few).min(FEW_MOST);
        } else {
            self.few = FEW;
            self.found += 1;
            if self.is_trying {
                self.skips = 0;
            }
            if self.found >= TRUST {
                self.vain = 0;
            }
            if self.found >= TRUST * self.many {
                self.many = (self.many / 2).max(MANY);
                self.found = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time without a try.
    const NEVER_NS: u64 = TRY_NS;

    /// How many of so many waits yield, when each yield ends like this.
    fn yields(policy: &mut YieldPolicy, waits: u32, found: bool, took_ns: u64) -> u32 {
        let found = found.then_some(1);
        let mut count = 0;
        for _ in 0..waits {
            if policy.is_worth(|| NEVER_NS) {
                policy.ended(found, took_ns);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn what_is_found_soon_is_yielded_for_each_time() {
        let mut policy = YieldPolicy::default();
        assert_eq!(yields(&mut policy, 1_000, true, 1_000), 1_000);
        // And again, soon after it was not.
        let _ = yields(&mut policy, 1_000, false, 1_000);
        let few = FEW_MOST + 1;
        assert!(yields(&mut policy, 2 * few, true, 1_000) >= few);
    }

    #[test]
    fn what_is_not_found_or_found_late_costs_few_yields() {
        for found in [None, Some(WORTH + 1)] {
            let (mut policy, mut count) = (YieldPolicy::default(), 0);
            for _ in 0..17_000 {
                if policy.is_worth(|| NEVER_NS) {
                    policy.ended(found, 1_000);
                    count += 1;
                }
            }
            assert!((990..=1_010).contains(&count), "{found:?}: {count}");
        }
    }

    #[test]
    fn time_slices_between_many_short_yields_become_rare() {
        let mut policy = YieldPolicy::default();
        let mut slices = 0;
        for wait in 0..1_000_000_u32 {
            if policy.is_worth(|| NEVER_NS) {
                let is_slice = wait.is_multiple_of(600);
                slices += u32::from(is_slice);
                policy.ended(Some(1), if is_slice { 3_000_000 } else { 1_000 });
            }
        }
        assert!(slices < 60, "{slices}");
    }

    #[test]
    fn a_third_one_on_the_processor_gets_few_time_slices() {
        for found in [true, false] {
            let mut policy = YieldPolicy::default();
            let count = yields(&mut policy, 1_000_000, found, 3_000_000);
            assert!(count < 30, "{count}");
            // It has gone: that is noticed.
            assert!(yields(&mut policy, 2 * MOST, true, 1_000) > MOST / 2);
        }
    }

    #[test]
    fn tries_beside_one_that_computes_take_a_hundredth_of_the_time() {
        const SLICE_NS: u64 = 3_000_000;
        let (mut policy, mut now_ns, mut lost_ns) = (YieldPolicy::default(), 0, 0);
        let end_ns = 60_000_000_000;
        while now_ns < end_ns {
            if policy.is_worth(|| now_ns) {
                policy.ended(None, SLICE_NS);
                now_ns += SLICE_NS;
                lost_ns += SLICE_NS;
            }
            now_ns += 10_000;
        }
        println!("{lost_ns} of {end_ns} ns");
        assert!(lost_ns * 100 < end_ns, "{lost_ns} of {end_ns} ns");
        // The other has gone: that is noticed at the next try.
        let every_ns = TRY_EVERY_NS << VAIN_MOST;
        let mut times = (now_ns..).step_by(10_000);
        let found_ns = times.find(|now_ns| policy.is_worth(|| *now_ns)).unwrap();
        assert!(found_ns - now_ns <= every_ns, "{} ns", found_ns - now_ns);
        policy.ended(Some(1), 1_000);
        assert!(policy.is_worth(|| found_ns));
    }

    #[test]
    fn peers_that_run_in_the_wrong_order_sleep_now_and_then() {
        let waits = |yields: u32, waits: u32| {
            let (mut policy, mut slept) = (YieldPolicy::default(), 0);
            for _ in 0..waits {
                if policy.is_worth(|| NEVER_NS) {
                    policy.found_by(yields);
                    policy.ended(Some(yields), 1_000);
                } else {
                    slept += 1;
                }
            }
            slept
        };
        assert_eq!(waits(1, 10_000), 0);
        // Soon, and ever more rarely where that does not help.
        assert!(waits(2, 2 * LATE) >= 1);
        let slept = waits(2, 10_000);
        assert!(
            (10_000 / LATE_MOST / 2..=10_000 / LATE_MOST + 8).contains(&slept),
            "{slept}"
        );
    }
}
