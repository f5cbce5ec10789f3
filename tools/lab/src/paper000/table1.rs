//! The paper's Table 1: what single operations cost, and yields of several processes at once.

use super::sweep::Aside;
use super::{Axis, Figure, about};
use crate::claims::{self, Part, Rounds, short};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Curve, Kind, Point, Table};
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::primitives::{self, MESSAGES, QUEUE};
use handfast_bench::run::Run;
use handfast_bench::scheduling::Scheduling::{self, Default, Fifo};
use handfast_bench::stats::{median, ratio};
use handfast_bench::systems;
use handfast_bench::systems::yields::YIELDS;
use std::io;

pub(super) struct Table1;

/// Processes that yield at the same time.
const YIELDING: [usize; 3] = [1, 2, 4];

/// The paper's value for each row, in microseconds: SGI, IBM.
const PAPER_US: [(&str, [f64; 2]); 5] = [
    (QUEUE, [3.0, 2.0]),
    (MESSAGES, [37.0, 15.0]),
    ("yields of 1 process", [16.0, 6.0]),
    ("yields of 2 processes", [18.0, 13.0]),
    ("yields of 4 processes", [45.0, 30.0]),
];

/// One row: what was measured in each round, in nanoseconds, by default and at fixed priority.
struct Row {
    name: String,
    ns: [Vec<f64>; 2],
    /// Context switches for each yield.
    switches: [Vec<f64>; 2],
    absent: Option<String>,
}

impl Experiment for Table1 {
    fn about(&self) -> About {
        about(
            "table-1",
            "What the single operations cost",
            "A message through a queue in shared memory costs an eighth to a twelfth of one through a System V queue, a yield less than half of one \
             (16 us to 37 us, 6 us to 15 us). On the SGI two processes that yield need hardly longer than one: a yield need \
             not let another run.",
            "One process repeats each pair of operations; 1, 2 and 4 processes on one CPU start together and yield in a loop, and the time is \
             that of one process for one yield. A median over rounds.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Scale
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let rows = measure(run);
        let (verdict, reasons) = claims::judge(&rows, |rows| judge(rows));
        Ok(Findings {
            measured: "Two-lock queue in shared memory, System V queue, System V and futex semaphores in one process; yields on one CPU, by default and \
                       at fixed priority (SCHED_FIFO)."
                .to_owned(),
            verdict,
            reasons,
            figures: vec![figure(&rows)],
            tables: vec![table(&rows)],
            notes: [
                "A futex semaphore makes a system call for the V (here nobody sleeps, so it wakes nobody) and none for a P that need not sleep.".to_owned(),
                "Switches per yield: what the kernel counted for the yielding processes, by the yields they made.".to_owned(),
            ]
            .into(),
        })
    }
}

fn measure(run: &mut Run) -> Vec<Row> {
    let (rounds, count) = if run.args.quick {
        (3, 20_000)
    } else {
        (9, 100_000)
    };
    run.expect(rounds * (primitives::ALL.len() + 2 * YIELDING.len()));
    let row = |name: String| Row {
        name,
        ns: [Vec::new(), Vec::new()],
        switches: [Vec::new(), Vec::new()],
        absent: None,
    };
    let mut rows: Vec<Row> = primitives::ALL.map(|(name, _)| row(name.to_owned())).into();
    let plural = |count| if count == 1 { "process" } else { "processes" };
    let yields = YIELDING.map(|count| row(format!("yields of {count} {}", plural(count))));
    rows.extend(yields);
    let fixed = Fifo.is_permitted();
    if let Err(error) = &fixed {
        run.warn(format!("no fixed priority: {error}"));
    }
    for _ in 0..rounds {
        for (row, (_, operate)) in rows.iter_mut().zip(primitives::ALL) {
            match operate(count) {
                Ok(ns) => row.ns[0].push(ns as f64 / f64::from(count)),
                Err(error) => row.absent = Some(error.to_string()),
            }
            run.step();
        }
        let _aside = Aside::step(run.server_cpu);
        for (row, processes) in rows.iter_mut().skip(primitives::ALL.len()).zip(YIELDING) {
            for (place, scheduling) in [Default, Fifo].into_iter().enumerate() {
                if scheduling != Default && fixed.is_err() {
                    run.step();
                    continue;
                }
                if let Some((ns, switches)) = yielded(run, processes, scheduling) {
                    row.ns[place].push(ns);
                    row.switches[place].push(switches);
                }
            }
        }
    }
    rows
}

/// How long a yield took each process, and how many context switches it brought.
fn yielded(run: &mut Run, processes: usize, scheduling: Scheduling) -> Option<(f64, f64)> {
    let system = systems::find("yields")?;
    let plan = Plan {
        clients: processes,
        placement: run.same_core(),
        scheduling,
        ..Plan::echo()
    };
    let timing = run.timing(Timing::ms(5, 20), Timing::ms(10, 100));
    let (sample, [before, after]) = run.attempt(system.as_ref(), &plan, |session| {
        session.measure_beside(timing, |session| {
            Ok((session.calls(), session.used()?.clients))
        })
    })?;
    let yields = (after.0 - before.0).max(1) as f64 * YIELDS as f64;
    let switches = after.1.since(before.1).switches as f64 / yields;
    let each_ns = 1e9 / (sample.per_second() * YIELDS as f64);
    Some((each_ns * processes as f64, switches))
}

impl Rounds for Row {
    fn count(&self) -> usize {
        self.ns[0].len().max(self.ns[1].len())
    }

    fn only(&self, round: usize) -> Self {
        let of = |values: &[Vec<f64>; 2]| {
            let only = |values: &Vec<f64>| values.get(round).copied().into_iter().collect();
            values.each_ref().map(only)
        };
        Self {
            name: self.name.clone(),
            ns: of(&self.ns),
            switches: of(&self.switches),
            absent: self.absent.clone(),
        }
    }
}

fn judge(rows: &[Row]) -> Vec<Part> {
    let ns = |name: &str| {
        rows.iter()
            .find(|row| row.name == name)
            .and_then(|row| median(&row.ns[0]))
    };
    let [(_, _), (_, _), (one, _), (two, _), (_, _)] = PAPER_US;
    vec![
        Part::at_least(
            "msgsnd + msgrcv / enqueue + dequeue",
            ratio(ns(MESSAGES), ns(QUEUE)),
            7.5,
        ),
        Part::at_most(
            "a yield / msgsnd + msgrcv",
            ratio(ns(one), ns(MESSAGES)),
            0.5,
        ),
        Part::at_most("yields of 2 processes / of 1", ratio(ns(two), ns(one)), 1.5),
    ]
}

fn figure(rows: &[Row]) -> Figure {
    let point = |index: usize, name: &str, ns: f64| Point {
        x: index as f64,
        y: ns,
        range: None,
        label: Some(name.to_owned()),
    };
    let ours = |name: &str, place: usize| {
        let mut curve = Curve::new(name, []);
        for (index, row) in rows.iter().enumerate() {
            let range = |pick: fn(f64, f64) -> f64| row.ns[place].iter().copied().reduce(pick);
            curve.points.extend(median(&row.ns[place]).map(|ns| Point {
                range: range(f64::min).zip(range(f64::max)),
                ..point(index, &row.name, ns)
            }));
        }
        if curve.points.is_empty() {
            curve.absent = Some("not permitted".to_owned());
        }
        curve
    };
    let theirs = |name: &str, machine: usize| {
        let mut curve = Curve::new(name, []);
        for (index, row) in rows.iter().enumerate() {
            let known = PAPER_US.iter().find(|(known, _)| *known == row.name);
            curve
                .points
                .extend(known.map(|(_, us)| point(index, &row.name, us[machine] * 1e3)));
        }
        curve
    };
    Figure {
        title: "Time of one operation, or pair".to_owned(),
        kind: Kind::Bars,
        x: Axis::linear("operation", ""),
        y: Axis::log("time", "ns"),
        curves: vec![
            ours("here", 0),
            ours("here, fixed priority", 1),
            theirs("SGI Indy 1997 (the paper's)", 0),
            theirs("IBM P4 1997 (the paper's)", 1),
        ],
    }
}

fn table(rows: &[Row]) -> Table {
    let columns = [
        "operation",
        "SGI 1997",
        "IBM 1997",
        "here",
        "here, fixed priority",
        "switches per yield",
        "switches per yield, fixed priority",
    ];
    let number = |values: &[f64], unit: &str| {
        median(values).map_or_else(|| "-".to_owned(), |value| short(value) + unit)
    };
    let line = |row: &Row| {
        let known = PAPER_US.iter().find(|(known, _)| *known == row.name);
        let theirs = |machine: usize| {
            known.map_or_else(|| "-".to_owned(), |(_, us)| format!("{} us", us[machine]))
        };
        let here = match &row.absent {
            Some(why) => why.clone(),
            None => number(&row.ns[0], " ns"),
        };
        vec![
            row.name.clone(),
            theirs(0),
            theirs(1),
            here,
            number(&row.ns[1], " ns"),
            number(&row.switches[0], ""),
            number(&row.switches[1], ""),
        ]
    };
    Table {
        title: "Single operations".to_owned(),
        columns: columns.map(str::to_owned).into(),
        rows: rows.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Verdict;

    fn rows(ns: [f64; 5]) -> Vec<Row> {
        let row = |((name, _), ns): (&(&str, [f64; 2]), f64)| Row {
            name: (*name).to_owned(),
            ns: [vec![ns], Vec::new()],
            switches: [vec![0.5], Vec::new()],
            absent: None,
        };
        PAPER_US.iter().zip(ns).map(row).collect()
    }

    #[test]
    fn the_papers_own_numbers_hold_for_the_sgi_and_partly_for_the_ibm() {
        let [sgi, ibm] = [0, 1].map(|machine| PAPER_US.map(|(_, us)| us[machine]));
        assert_eq!(claims::weigh(&judge(&rows(sgi))).0, Verdict::Holds);
        // Two processes take twice as long.
        assert_eq!(claims::weigh(&judge(&rows(ibm))).0, Verdict::Partly);
    }

    #[test]
    fn what_was_not_measured_is_absent_and_no_zero() {
        let rows = rows([80.0, 2_000.0, 900.0, 1_900.0, 4_000.0]);
        let figure = figure(&rows);
        assert_eq!(figure.curves[0].points.len(), 5);
        assert!(figure.curves[1].absent.is_some());
        let table = table(&rows);
        assert_eq!(
            table.rows[1],
            [MESSAGES, "37 us", "15 us", "2000 ns", "-", "0.50", "-"]
        );
    }
}
