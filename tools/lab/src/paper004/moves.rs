//! A port that moves while it is called (its section 2.5.6).

use super::about;
use crate::claims::{Part, Rounds, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Task, Timing};
use handfast_bench::run::Run;
use handfast_bench::systems;
use std::io;

pub(super) struct Moves;

/// Calls between two moves.
const AFTER: [u32; 4] = [100, 1_000, 10_000, 100_000];
const QUICK: [u32; 2] = [100, 10_000];
const MOVES: &str = "moves";
const STAYS: &str = "stays";

impl Experiment for Moves {
    fn about(&self) -> About {
        about(
            "moves",
            "Calls to a port that goes to and fro between two processes",
            "A port migrates with its messages, and its senders go on: once they know of the new home they send there, so that a move \
             costs them something once, and nothing afterwards (the paper gives no figure).",
            "A client calls a port without pause, which goes to another process after so many calls, and back after as many. Each call \
             must be answered. A port that stays is called in the same round, by the same strategy. The client has a CPU to itself; the \
             processes that the port goes between share another where there are two. The time of a move is what the calls between two moves take longer than those to the port that \
             stays.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Rights
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let rounds = if run.args.quick { 2 } else { 5 };
        let timing = run.timing(Timing::ms(50, 200), Timing::ms(200, 1000));
        let after = if run.args.quick { &QUICK[..] } else { &AFTER };
        run.expect(rounds * (after.len() + 1));
        let mut found = Found::default();
        let find = |key| systems::find(key).ok_or(io::ErrorKind::NotFound);
        let (moving, staying) = (find("moving-default")?, find("handfast-default")?);
        let base = Plan {
            placement: run.best_placement(),
            ..Plan::echo()
        };
        for _ in 0..rounds {
            let Some(stays) = run.turn(staying.as_ref(), &base, timing) else {
                continue;
            };
            let call_ns = 1e9 / stays.per_second();
            for after in after {
                let plan = Plan {
                    task: Task::Move(*after),
                    servers: 2,
                    ..base.clone()
                };
                let Some(moves) = run.turn(moving.as_ref(), &plan, timing) else {
                    continue;
                };
                let x = f64::from(*after);
                let between_ns = x * 1e9 / moves.per_second();
                found
                    .move_us
                    .add(MOVES, x, (between_ns - x * call_ns) / 1e3);
                for (name, sample) in [(MOVES, &moves), (STAYS, &stays)] {
                    found.per_s.add(name, x, sample.per_second());
                    if let Some(ns) = sample.quantile_ns(0.5) {
                        found.p50_ns.add(name, x, ns);
                    }
                }
            }
        }
        let (verdict, reasons) = judge(&found, claims);
        let figure = |title: &str, y, series: &Series, names: &[&str]| Figure {
            title: title.to_owned(),
            kind: Kind::Lines,
            x: Axis::log("calls between two moves", ""),
            y,
            curves: series.curves(names),
        };
        let both = [MOVES, STAYS];
        Ok(Findings {
            measured: "handfast with its default strategy: calls of 24 bytes to a port that moves, and to one that stays.".to_owned(),
            verdict,
            reasons,
            figures: vec![
                figure("Calls in a second", Axis::log("calls", "1/s"), &found.per_s, &both),
                figure("Median time of a call", Axis::log("median", "ns"), &found.p50_ns, &both),
                figure("Time of a move, as the caller sees it", Axis::log("time", "us"), &found.move_us, &[MOVES]),
            ],
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}

#[derive(Default)]
struct Found {
    per_s: Series,
    p50_ns: Series,
    move_us: Series,
}

impl Rounds for Found {
    fn count(&self) -> usize {
        self.per_s.count()
    }

    fn only(&self, round: usize) -> Self {
        Self {
            per_s: self.per_s.only(round),
            p50_ns: self.p50_ns.only(round),
            move_us: self.move_us.only(round),
        }
    }
}

fn claims(found: &Found) -> Vec<Part> {
    let ratio = |series: &Series, after: u32| {
        let at = |name| series.at(name, f64::from(after));
        Some(at(MOVES)? / at(STAYS)?)
    };
    vec![
        Part::at_most(
            "the median call, with a move every 10,000 / without",
            ratio(&found.p50_ns, 10_000),
            1.25,
        ),
        Part::at_least(
            "calls in a second, with a move every 10,000 / without",
            ratio(&found.per_s, 10_000),
            0.5,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Verdict;

    #[test]
    fn calls_between_moves_are_to_cost_what_they_cost_elsewhere() {
        let verdict = |moving_ns: f64| {
            let mut found = Found::default();
            for _ in 0..3 {
                for (name, ns) in [(MOVES, moving_ns), (STAYS, 100.0)] {
                    found.p50_ns.add(name, 10_000.0, ns);
                    found.per_s.add(name, 10_000.0, 1e9 / ns);
                }
            }
            judge(&found, claims).0
        };
        assert_eq!(verdict(110.0), Verdict::Holds);
        assert_eq!(verdict(150.0), Verdict::Partly);
        assert_eq!(verdict(300.0), Verdict::Fails);
    }
}
