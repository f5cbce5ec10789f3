//! Its Figure 2: one pair, both sides of which take longer and longer before they send.

use super::{DEFAULT, HYBRIDS, NAMES, Regime, about, pair, regimes, rounds, strategies};
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

/// In parts of the time that hybrids spin, of which the paper has up to two.
const DELAYS: [f64; 11] = [0.0, 0.1, 0.2, 0.33, 0.5, 0.67, 0.83, 1.0, 1.33, 1.67, 2.0];
const QUICK: [f64; 5] = [0.0, 0.33, 0.67, 1.5, 2.0];

/// The delays of a regime, in microseconds.
fn delays_us(regime: &Regime, is_quick: bool) -> Vec<u64> {
    let all = if is_quick { &QUICK[..] } else { &DELAYS };
    let of = |part: &f64| (part * regime.limit_us as f64).round() as u64;
    let mut delays_us: Vec<u64> = all.iter().map(of).collect();
    delays_us.dedup();
    delays_us
}

impl Experiment for Figure2 {
    fn about(&self) -> About {
        about(
            "figure-2",
            "One pair, message delay 0 to 600 us: the cost of a round trip beyond the delays",
            "With a CPU to itself a spinning process has its message soonest, a yielding one not much later; one that blocks \
             pays a constant for the interrupt, one that is notified more; hybrids do as well as spinning while the delay is \
             shorter than their spin, and as their pure form when it is longer.",
            "A client and a server, each on a CPU of its own, send each other 24 bytes in turn; each works for the delay before \
             it sends. Twice: with the paper's delays and hybrids that spin for 300 us as there, and with hybrids that spin \
             for what a block costs on this machine, and delays in the same proportion to that. The paper's cost is time: here \
             the median of a round trip beyond both delays. That does not show the CPU time of waiting: both \
             sides' beyond the work has a figure of its own, and so has its ratio to an oracle's, which spins through a wait or \
             sleeps once, whichever is cheaper, with this machine's costs of both measured in the same round. Strategies take turns in each round.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Wait
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(5, 25), Timing::ms(20, 100));
        let rounds = rounds(run, 2, 5);
        let strategies = strategies("handfast");
        let base = Plan {
            pause: run.choose_pause(),
            ..pair(run)
        };
        let regimes = regimes(run, &base);
        let delays = [0, 1].map(|place| delays_us(&regimes[place], run.args.quick));
        let cells = delays.iter().map(Vec::len).sum::<usize>() * strategies.len();
        run.expect(rounds as usize * (2 + cells));
        let mut found = [Found::default(), Found::default()];
        for _ in 0..rounds {
            let costs = wait::costs(run, &base, timing);
            for ((regime, delays_us), found) in regimes.iter().zip(&delays).zip(&mut found) {
                for delay_us in delays_us {
                    let plan = Plan {
                        task: Task::PingPong(Law::Constant(*delay_us)),
                        spin_ns: regime.limit_us * 1_000,
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
                            found
                                .over
                                .add(name, x, cost_ns / costs.both_ns(delay_us * 1_000));
                        }
                    }
                }
            }
        }
        let xs = delays.map(|delays_us| delays_us.iter().map(|us| *us as f64).collect::<Vec<_>>());
        let mut figures = Vec::new();
        let mut means = String::new();
        for ((regime, xs), found) in regimes.iter().zip(&xs).zip(&found) {
            figures.extend(found.figures(regime));
            let all = NAMES.iter().filter_map(|name| {
                Some(format!("{name} {:.2}", mean_over(&found.over, name, xs)?))
            });
            means += &format!(
                "; {regime}: CPU over the oracle's, geometric mean of these delays: {}",
                all.collect::<Vec<_>>().join(", ")
            );
        }
        let late_us: Vec<Series> = found.into_iter().map(|found| found.late_us).collect();
        let (verdict, reasons) = judge(&late_us, |late_us| {
            let each = regimes.iter().zip(&xs).zip(late_us);
            each.flat_map(|((regime, xs), late)| regime.label(claims(late, xs, regime.limit_us)))
                .collect()
        });
        Ok(Findings {
            measured: format!(
                "handfast's seven strategies and its default ({DEFAULT}, which has no limit of that kind); a block and its \
                 wake-up cost {} us of CPU here.",
                regimes[1].limit_us
            ),
            verdict,
            reasons: reasons + &means,
            figures,
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

impl Found {
    fn figures(&self, regime: &Regime) -> [Figure; 3] {
        let figure = |title: &str, y: Axis, series: &Series| Figure {
            title: format!("{title}, {regime}"),
            kind: Kind::Lines,
            x: Axis::linear("message delay", "us"),
            y,
            curves: series.curves(&NAMES),
        };
        [
            figure(
                "Time of a round trip beyond the delays",
                Axis::log("beyond the delays", "us"),
                &self.late_us,
            ),
            figure(
                "CPU time of a round trip beyond the delays, both sides",
                Axis::log("beyond the delays", "us"),
                &self.cpu_us,
            ),
            figure(
                "CPU time over that of an offline optimum",
                Axis::log("ratio", ""),
                &self.over,
            ),
        ]
    }
}

fn mean_over(over: &Series, name: &str, xs: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = xs.iter().filter_map(|x| over.at(name, *x)).collect();
    geometric_mean(&ratios)
}

/// The claims about times beyond the delays, in microseconds. `limit_us`: how long hybrids spin.
fn claims(late: &Series, xs: &[f64], limit_us: u64) -> Vec<Part> {
    let limit_us = limit_us as f64;
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
    let what = "time of spin / of the soonest of the others";
    parts.push(Part::at_most(what, middle(&least, &all), 1.25));
    let nearness = |x| {
        let (spin, block) = (late.at("spin", x)?, late.at("block", x)?);
        Some((late.at("sched", x)? - spin) / (block - spin))
    };
    // Nearer to spin, from either side.
    let what = "of the way from spin to block, sched goes";
    parts.push(Part::within(what, middle(&nearness, &all), (-0.5, 0.5)));
    let dearer = |x| Some(late.at("notify", x)? / late.at("block", x)?);
    let what = "time of notify / of block";
    parts.push(Part::at_least(what, middle(&dearer, &all), 1.0));
    for (name, pure) in HYBRIDS {
        let all_three = |is_wanted: &dyn Fn(f64) -> bool| {
            let [spin, own, pure] =
                ["spin", name, pure].map(|name| middle(&|x| late.at(name, x), is_wanted));
            Some((spin?, own?, pure?))
        };
        let short = all_three(&|x| x <= limit_us * 0.7);
        let long = all_three(&|x| x >= limit_us * 1.3);
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
    (own - spin).abs() <= (0.25 * (pure - spin)).max(NOTHING_US)
}

/// Nor so late that spinning has been for more than nothing.
fn is_near_pure((spin, own, pure): (f64, f64, f64)) -> bool {
    (own - pure).abs() <= 0.5 * (pure - spin).max(0.0) + NOTHING_US
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    #[test]
    fn hybrids_must_change_over_where_they_stop_spinning() {
        let xs = [0.0, 5.0, 20.0];
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
        assert_eq!(weigh(&claims(&late, &xs, 10)).0, Verdict::Holds);
        // The same, where hybrids should have spun on.
        assert_eq!(weigh(&claims(&late, &xs, 300)).0, Verdict::Partly);
        let (verdict, reasons) = weigh(&claims(&late, &xs, 10));
        assert!(
            reasons.contains("notify / of block 1.33"),
            "{verdict:?} {reasons}"
        );
    }

    #[test]
    fn delays_are_in_proportion_to_the_spin() {
        let regime = |limit_us| Regime { limit_us };
        let paper = delays_us(&regime(300), false);
        assert_eq!((paper[0], paper[10]), (0, 600));
        assert_eq!(delays_us(&regime(3), false), [0, 1, 2, 3, 4, 5, 6]);
    }
}
