//! The steps of the seven strategies of paper 001, each at a place that writes them down.

use super::*;
use crate::place::Parked;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    Pause,
    Yield,
    Sleep(Sleep),
}

struct Recorder {
    steps: Vec<Step>,
    /// Looks that find nothing.
    vain: usize,
    yield_ns: u64,
    start_ns: u64,
    asleep_after_ns: Option<u64>,
}

impl Place for Recorder {
    fn look(&mut self) -> bool {
        self.steps.push(Step::Look);
        self.vain = self.vain.saturating_sub(1);
        self.vain == 0
    }

    fn pause(&mut self, _: u32) {
        self.steps.push(Step::Pause);
    }

    fn give_way(&mut self) {
        self.steps.push(Step::Yield);
        let end_ns = clock::ticks_ns() + self.yield_ns;
        while clock::ticks_ns() < end_ns {}
    }

    fn park(&mut self, how: Sleep, _: Option<u64>, _: Option<Start>) -> Parked {
        self.steps.push(Step::Sleep(how));
        self.asleep_after_ns = Some(clock::ticks_ns() - self.start_ns);
        Parked {
            ready: true,
            posted_after_ns: None,
        }
    }
}

/// Waits where two processors are, until the so-manieth look, or asleep.
fn waited(strategy: Strategy, vain: usize) -> Recorder {
    waited_by(&mut waiter(strategy), vain, 0)
}

fn waiter(strategy: Strategy) -> Waiter {
    let mut waiter = Waiter::new(strategy, None);
    waiter.machine.cpus = 2;
    waiter
}

/// As [`waited`]; each yield takes so long.
fn waited_by(waiter: &mut Waiter, vain: usize, yield_ns: u64) -> Recorder {
    let mut place = Recorder {
        steps: Vec::new(),
        vain,
        yield_ns,
        start_ns: clock::ticks_ns(),
        asleep_after_ns: None,
    };
    let (ended, _) = waiter.wait(&mut place, None, false);
    assert_eq!(ended, Ended::Ready);
    place
}

/// Three looks, and a yield between any two.
const YIELDING: [Step; 5] = [Step::Look, Step::Yield, Step::Look, Step::Yield, Step::Look];
const NEVER: usize = usize::MAX;
const LIMIT: Duration = Duration::from_micros(300);

fn spins(steps: &[Step]) -> bool {
    let spins = |step: &Step| matches!(step, Step::Look | Step::Pause);
    steps.iter().all(spins)
}

#[test]
fn spin_looks_and_pauses_and_nothing_else() {
    let steps = waited(Strategy::Spin, 5000).steps;
    assert_eq!(
        steps.iter().filter(|step| **step == Step::Look).count(),
        5000
    );
    assert!(spins(&steps));
}

#[test]
fn sched_yields_between_any_two_looks() {
    let steps = waited(Strategy::Sched, 3).steps;
    assert_eq!(steps, YIELDING);
}

#[test]
fn block_and_notify_sleep_after_one_look() {
    for (strategy, how) in [
        (Strategy::Block, Sleep::Block),
        (Strategy::Notify, Sleep::Notify),
    ] {
        assert_eq!(
            waited(strategy, NEVER).steps,
            [Step::Look, Step::Sleep(how)]
        );
    }
}

#[test]
fn hybrids_spin_for_their_limit_and_then_sleep_once() {
    let limit = Some(LIMIT);
    for (strategy, how) in [
        (Strategy::SpinBlock { limit }, Sleep::Block),
        (Strategy::SpinNotify { limit }, Sleep::Notify),
    ] {
        let place = waited(strategy, NEVER);
        let (last, spun) = place.steps.split_last().unwrap();
        assert_eq!(*last, Step::Sleep(how));
        assert!(spins(spun));
        assert!(spun.len() > 2 * LOOKS_PER_CLOCK as usize);
        assert!(place.asleep_after_ns.unwrap() >= LIMIT.as_nanos() as u64);
        // Found while it spins: no sleep.
        let place = waited(strategy, 3);
        assert_eq!(place.asleep_after_ns, None);
    }
}

#[test]
fn spin_sched_yields_once_its_limit_is_over() {
    let limit = Some(Duration::ZERO);
    let steps = waited(Strategy::SpinSched { limit }, 3).steps;
    assert_eq!(steps, YIELDING);
    let limit = Some(Duration::from_secs(60));
    let steps = waited(Strategy::SpinSched { limit }, 5000).steps;
    assert!(spins(&steps));
}

/// A member of a chain, which looks until its limit and then sleeps; how many looks and yields that took.
fn of_chain(waiter: &mut Waiter, yield_ns: u64) -> (Vec<Step>, usize, usize) {
    chain::noted();
    waiter.policy = SpinPolicy::new(waiter.machine.block_cost_ns, 0, u64::MAX);
    let place = waited_by(waiter, NEVER, yield_ns);
    assert!(place.asleep_after_ns.unwrap() >= waiter.machine.block_cost_ns);
    let (last, steps) = place.steps.split_last().unwrap();
    assert_eq!(*last, Step::Sleep(Sleep::Block));
    let count = |step| steps.iter().filter(|of| **of == step).count();
    (steps.to_vec(), count(Step::Look), count(Step::Yield))
}

/// Whether so many tries of a new waiter go like this. A try whose thread does not run for a while is none: its wait is over before it yields, or
/// one of its yields was long, after which the next waits do not yield.
fn any_try(mut goes: impl FnMut(&mut Waiter) -> bool) -> bool {
    (0..100).any(|_| goes(&mut waiter(Strategy::Adaptive)))
}

#[test]
fn a_member_of_a_chain_yields_between_any_two_looks_where_others_run_meanwhile() {
    let is_as_expected = any_try(|waiter| {
        // Long enough to let another thread run.
        let yield_ns = (waiter.machine.block_cost_ns / 4).max(3 * waiter.machine.yield_ns);
        // It is thought to be alone at first.
        let (steps, ..) = of_chain(waiter, yield_ns);
        let has_found = steps.get(1) == Some(&Step::Pause) && waiter.has_neighbours();
        let (steps, ..) = of_chain(waiter, yield_ns);
        let is_one = |pair: &[Step]| pair == [Step::Yield, Step::Look];
        has_found && steps.len() > 2 && steps[1..].chunks(2).all(is_one)
    });
    assert!(is_as_expected);
}

#[test]
fn a_member_of_a_chain_that_is_alone_on_its_processor_spins() {
    // It yields now and then, which shows that it is alone. A yield may let something else run once.
    let is_alone = any_try(|waiter| {
        let (_, looks, yields) = of_chain(waiter, 0);
        !waiter.has_neighbours() && yields <= 6 && looks > 4 * yields
    });
    assert!(is_alone);
}

#[test]
fn waits_are_those_of_a_chain_for_a_few_after_the_last_call_that_was_passed_on() {
    chain::noted();
    let mut waits = 0;
    while chain::is_next() {
        let _ = waited(Strategy::Adaptive, 2);
        waits += 1;
    }
    assert!((1..8).contains(&waits), "{waits}");
    let place = waited(Strategy::Adaptive, 6);
    assert!(spins(&place.steps));
}
