//! Its section 3.2: what each strategy costs over the offline optimum, whatever the delays.

use super::{DEFAULT, NAMES, about, pair, rounds, strategies};
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind, Table};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::laws::{GRID, mean_cost};
use handfast_bench::plan::{Plan, Task, Timing};
use handfast_bench::run::Run;
use handfast_bench::stats::geometric_mean;
use handfast_bench::wait;
use std::io;

pub(super) struct Optimum;

/// Above twice the optimum by no more than this is noise of the measured costs.
const COMPETITIVE: f64 = 2.0;
/// As much is a measurement that went wrong: no wait here is so much longer than a sleep costs.
const UNBOUNDED: f64 = 1000.0;

impl Experiment for Optimum {
    fn about(&self) -> About {
        about(
            "optimum",
            "CPU time of waiting over the offline optimum, for twelve laws of delays",
            "Spinning for as long as a block costs and blocking then takes at most twice the CPU of an oracle that knows each \
             delay in advance, whatever the delays; spin and block alone have no such bound. Strategies that adapt, the \
             paper's future work, should do better.",
            "A client calls a server with 24 bytes, each on a CPU of its own; the server works for delays drawn from a law. The \
             cost is the CPU time of both sides beyond that work; the oracle's is, for each message, the cheaper of spinning \
             through the wait and sleeping once, with the costs of a block, a wake-up and a round trip measured in the same \
             round.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Wait
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(5, 25), Timing::ms(20, 100));
        let rounds = rounds(run, 1, 5);
        let strategies = strategies("handfast");
        let base = Plan {
            pause: run.choose_pause(),
            ..pair(run)
        };
        run.expect(rounds as usize * (2 + GRID.len() * strategies.len()));
        let mut over = Series::default();
        for _ in 0..rounds {
            let Some(costs) = wait::costs(run, &base, timing) else {
                continue;
            };
            for (index, law) in GRID.into_iter().enumerate() {
                let delays_ns = law.delays_ns();
                let plan = Plan {
                    task: Task::Service(law),
                    ..base.clone()
                };
                for (name, system) in &strategies {
                    let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                        continue;
                    };
                    let optimum = |delay_ns| costs.optimum_ns(delay_ns);
                    let least = mean_cost(&delays_ns, sample.served_before, sample.served, optimum);
                    if let Some(least_ns) = least {
                        over.add(name, index as f64, wait::cost_ns(&sample) / least_ns);
                    }
                }
            }
        }
        let laws = GRID.map(|law| law.name());
        let laws: Vec<&str> = laws.iter().map(String::as_str).collect();
        let (verdict, reasons) = judge(&over, |over| claims(over, &laws));
        Ok(Findings {
            measured: "handfast's seven strategies and its default, for the twelve laws of handfast bench wait.".to_owned(),
            verdict,
            reasons,
            figures: vec![Figure {
                title: "CPU time of waiting over that of an offline optimum".to_owned(),
                kind: Kind::Bars,
                x: Axis::linear("law of delays", ""),
                y: Axis::log("ratio", ""),
                curves: over.bars(&NAMES, &laws),
            }],
            tables: vec![table(&over, &laws)],
            notes: Vec::new(),
        })
    }
}

/// Geometric mean, and the worst law's ratio and name.
fn summary<'a>(over: &Series, name: &str, laws: &[&'a str]) -> Option<(f64, f64, &'a str)> {
    let ratios: Vec<(f64, &str)> = laws
        .iter()
        .enumerate()
        .filter_map(|(index, law)| Some((over.at(name, index as f64)?, *law)))
        .collect();
    let values: Vec<f64> = ratios.iter().map(|(ratio, _)| *ratio).collect();
    let worst = ratios
        .into_iter()
        .max_by(|one, two| one.0.total_cmp(&two.0))?;
    Some((geometric_mean(&values)?, worst.0, worst.1))
}

fn claims(over: &Series, laws: &[&str]) -> Vec<Part> {
    let of = |name: &str| summary(over, name, laws);
    let at_worst = |name: &str, limits| match of(name) {
        Some((mean, worst, law)) => {
            let what = format!("{name} over the optimum, at worst ({law}; in the mean {mean:.2}),");
            Part::within(&what, Some(worst), limits)
        }
        None => Part::missing(name),
    };
    // Nothing is better than the optimum.
    let mut parts = vec![at_worst("spin-block", (1.0, COMPETITIVE))];
    for name in ["spin", "block"] {
        parts.push(at_worst(name, (COMPETITIVE, UNBOUNDED)));
    }
    parts.push(match (of(DEFAULT), of("spin-block")) {
        (Some((mean, worst, law)), Some((fixed, ..))) => {
            let what = format!(
                "handfast's default in the mean ({mean:.2}; at worst {worst:.2}, {law}) / spin-block"
            );
            Part::at_most(&what, Some(mean / fixed), 1.0)
        }
        _ => Part::missing(DEFAULT),
    });
    parts
}

fn table(over: &Series, laws: &[&str]) -> Table {
    let row = |name: &&str| {
        let found = summary(over, name, laws);
        let cells = found.map_or_else(
            || ["-", "-", "-"].map(str::to_owned),
            |(mean, worst, law)| [format!("{mean:.2}"), format!("{worst:.2}"), law.to_owned()],
        );
        std::iter::once((*name).to_owned()).chain(cells).collect()
    };
    Table {
        title: "CPU time of waiting over the offline optimum".to_owned(),
        columns: ["strategy", "geometric mean", "worst", "law"]
            .map(str::to_owned)
            .to_vec(),
        rows: NAMES.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    #[test]
    fn the_worst_law_must_stay_below_twice_the_optimum() {
        let laws = ["short", "long"];
        let mut over = Series::default();
        for (name, short, long) in [
            ("spin", 1.0, 50.0),
            ("block", 20.0, 1.0),
            ("spin-block", 1.1, 1.9),
            (DEFAULT, 1.1, 1.2),
        ] {
            over.add(name, 0.0, short);
            over.add(name, 1.0, long);
        }
        assert_eq!(weigh(&claims(&over, &laws)).0, Verdict::Holds);
        assert_eq!(
            table(&over, &laws).rows[0][1..],
            ["7.07", "50.00", "long"].map(str::to_owned)
        );
        over.add("spin-block", 1.0, 2.9);
        assert_eq!(weigh(&claims(&over, &laws)).0, Verdict::Partly);
    }
}
