//! The adaptive spin limit: the best of {0, T/2, T, 2T} on the recent waits.
//!
//! T is what one block and wake-up costs ([`SpinPolicy::new`]). A wait of `d` costs `d` when the
//! spin limit covers it and `limit + T` when it does not; the policy keeps the last
//! [`WINDOW`] waits, knows what each of the four limits would have cost on them, and uses the
//! cheapest. Coarse limits lose nothing in theory against a finely fitted one and do not gamble
//! on jitter. Three rules come from measurement:
//!
//! * The sample is the time from the start of the wait to the *post*, not to the wake-up.
//! * When the waiter's own last post had to wake the peer, the wake-up's latency is subtracted:
//!   else both sides learn each other's wake-ups and stay asleep for ever. Not where the waiter itself has kept the peer waiting for
//!   longer than T ([`SpinPolicy::is_brief`]): the peer would sleep then in any case, and the latency belongs to the wait.
//! * Three and more who wait for each other in turn see the wake-ups of all others in their waits: once one of them was held
//!   up for a moment, all would sleep for ever, and none can end that alone. So short waits save up for a few very long
//!   limits, which are spent by all of them at the same time, when such a moment has come; and some are given away now and
//!   then, also at the same time.

/// Waits the policy remembers.
pub const WINDOW: usize = 64;
/// A very long limit, in T: the wake-ups of all others in a chain.
const LONG_T: u64 = 8;
/// Waits of at most T that are worth one credit.
const SHORT_WAITS: u32 = 64;
/// Where [`Credit::long`] must be before credits are spent: by then all in a chain have had long waits.
const LONG: u32 = 8;
/// The costs of a wait of more than T that had the very long limit, and of one that has outlasted even that.
const COSTS: (u32, u32) = (1, 3);
/// Credits that are saved at most: three waits in vain.
const CREDITS: u32 = 9;
/// Credits that are given away.
const GIFT: u32 = 6;
/// How often: whenever the clock, which all processes share, passes a multiple of it.
const GIFT_EVERY_NS: u64 = 1 << 27;
/// The spin limits, as numerators over two, of T.
const LIMITS_HALF_T: [u64; 4] = [0, 1, 2, 4];

/// Learns a spin limit from the delays it is shown.
#[derive(Clone, Debug)]
pub struct SpinPolicy {
    block_cost_ns: u64,
    wake_latency_ns: u64,
    cap_ns: u64,
    /// Delays of the recent waits, a ring. `u32` holds four seconds; longer is all the same.
    delays_ns: [u32; WINDOW],
    len: usize,
    next: usize,
    /// The cost that each limit would have had on the waits in the ring.
    costs_ns: [u64; 4],
    best: usize,
    credit: Credit,
}

/// Whether waits have the very long limit.
#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    left: u32,
    /// The number of the last gift.
    gift: u64,
    /// Two for each wait of more than T, one less for each other: a caller whose calls are passed on has a short wait before
    /// each long one.
    long: u32,
    /// Others since the last credit that they made.
    short: u32,
    /// Whether they have, until there are so many short ones again that the window knows it.
    is_on: bool,
}

impl Credit {
    /// Whether the wait that begins now has it.
    fn begins(&mut self, now_ns: u64) -> bool {
        let gift = now_ns / GIFT_EVERY_NS;
        if gift != self.gift {
            self.gift = gift;
            self.left = self.left.max(GIFT);
        }
        self.is_on |= self.long >= LONG;
        // Enough for one in vain.
        self.is_on &= self.left >= COSTS.1;
        self.is_on
    }

    fn ended(&mut self, is_short: bool, is_in_vain: bool) {
        if is_short {
            self.long = self.long.saturating_sub(1);
            self.short += 1;
            if self.short == SHORT_WAITS {
                self.short = 0;
                self.left = (self.left + 1).min(CREDITS);
                self.is_on = false;
            }
            return;
        }
        self.long = (self.long + 2).min(LONG);
        if self.is_on {
            let cost = if is_in_vain { COSTS.1 } else { COSTS.0 };
            self.left = self.left.saturating_sub(cost);
        }
    }
}

impl SpinPolicy {
    /// A policy for a machine where one block and wake-up costs `block_cost_ns` of processor time
    /// on both sides together and a woken peer answers `wake_latency_ns` later than a spinning
    /// one. No limit exceeds `cap_ns`. Starts at T, the 2-competitive choice.
    #[must_use]
    pub fn new(block_cost_ns: u64, wake_latency_ns: u64, cap_ns: u64) -> Self {
        Self {
            block_cost_ns: block_cost_ns.max(1),
            wake_latency_ns,
            cap_ns,
            delays_ns: [0; WINDOW],
            len: 0,
            next: 0,
            costs_ns: [0; 4],
            best: 2,
            credit: Credit::default(),
        }
    }

    /// The longest this wait should spin, in nanoseconds, which begins at `now_ns` by a clock that all processes
    /// share. `woke_peer` as in [`Self::ended`]: the latency discounted there is granted here, else a limit of
    /// T/2 would never outlast it.
    #[must_use]
    pub fn limit_ns(&mut self, woke_peer: bool, now_ns: u64) -> u64 {
        let limit_ns = if self.credit.begins(now_ns) {
            self.long_ns()
        } else if woke_peer && self.best != 0 {
            self.limit_of(self.best) + self.wake_latency_ns
        } else {
            self.limit_of(self.best)
        };
        limit_ns.min(self.cap_ns)
    }

    /// Whether a peer that spins would still be awake after a waiter's work of so long.
    #[must_use]
    pub const fn is_brief(&self, work_ns: u64) -> bool {
        work_ns <= self.block_cost_ns
    }

    const fn long_ns(&self) -> u64 {
        self.block_cost_ns * LONG_T
    }

    /// A wait ended `delay_ns` after it began (up to the post). `woke_peer` says that the
    /// waiter's own last post had to wake the peer.
    pub fn ended(&mut self, delay_ns: u64, woke_peer: bool) {
        let is_short = delay_ns <= self.block_cost_ns;
        self.credit.ended(is_short, delay_ns > self.long_ns());
        let discount = if woke_peer { self.wake_latency_ns } else { 0 };
        self.enter(delay_ns.saturating_sub(discount));
    }

    fn limit_of(&self, choice: usize) -> u64 {
        self.block_cost_ns * LIMITS_HALF_T[choice] / 2
    }

    fn cost(&self, choice: usize, delay_ns: u64) -> u64 {
        let limit = self.limit_of(choice);
        if delay_ns <= limit && choice != 0 {
            delay_ns
        } else {
            limit + self.block_cost_ns
        }
    }

    fn enter(&mut self, delay_ns: u64) {
        let delay = u32::try_from(delay_ns).unwrap_or(u32::MAX);
        let old = (self.len == WINDOW).then(|| u64::from(self.delays_ns[self.next]));
        for choice in 0..LIMITS_HALF_T.len() {
            let gone = old.map_or(0, |old| self.cost(choice, old));
            self.costs_ns[choice] += self.cost(choice, u64::from(delay));
            self.costs_ns[choice] -= gone;
        }
        self.delays_ns[self.next] = delay;
        self.next = (self.next + 1) % WINDOW;
        self.len = (self.len + 1).min(WINDOW);
        // The first of equals: the shortest limit.
        let mut best = 0;
        for choice in 1..LIMITS_HALF_T.len() {
            if self.costs_ns[choice] < self.costs_ns[best] {
                best = choice;
            }
        }
        self.best = best;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 10_000;
    /// Waits of one law.
    const WAITS: usize = if cfg!(miri) { 500 } else { 20_000 };

    fn run(delays: impl Iterator<Item = u64>) -> (u64, u64) {
        let mut policy = SpinPolicy::new(T, 7_000, u64::MAX);
        let (mut cost, mut optimum, mut now) = (0, 0, 0);
        for delay in delays {
            let limit = policy.limit_ns(false, now);
            now += delay;
            cost += if delay <= limit { delay } else { limit + T };
            optimum += delay.min(T);
            policy.ended(delay, false);
        }
        (cost, optimum)
    }

    /// A fixed sequence of pseudo-random numbers in 0..1 (xorshift), printed seed included.
    fn uniform(seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed;
        core::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        })
    }

    fn exponential(mean_ns: f64) -> impl Iterator<Item = u64> {
        uniform(0x9e37_79b9).map(move |u| (-(1.0 - u).ln() * mean_ns) as u64)
    }

    #[test]
    fn the_cost_of_waiting_stays_near_the_offline_optimum_on_every_law() {
        let mut ratios = Vec::new();
        let mut law = |name: &str, delays: Vec<u64>| {
            let (cost, optimum) = run(delays.into_iter());
            let ratio = cost as f64 / optimum as f64;
            println!("{name}: {ratio:.2}");
            assert!(ratio < 1.75, "{name}: {ratio:.2} of the offline optimum");
            ratios.push(ratio);
        };
        for us in [1, 5, 20, 100] {
            law(&format!("constant {us} us"), vec![us * 1000; WAITS]);
            law(
                &format!("exponential {us} us"),
                exponential(us as f64 * 1000.0).take(WAITS).collect(),
            );
        }
        let two = |p: f64, a: u64, b: u64| {
            uniform(7)
                .map(move |u| if u < p { a } else { b })
                .take(WAITS)
                .collect::<Vec<_>>()
        };
        law("90/10 of 2 and 200 us", two(0.9, 2_000, 200_000));
        law("50/50 of 2 and 100 us", two(0.5, 2_000, 100_000));
        law(
            "phases",
            (0..WAITS)
                .map(|i| if i / 500 % 2 == 0 { 2_000 } else { 100_000 })
                .collect(),
        );
        let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
        println!("geometric mean {:.3}", mean.exp());
        assert!(mean.exp() < 1.25);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a long simulation of safe code")]
    fn two_adaptive_sides_do_not_learn_each_others_wake_ups() {
        // Each side sees 200 ns of service plus the other's wake-up latency whenever the other
        // slept. Started asleep (both windows full of long waits), they must spin again.
        let latency = 7_000;
        let mut sides = [
            SpinPolicy::new(T, latency, u64::MAX),
            SpinPolicy::new(T, latency, u64::MAX),
        ];
        for side in &mut sides {
            for _ in 0..WINDOW {
                side.ended(1_000_000, false);
            }
        }
        let (mut asleep, mut parks) = ([true, true], 0);
        for step in 0..4_000 {
            let (me, peer) = ((step % 2) as usize, (1 - step % 2) as usize);
            let woke_peer = asleep[peer];
            let delay = 200 + if woke_peer { latency } else { 0 };
            let limit = sides[me].limit_ns(woke_peer, step);
            asleep[me] = delay > limit;
            parks += u32::from(asleep[me] && step > 2_000);
            sides[me].ended(delay, woke_peer);
        }
        assert!(parks < 40, "{parks} parks in the second half: locked in");
    }

    #[test]
    #[cfg_attr(miri, ignore = "a long simulation of safe code")]
    fn without_the_discount_they_do() {
        // The control of the test above: latency not subtracted. Kept so that the rule's reason
        // stays visible.
        let latency = 12_000;
        let mut sides = [
            SpinPolicy::new(T, 0, u64::MAX),
            SpinPolicy::new(T, 0, u64::MAX),
        ];
        for side in &mut sides {
            for _ in 0..WINDOW {
                side.ended(1_000_000, false);
            }
        }
        let (mut asleep, mut parks) = ([true, true], 0);
        for step in 0..4_000 {
            let (me, peer) = ((step % 2) as usize, (1 - step % 2) as usize);
            let delay = 200 + if asleep[peer] { latency } else { 0 };
            let limit = sides[me].limit_ns(false, step);
            asleep[me] = delay > limit;
            parks += u32::from(asleep[me] && step > 2_000);
            sides[me].ended(delay, asleep[peer]);
        }
        assert!(
            parks > 1_000,
            "only {parks} parks: the discount would not be needed"
        );
    }

    /// The share of waits that slept, of `members` who wait for each other in turn and work for 300 ns each, but for 100 us
    /// once in `held_up` turns. The first one's wait is two where its call `is_passed_on`: until the second one has said so, and on.
    fn sleeps_of_a_chain(
        (members, is_passed_on): (usize, bool),
        held_up: f64,
        rule: impl Fn(&mut SpinPolicy),
    ) -> f64 {
        const LATENCY: u64 = 7_000;
        const TURNS: u32 = 100_000;
        let (mut now, mut sleeps) = (GIFT_EVERY_NS, 0);
        let mut chain = vec![SpinPolicy::new(T, LATENCY, u64::MAX); members];
        // When each began to wait, for how long it spins, and whether it woke the next one then.
        let mut waits = vec![(now, 0, false); members];
        for (turn, draw) in uniform(0x5eed).take(TURNS as usize).enumerate() {
            let (me, next) = (turn % members, (turn + 1) % members);
            let delay = |(began, ..): (u64, u64, bool), now: u64| now - began;
            let is_asleep = |wait: (u64, u64, bool), now| delay(wait, now) > wait.1;
            chain[me].ended(delay(waits[me], now), waits[me].2);
            if is_asleep(waits[me], now) {
                now += LATENCY;
                sleeps += 1;
            }
            if is_passed_on && me == 1 && !is_asleep(waits[0], now) {
                chain[0].ended(delay(waits[0], now), waits[0].2);
                waits[0] = (now, chain[0].limit_ns(false, now), false);
            }
            now += if draw < 1.0 / held_up { 100_000 } else { 300 };
            rule(&mut chain[me]);
            let wakes = is_asleep(waits[next], now);
            waits[me] = (now, chain[me].limit_ns(wakes, now), wakes);
        }
        f64::from(sleeps) / f64::from(TURNS)
    }

    #[test]
    #[cfg_attr(miri, ignore = "a long simulation of safe code")]
    fn a_chain_that_was_held_up_spins_again() {
        for chain in [
            (2, false),
            (3, false),
            (4, false),
            (6, false),
            (3, true),
            (4, true),
        ] {
            let with = sleeps_of_a_chain(chain, 5_000.0, |_| ());
            let without = sleeps_of_a_chain(chain, 5_000.0, |policy| policy.credit.left = 0);
            println!("{chain:?}: {with:.4} of the waits sleep, {without:.4} without credits");
            assert!(with < 0.02, "{chain:?}: {with:.4}");
            assert!(
                chain.0 < 4 || chain.1 || without > 0.5,
                "{chain:?}: {without:.4}"
            );
        }
    }

    /// The cost of a client that pauses between its calls, and of one that always sleeps, where a wake-up takes longer than a block costs: each
    /// of its calls has to wake the server. `counts` as in [`SpinPolicy::is_brief`].
    fn costs_of_pauses(pause_ns: u64, counts: impl Fn(&SpinPolicy) -> bool) -> (u64, u64) {
        const LATENCY: u64 = 15_000;
        let mut policy = SpinPolicy::new(T, LATENCY, u64::MAX);
        let (mut cost, mut asleep, mut now) = (0, 0, 0);
        for _ in 0..WAITS {
            let woke_peer = counts(&policy);
            let delay = 200 + LATENCY;
            let limit = policy.limit_ns(woke_peer, now);
            cost += if delay <= limit { delay } else { limit + T };
            asleep += T;
            now += delay + pause_ns;
            policy.ended(delay, woke_peer);
        }
        (cost, asleep)
    }

    #[test]
    fn a_client_that_pauses_costs_hardly_more_than_one_that_sleeps() {
        let pause = 100_000;
        let (cost, asleep) = costs_of_pauses(pause, |policy| policy.is_brief(pause));
        println!("{:.3} of asleep", cost as f64 / asleep as f64);
        assert!(cost * 100 <= asleep * 105, "{cost}, asleep {asleep}");
        // The control: if the server's wake-ups were discounted there, too.
        let (discounted, _) = costs_of_pauses(pause, |_| true);
        assert!(
            discounted * 100 > asleep * 140,
            "{discounted}, asleep {asleep}"
        );
    }

    #[test]
    fn the_cap_is_never_exceeded() {
        let mut policy = SpinPolicy::new(T, 0, 3_000);
        for delay in [1_000, 5_000, 12_000, 900_000]
            .into_iter()
            .cycle()
            .take(1_000)
        {
            assert!(policy.limit_ns(true, 0) <= 3_000);
            policy.ended(delay, false);
        }
    }
}
