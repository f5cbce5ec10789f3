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
    waited_on(strategy, vain, 4)
}

/// As [`waited`], with peers that share so many processors.
fn waited_on(strategy: Strategy, vain: usize, shared_cpus: u32) -> Recorder {
    let mut place = Recorder {
        steps: Vec::new(),
        vain,
        start_ns: clock::ticks_ns(),
        asleep_after_ns: None,
    };
    let mut waiter = Waiter::new(strategy, None);
    (waiter.machine.cpus, waiter.machine.shared_cpus) = (2, shared_cpus);
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

/// A thread of a chain of three on two processors keeps looking as long as another one does, and keeps none of them from running.
#[test]
fn a_wait_of_a_chain_yields_between_looks_where_it_has_few_processors() {
    let of_chain = |shared_cpus| {
        chain::noted();
        assert!(chain::is_next());
        let place = waited_on(Strategy::Adaptive, 6, shared_cpus);
        place.steps
    };
    let crowded = of_chain(2);
    assert_eq!(crowded[0], Step::Look);
    assert_eq!(crowded[1..], [Step::Yield, Step::Look].repeat(5));
    assert!(spins(&of_chain(3)[1..]), "there is one for each");
    // The hint ends with the waits that follow.
    let mut waits = 0;
    while chain::is_next() {
        let _ = waited_on(Strategy::Adaptive, 2, 2);
        waits += 1;
    }
    assert!((1..8).contains(&waits), "{waits}");
    assert!(spins(&waited_on(Strategy::Adaptive, 6, 2).steps[1..]));
}

#[test]
fn a_wait_of_a_chain_sleeps_when_its_limit_is_over() {
    chain::noted();
    let place = waited_on(Strategy::Adaptive, NEVER, 2);
    let (last, before) = place.steps.split_last().unwrap();
    assert_eq!(*last, Step::Sleep(Sleep::Block));
    assert!(before.contains(&Step::Yield));
    assert!(place.asleep_after_ns.unwrap() >= calibration().block_cost_ns);
}
