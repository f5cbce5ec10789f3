//! Its Figure 2: one pair, whose server takes longer and longer.

use super::{DEFAULT, HYBRIDS, NAMES, about, pair, rounds, strategies};
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::laws::Law;
use handfast_bench::plan::{Plan, Task, Timing};
use handfast_bench::run::Run;
use handfast_bench::stats::{geometric_mean, median};
use handfast_bench::wait;
use std::io;

pub(super) struct Figure2;

const DELAYS_US: [u64; 12] = [0, 2, 5, 10, 15, 20, 50, 100, 200, 300, 450, 600];
const QUICK_US: [u64; 5] = [0, 5, 20, 100, 600];

impl Experiment for Figure2 {
    fn about(&self) -> About {
        about(
            "figure-2",
            "One pair, message delay 0 to 600 us: the cost of a message beyond the delay",
            "With a CPU to itself a spinning process has its message soonest, a yielding one not much later; one that blocks \
             pays a constant for the interrupt, one that is notified more; hybrids do as well as spinning while the delay is \
             shorter than their spin, and as their pure form when it is longer.",
            "A client calls a server with 24 bytes, each on a CPU of its own; the server works for the delay before it \
             answers. The paper's cost is time, the median beyond the delay. What it does not show is what waiting takes: \
             the CPU time of both sides beyond the work, and its ratio to that of an oracle which spins through a wait or \
             sleeps once, whichever is cheaper, with this machine's costs of both measured in the same round. Strategies \
             take turns in each round.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Wait
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(5, 25), Timing::ms(20, 100));
        let rounds = rounds(run, 2, 5);
        let delays_us = if run.args.quick {
            &QUICK_US[..]
        } else {
            &DELAYS_US
        };
        let strategies = strategies("handfast");
        let base = Plan {
            pause: run.choose_pause(),
            ..pair(run)
        };
        run.expect(rounds as usize * (2 + delays_us.len() * strategies.len()));
        let mut found = Found::default();
        let mut blocks_ns = Vec::new();
        for _ in 0..rounds {
            let costs = wait::costs(run, &base, timing);
            blocks_ns.extend(costs.map(|costs| costs.block_ns));
            for delay_us in delays_us {
                let plan = Plan {
                    task: Task::Service(Law::Constant(*delay_us)),
                    ..base.clone()
                };
                for (name, system) in &strategies {
                    let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                        continue;
                    };
                    let (x, cost_ns) = (*delay_us as f64, wait::cost_ns(&sample));
                    if let Some(late_ns) = sample.quantile_ns(0.5) {
                        found.late_us.add(name, x, late_ns / 1e3);
                    }
                    found.cpu_us.add(name, x, cost_ns / 1e3);
                    if let Some(costs) = costs {
                        let least_ns = costs.optimum_ns(delay_us * 1_000);
                        found.over.add(name, x, cost_ns / least_ns);
                    }
                }
            }
        }
        let xs: Vec<f64> = delays_us.iter().map(|us| *us as f64).collect();
        let block_us = median(&blocks_ns).unwrap_or(10_000.0) / 1e3;
        let (verdict, mut reasons) =
            judge(&found.late_us, |late_us| claims(late_us, &xs, block_us));
        let means: Vec<String> = NAMES
            .iter()
            .filter_map(|name| Some(format!("{name} {:.2}", mean_over(&found.over, name, &xs)?)))
            .collect();
        reasons += &format!(
            "; CPU over the oracle's, geometric mean of these delays: {}",
            means.join(", ")
        );
        Ok(Findings {
            measured: format!(
                "handfast's seven strategies and its default ({DEFAULT}); a block and its wake-up cost {block_us:.1} us of CPU \
                 here, which is also about how long hybrids spin."
            ),
            verdict,
            reasons,
            figures: vec![
                figure(
                    "Time of a message beyond the delay",
                    Axis::log("beyond the delay", "us"),
                    &found.late_us,
                ),
                figure(
                    "CPU time of a message beyond the delay, both sides",
                    Axis::log("beyond the delay", "us"),
                    &found.cpu_us,
                ),
                figure(
                    "CPU time over that of an offline optimum",
                    Axis::log("ratio", ""),
                    &found.over,
                ),
            ],
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}

#[derive(Default)]
struct Found {
    late_us: Series,
    cpu_us: Series,
    over: Series,
}

fn figure(title: &str, y: Axis, series: &Series) -> Figure {
    Figure {
        title: title.to_owned(),
        kind: Kind::Lines,
        x: Axis::linear("message delay", "us"),
        y,
        curves: series.curves(&NAMES),
    }
}

fn mean_over(over: &Series, name: &str, xs: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = xs.iter().filter_map(|x| over.at(name, *x)).collect();
    geometric_mean(&ratios)
}

/// The claims about times beyond the delay, in microseconds. `block_us`: what a block costs.
fn claims(late: &Series, xs: &[f64], block_us: f64) -> Vec<Part> {
    // The middle of what all delays say that `is_wanted`.
    let middle = |what: &dyn Fn(f64) -> Option<f64>, is_wanted: &dyn Fn(f64) -> bool| {
        let values = xs.iter().filter(|x| is_wanted(**x));
        median(&values.filter_map(|x| what(*x)).collect::<Vec<_>>())
    };
    let all = |_: f64| true;
    let mut parts = Vec::new();
    let least = |x| {
        let others = NAMES[1..7].iter().filter_map(|name| late.at(name, x));
        Some(late.at("spin", x)? / others.reduce(f64::min)?)
    };
    parts.push(match middle(&least, &all) {
        Some(ratio) => Part::new(
            ratio <= 1.25,
            format!("spin takes {ratio:.2} times what the soonest of the others takes"),
        ),
        None => Part::missing("spin"),
    });
    let nearness = |x| {
        let (spin, block) = (late.at("spin", x)?, late.at("block", x)?);
        Some((late.at("sched", x)? - spin) / (block - spin))
    };
    parts.push(match middle(&nearness, &all) {
        Some(share) => Part::new(
            share <= 0.5,
            format!(
                "sched is {:.0} % of the way from spin to block",
                share * 100.0
            ),
        ),
        None => Part::missing("sched"),
    });
    let dearer = |x| Some(late.at("notify", x)? / late.at("block", x)?);
    parts.push(match middle(&dearer, &all) {
        Some(ratio) => Part::new(
            ratio > 1.0,
            format!("notify takes {ratio:.2} times what block takes"),
        ),
        None => Part::missing("notify"),
    });
    for (name, pure) in HYBRIDS {
        let all_three = |is_wanted: &dyn Fn(f64) -> bool| {
            let [spin, own, pure] =
                ["spin", name, pure].map(|name| middle(&|x| late.at(name, x), is_wanted));
            Some((spin?, own?, pure?))
        };
        let short = all_three(&|x| x <= block_us / 2.0);
        let long = all_three(&|x| x >= block_us * 4.0);
        let text = |(spin, own, pure_us): (f64, f64, f64)| {
            format!("{own:.1} us (spin {spin:.1}, {pure} {pure_us:.1})")
        };
        parts.push(match (short, long) {
            (Some(short), Some(long)) => Part::new(
                is_near_spin(short) && is_near_pure(long),
                format!(
                    "{name} takes {} beyond short delays and {} beyond long ones",
                    text(short),
                    text(long)
                ),
            ),
            _ => Part::missing(name),
        });
    }
    parts
}

/// The largest time that is no difference, where a pure strategy costs hardly more than spinning.
const NOTHING_US: f64 = 0.5;

fn is_near_spin((spin, own, pure): (f64, f64, f64)) -> bool {
    own <= spin + (0.25 * (pure - spin)).max(NOTHING_US)
}

fn is_near_pure((spin, own, pure): (f64, f64, f64)) -> bool {
    own >= spin + 0.5 * (pure - spin) - NOTHING_US
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    #[test]
    fn hybrids_must_change_over_at_what_a_block_costs() {
        let xs = [0.0, 5.0, 100.0];
        let mut late = Series::default();
        for x in xs {
            let hybrid = |pure: f64| if x < 10.0 { 0.3 } else { pure };
            for (name, value) in [
                ("spin", 0.3),
                ("sched", 0.5),
                ("block", 15.0),
                ("notify", 20.0),
                ("spin-sched", hybrid(0.5)),
                ("spin-block", hybrid(15.0)),
                ("spin-notify", hybrid(20.0)),
            ] {
                late.add(name, x, value);
            }
        }
        assert_eq!(weigh(&claims(&late, &xs, 10.0)).0, Verdict::Holds);
        // The same, where blocks are so dear that hybrids should have spun on.
        assert_eq!(weigh(&claims(&late, &xs, 300.0)).0, Verdict::Partly);
        let (verdict, reasons) = weigh(&claims(&late, &xs, 10.0));
        assert!(
            reasons.contains("notify takes 1.33 times"),
            "{verdict:?} {reasons}"
        );
    }
}
