//! Its Figure 1: what each strategy asks of the kernel.

use super::{HYBRIDS, NAMES, about, pair, rounds, strategies};
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind, Table};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::laws::Law;
use handfast_bench::plan::{Plan, Task, Timing};
use handfast_bench::run::Run;
use handfast_bench::session::Session;
use std::io;

pub(super) struct Figure1;

/// Delays of the server: none, and one that no hybrid spins through. With their places in the series.
const DELAYS_US: [(u64, f64); 2] = [(0, 0.0), (300, 1.0)];
/// Fewer system calls in a wait than this are not the waiting's: a control thread looks now and then, whatever comes meanwhile.
const NONE: f64 = 0.2;
/// The paper's statements on system calls, and on reschedules for each.
const PAPER: [(&str, &str); 8] = [
    ("none", "-"),
    ("always", ">= 6"),
    ("always", "1"),
    ("always", "1"),
    ("sometimes", ">= 3"),
    ("sometimes", "1"),
    ("sometimes", "1"),
    ("-", "-"),
];

impl Experiment for Figure1 {
    fn about(&self) -> About {
        about(
            "figure-1",
            "System calls and context switches of each strategy",
            "Spinning never asks the kernel, blocking and notifying do so in every wait and are rescheduled once, yielding \
             has the scheduler look at least six times a wait; hybrids ask only in waits that outlast their spin, and \
             spinning first halves the yields.",
            "A client calls a server with 24 bytes, each on a CPU of its own; the server answers at once, or after 300 us of \
             work. Context switches are the kernel's counts for both processes. System calls are counted by tracing all \
             threads of both, in windows of their own; a traced call takes longer, so that of yields, which are made as \
             long as the wait lasts, fewer fit in: their figures are lower bounds. Each message has two waits, the \
             client's and the server's; figures are for one.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Wait
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(10, 40), Timing::ms(50, 250));
        let rounds = rounds(run, 2, 3);
        let strategies = strategies("handfast");
        run.expect(rounds as usize * DELAYS_US.len() * strategies.len() * 2);
        let (mut calls, mut switches) = (Series::default(), Series::default());
        for _ in 0..rounds {
            for (delay_us, place) in DELAYS_US {
                let plan = Plan {
                    task: Task::Service(Law::Constant(delay_us)),
                    ..pair(run)
                };
                for (name, system) in &strategies {
                    let system = system.as_ref();
                    if let Some(traced) =
                        run.attempt(system, &plan, |session| session.traced(timing))
                    {
                        let waits = 2 * traced.messages;
                        calls.add(name, place, traced.calls as f64 / waits as f64);
                    }
                    let watch = |sessions| Session::measure_together(sessions, timing);
                    for watched in run
                        .attempt_together(system, &plan, 1, watch)
                        .iter()
                        .flatten()
                    {
                        let waits = 2 * watched.sample.total();
                        switches.add(name, place, watched.switches as f64 / waits as f64);
                    }
                }
            }
        }
        let found = (calls, switches);
        let (verdict, reasons) = judge(&found, |(calls, switches)| claims(calls, switches));
        let (calls, switches) = found;
        Ok(Findings {
            measured: "handfast's seven strategies and its default, on both sides alike, without delay and with one of 300 us."
                .to_owned(),
            verdict,
            reasons,
            figures: vec![
                figure("System calls of one wait", "system calls", &calls),
                figure("Context switches of one wait", "switches", &switches),
            ],
            tables: vec![table(&calls, &switches)],
            notes: vec![
                "A notified process is woken by its control thread, a second thread, whose system calls and switches are among these."
                    .to_owned(),
            ],
        })
    }
}

fn claims(calls: &Series, switches: &Series) -> Vec<Part> {
    let [(_, short), (_, long)] = DELAYS_US;
    let mut parts = Vec::new();
    parts.push(match (calls.at("spin", short), calls.at("spin", long)) {
        (Some(soon), Some(late)) => Part::new(
            soon.max(late) < NONE,
            format!("spin makes {soon:.3} and {late:.3} system calls a wait"),
        ),
        _ => Part::missing("spin"),
    });
    for name in ["block", "notify"] {
        parts.push(match (calls.at(name, long), switches.at(name, long)) {
            (Some(made), Some(switched)) => Part::new(
                made >= 1.0 && switched >= 0.5,
                format!(
                    "{name} makes {made:.1} in a long one and is rescheduled {switched:.1} times"
                ),
            ),
            _ => Part::missing(name),
        });
    }
    for (name, pure) in [("sched", 6.0), ("spin-sched", 3.0)] {
        parts.push(match calls.at(name, long) {
            Some(made) => Part::new(
                made >= pure,
                format!("{name} makes at least {made:.0} in a long one"),
            ),
            None => Part::missing(name),
        });
    }
    for (name, pure) in &HYBRIDS[1..] {
        let made = |name, at| calls.at(name, at);
        parts.push(
            match (made(name, short), made(name, long), made(pure, long)) {
                (Some(soon), Some(late), Some(pure)) => Part::new(
                    soon < 0.25 * pure && late > 0.5 * pure,
                    format!("{name} makes {soon:.2} in a short wait and {late:.1} in a long one"),
                ),
                _ => Part::missing(name),
            },
        );
    }
    parts
}

fn figure(title: &str, unit: &str, series: &Series) -> Figure {
    let mut turned = Series::default();
    let curves = ["answered at once", "after 300 us"];
    for (index, name) in NAMES.iter().enumerate() {
        for (curve, (_, place)) in curves.iter().zip(DELAYS_US) {
            if let Some(value) = series.at(name, place) {
                turned.add(curve, index as f64, value);
            }
        }
    }
    Figure {
        title: title.to_owned(),
        kind: Kind::Bars,
        x: Axis::linear("strategy", ""),
        y: Axis::linear("for one wait", unit),
        curves: turned.bars(&curves, &NAMES),
    }
}

fn table(calls: &Series, switches: &Series) -> Table {
    let show =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    let row = |(name, (paper_calls, paper_switches)): (&&str, &(&str, &str))| {
        let bound = if name.contains("sched") { ">= " } else { "" };
        let mut cells = vec![(*name).to_owned(), (*paper_calls).to_owned()];
        cells.extend(DELAYS_US.map(|(_, place)| format!("{bound}{}", show(calls.at(name, place)))));
        cells.push((*paper_switches).to_owned());
        cells.extend(DELAYS_US.map(|(_, place)| show(switches.at(name, place))));
        cells
    };
    let columns = [
        "strategy",
        "system calls (paper)",
        "a wait, at once",
        "a wait, after 300 us",
        "reschedules a call (paper)",
        "switches a wait, at once",
        "switches a wait, after 300 us",
    ];
    Table {
        title: "What each strategy asks of the kernel".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: NAMES.iter().zip(&PAPER).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    /// Calls and switches of one wait, without a delay and with one.
    fn found(spin_block: [f64; 2]) -> (Series, Series) {
        let (mut calls, mut switches) = (Series::default(), Series::default());
        for (name, [soon, late]) in [
            ("spin", [0.0, 0.0]),
            ("sched", [1.0, 40.0]),
            ("block", [2.0, 2.0]),
            ("notify", [4.0, 4.0]),
            ("spin-sched", [0.0, 30.0]),
            ("spin-block", spin_block),
            ("spin-notify", [0.0, 4.0]),
        ] {
            calls.add(name, 0.0, soon);
            calls.add(name, 1.0, late);
            switches.add(name, 1.0, 1.0);
        }
        (calls, switches)
    }

    #[test]
    fn a_hybrid_that_always_asks_the_kernel_is_none() {
        let verdict = |(calls, switches)| weigh(&claims(&calls, &switches)).0;
        assert_eq!(verdict(found([0.1, 2.0])), Verdict::Holds);
        assert_eq!(verdict(found([2.0, 2.0])), Verdict::Partly);
        assert_eq!(
            verdict((Series::default(), Series::default())),
            Verdict::Absent
        );
    }
}
