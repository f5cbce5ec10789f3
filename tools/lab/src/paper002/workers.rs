//! Its section 2: as many workers as requests, so that a request whose handler sleeps holds up no other.

use super::about;
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::plan::{Placement, Plan, Task, Timing};
use handfast_bench::run::Run;
use handfast_bench::systems::{self, Runnable};
use handfast_sys::cpu;
use std::io;

pub(super) struct Workers;

/// Servers with workers for each CPU, threads that share one port, and a thread for each client by hand.
const NAMES: [&str; 3] = [PER_CPU, "handfast-pool", BY_HAND];
const PER_CPU: &str = "handfast-percpu";
const BY_HAND: &str = "futex-percpu";

/// Clients on each CPU: more than have their handlers sleep at once.
const CLIENTS_PER_CPU: usize = 32;
/// x.
const CASES: [(&str, Task); 2] = [
    ("no handler sleeps", Task::Echo),
    ("every tenth sleeps 1 ms", Task::Doze),
];

impl Experiment for Workers {
    fn about(&self) -> About {
        about(
            "workers",
            "Handlers that sleep, and the requests beside them",
            "A server has as many threads of control as there are requests in service; workers are made when they are needed. So a \
             request whose handler blocks holds up no other.",
            "32 clients on each CPU call servers on the same CPU. Of the requests of each client, first none and then every tenth \
             has its handler sleep for a millisecond. The paper has no figure of this.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Percpu
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(5, 20), Timing::ms(15, 100));
        let rounds = if run.args.quick { 3 } else { 7 };
        let clients = CLIENTS_PER_CPU * cpu::allowed().len().min(4);
        let systems: Vec<Box<dyn Runnable>> = NAMES
            .iter()
            .filter_map(|name| systems::find(name))
            .collect();
        run.expect(rounds * systems.len() * CASES.len());
        let mut answered = Series::default();
        for _ in 0..rounds {
            for system in &systems {
                for (x, (_, task)) in CASES.iter().enumerate() {
                    let plan = Plan {
                        task: *task,
                        clients,
                        placement: Placement::OnePerCpu,
                        ..Plan::echo()
                    };
                    if let Some(sample) = run.turn(system.as_ref(), &plan, timing) {
                        answered.add(system.named().name(), x as f64, sample.per_second());
                    }
                }
            }
        }
        let (verdict, reasons) = judge(&answered, claims);
        Ok(Findings {
            measured: "handfast's server with workers on each CPU, a pool of threads at one port, and a hand-written server with a \
                       thread for each client."
                .to_owned(),
            verdict,
            reasons,
            figures: vec![Figure {
                title: "Requests answered in a second".to_owned(),
                kind: Kind::Bars,
                x: Axis::linear("handlers", ""),
                y: Axis::log("requests", "1/s"),
                curves: answered.bars(&NAMES, &CASES.map(|(label, _)| label)),
            }],
            tables: Vec::new(),
            notes: vec![
                "A handler that sleeps takes two switches between threads and a timer, which nine other requests have to make up for."
                    .to_owned(),
            ],
        })
    }
}

/// A request that is held up by none of the others is answered as often. More is a measurement that went wrong.
const KEPT_MIN: f64 = 0.95;
const KEPT_MAX: f64 = 1.2;

fn claims(answered: &Series) -> Vec<Part> {
    let kept = |name| Some(answered.at(name, 1.0)? / answered.at(name, 0.0)?);
    let beside =
        |name| format!("{name}: requests where every tenth handler sleeps / where none does");
    vec![
        Part::within(&beside(PER_CPU), kept(PER_CPU), (KEPT_MIN, KEPT_MAX)).unless(
            "a worker is woken only where handlers have slept lately, since a wake-up for each request costs more than most handlers",
        ),
        Part::within(&beside(BY_HAND), kept(BY_HAND), (KEPT_MIN, KEPT_MAX)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    fn verdict(kept: [f64; 2]) -> Verdict {
        let mut answered = Series::default();
        for (name, kept) in [PER_CPU, BY_HAND].into_iter().zip(kept) {
            answered.add(name, 0.0, 1e5);
            answered.add(name, 1.0, 1e5 * kept);
        }
        weigh(&claims(&answered)).0
    }

    #[test]
    fn requests_that_are_held_up_or_too_many_are_not_as_claimed() {
        assert_eq!(verdict([0.96, 0.97]), Verdict::Holds);
        assert_ne!(verdict([0.07, 0.97]), Verdict::Holds);
        assert_ne!(verdict([1.9, 0.97]), Verdict::Holds);
        assert_ne!(weigh(&claims(&Series::default())).0, Verdict::Holds);
    }
}
