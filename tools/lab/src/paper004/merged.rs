//! Rights in messages: those that the receiver has, and new ones (its section 2.5.1).

use super::about;
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind};
use crate::rows;
use handfast_bench::report::Row;
use handfast_bench::run::Run;
use handfast_bench::{Bench, rights};
use std::io;

pub(super) struct Merged;

const SYSTEM: &str = "handfast-default";
/// The cases of the benchmark, and what stands at each bar.
const CASES: [(&str, &str); 5] = [
    (KNOWN, "merged"),
    ("known-link, back home", "home"),
    ("known-link, in the reply", "in the reply"),
    (NEW, "new"),
    ("known-link, third", "third process's"),
];
const KNOWN: &str = "known-link";
const NEW: &str = "known-link, new each time";

impl Experiment for Merged {
    fn about(&self) -> About {
        about(
            "merged-rights",
            "Rights that the receiver has already, against new ones",
            "A right that comes to a node which has it is merged with that one: the names and counts are there, and only a new \
             right makes an entry (the paper gives no figure).",
            "A client calls a server with 24 bytes, and one right beside them; the time of a right is what the call takes beyond \
             one without a right. Merged: the server has the right. New: minted for the call, and dropped by the server. \
             Client and server are each on a CPU of its own, and all cases take turns in each round.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Rights
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        run.args.only = vec![SYSTEM.to_owned()];
        let board = rights::measure_all(run)?;
        let (verdict, reasons) = judge(&board, |board| claims(&board.rows()));
        Ok(Findings {
            measured: "handfast with its default strategy: rights to ports of the client's, of the server's, and of a third process's."
                .to_owned(),
            verdict,
            reasons,
            figures: vec![Figure {
                title: "Time of a right in a call".to_owned(),
                kind: Kind::Bars,
                x: Axis::linear("right", ""),
                y: Axis::linear("time", "ns"),
                curves: rows::ranged(&board, |board| vec![times(&board.rows())]),
            }],
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}

/// The time of a right in each case.
fn times(found: &[Row]) -> Curve {
    let mut times = Curve::new("one right", []);
    for (index, (case, label)) in CASES.iter().enumerate() {
        let point = of(found, case).map(|ns| (index as f64, ns));
        for mut point in Curve::new("", point).points {
            point.label = Some((*label).to_owned());
            times.points.push(point);
        }
    }
    times
}

/// The time of a right in a case.
fn of(found: &[Row], case: &str) -> Option<f64> {
    let row = found
        .iter()
        .find(|row| row.case == case && row.system == SYSTEM)?;
    row.ns_per_right.filter(|ns| *ns > 0.0)
}

fn claims(found: &[Row]) -> Vec<Part> {
    let ratio = of(found, KNOWN).zip(of(found, NEW));
    let ratio = ratio.map(|(known, new)| known / new);
    vec![Part::at_most("a merged right / a new one", ratio, 0.67)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;
    use handfast_bench::report::{Board, Key, Reading};

    #[test]
    fn a_merged_right_is_to_cost_two_thirds_of_a_new_one() {
        let verdict = |known_ns: f64, new_ns: f64| {
            let mut board = Board::default();
            for (case, ns) in [(KNOWN, known_ns), (NEW, new_ns)] {
                let key = Key {
                    case: case.to_owned(),
                    system: SYSTEM,
                    payload_bytes: None,
                    clients: None,
                };
                let reading = Reading {
                    ns_per_right: Some(ns),
                    ..Reading::default()
                };
                board.add(key, reading);
            }
            weigh(&claims(&board.rows())).0
        };
        assert_eq!(verdict(130.0, 400.0), Verdict::Holds);
        assert_eq!(verdict(390.0, 400.0), Verdict::Fails);
        // Less than a call without a right.
        assert_eq!(verdict(-50.0, 400.0), Verdict::Absent);
    }
}
