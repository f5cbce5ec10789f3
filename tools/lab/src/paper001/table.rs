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
use std::ops::RangeInclusive;

pub(super) struct Figure1;

/// Delays of the server: none, and one that no hybrid spins through. With their places in the series.
const DELAYS_US: [(u64, f64); 2] = [(0, 0.0), (300, 1.0)];
/// Fewer system calls in a wait than this are not the waiting's: a control thread looks now and then, whatever comes meanwhile.
const NONE: f64 = 0.2;
/// Once, within half and double.
const ONCE: RangeInclusive<f64> = 0.5..=2.0;
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
            "Spinning never asks the kernel, blocking and notifying do so in every wait and are rescheduled once for it; a system call \
             of sched brings six reschedules and more, one of spin-sched three and more; hybrids ask only in waits that outlast \
             their spin.",
            "A client calls a server with 24 bytes, each on a CPU of its own; the server answers at once, or after 300 us of \
             work. Context switches are the kernel's counts for both processes. System calls are counted by tracing all \
             threads of both, in windows of their own; a traced call takes longer, so that of yields, which are made as \
             long as the wait lasts, fewer fit in: their figures are lower bounds, and their context switches for each call upper \
             bounds. Each message has two waits, the client's and the server's; figures are for one. A wait of block is one of \
             the paper's system calls: the wake-up, a call of the other side's, stands for the interrupt.",
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
                made >= 1.0 && ONCE.contains(&switched),
                format!(
                    "{name} makes {made:.1} in a long one and is rescheduled {switched:.1} times (to hold: 1 or more, and 0.5 to 2)"
                ),
            )
            .unless("the control thread's switches, and those that others' work brings, are among these"),
            _ => Part::missing(name),
        });
    }
    for (name, least) in [("sched", 6.0), ("spin-sched", 3.0)] {
        let what = format!("reschedules for each system call of {name}");
        let ratio = per_call(calls, switches, name);
        parts.push(Part::at_least(&what, ratio, least).unless(
            "Linux switches once for a yield, and not at all where nobody else wants the CPU",
        ));
    }
    for (name, pure) in &HYBRIDS[1..] {
        let made = |name, at| calls.at(name, at);
        let (soon, late, pure) = (made(name, short), made(name, long), made(pure, long));
        parts.push(match (soon, late, pure) {
            (Some(_), Some(_), Some(pure)) if pure < NONE => Part::senseless(name),
            (Some(soon), Some(late), Some(pure)) => Part::new(
                soon < 0.25 * pure && (0.5 * pure..=2.0 * pure).contains(&late),
                format!("{name} makes {soon:.2} in a short wait and {late:.1} in a long one (pure: {pure:.1})"),
            ),
            _ => Part::missing(name),
        });
        // Of its waits, those that outlasted its spin are as many as it has of the pure strategy's calls.
        let asleep = late.zip(pure).map(|(late, pure)| late / pure);
        let what = format!("reschedules of {name} for each wait that outlasts its spin");
        parts.push(match (asleep, switches.at(name, long)) {
            (Some(asleep), _) if asleep < NONE => Part::missing(&what),
            (asleep, switched) => {
                let ratio = switched
                    .zip(asleep)
                    .map(|(switched, asleep)| switched / asleep);
                Part::within(&what, ratio, (*ONCE.start(), *ONCE.end()))
            }
        });
    }
    parts
}

/// Context switches for each system call in long waits: of yields, which tracing slows down, at most.
fn per_call(calls: &Series, switches: &Series, name: &str) -> Option<f64> {
    let [_, (_, long)] = DELAYS_US;
    let made = calls.at(name, long).filter(|made| *made >= NONE)?;
    Some(switches.at(name, long)? / made)
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
        let bound = if name.contains("sched") { "<= " } else { "" };
        cells.push(format!("{bound}{}", show(per_call(calls, switches, name))));
        cells.extend(DELAYS_US.map(|(_, place)| show(switches.at(name, place))));
        cells
    };
    let columns = [
        "strategy",
        "system calls (paper)",
        "a wait, at once",
        "a wait, after 300 us",
        "reschedules a call (paper)",
        "switches a call, after 300 us",
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

    /// Calls and switches of one wait, without a delay and with one: the paper's, with `changed` in the place of a strategy's.
    fn found(changed: (&str, [f64; 3])) -> Vec<Part> {
        let (mut calls, mut switches) = (Series::default(), Series::default());
        for (name, own) in [
            ("spin", [0.0, 0.0, 0.0]),
            ("sched", [1.0, 40.0, 250.0]),
            ("block", [2.0, 2.0, 1.0]),
            ("notify", [4.0, 4.0, 1.0]),
            ("spin-sched", [0.0, 30.0, 100.0]),
            ("spin-block", [0.1, 2.0, 1.0]),
            ("spin-notify", [0.0, 4.0, 1.0]),
        ] {
            let is_changed = name == changed.0;
            let [soon, late, switched] = if is_changed { changed.1 } else { own };
            calls.add(name, 0.0, soon);
            calls.add(name, 1.0, late);
            switches.add(name, 1.0, switched);
        }
        claims(&calls, &switches)
    }

    #[test]
    fn each_part_can_fail_on_its_own() {
        let failed = |name, [soon, late, switched]: [f64; 3]| {
            let parts = found((name, [soon, late, switched]));
            let failed = parts.iter().filter(|part| part.holds == Some(false));
            failed.map(|part| part.found.clone()).collect::<Vec<_>>()
        };
        assert_eq!(weigh(&found(("none", [0.0; 3]))).0, Verdict::Holds);
        for (name, changed) in [
            ("spin", [0.0, 3.0, 0.0]),
            // Never asleep, and rescheduled far too often.
            ("block", [2.0, 2.0, 0.1]),
            ("block", [2.0, 2.0, 9.0]),
            ("notify", [4.0, 4.0, 5.0]),
            // Yields as Linux has them, however many.
            ("sched", [1.0, 160.0, 1.0]),
            ("spin-sched", [0.0, 160.0, 80.0]),
            // Always asks the kernel; asks far more than the pure strategy; is rescheduled far more often.
            ("spin-block", [2.0, 2.0, 1.0]),
            ("spin-block", [0.1, 8.0, 4.0]),
            ("spin-notify", [0.0, 4.0, 9.0]),
        ] {
            let failed = failed(name, changed);
            assert_eq!(failed.len(), 1, "{name}: {failed:?}");
            assert!(failed[0].contains(name), "{failed:?}");
        }
    }

    #[test]
    fn absurd_counts_prove_nothing() {
        let absurd = found(("sched", [1.0, 1.0, 5000.0]));
        assert_eq!(weigh(&absurd).0, Verdict::Undecided);
        assert_eq!(
            weigh(&claims(&Series::default(), &Series::default())).0,
            Verdict::Absent
        );
    }
}
