//! Turns of all systems, round after round.

use super::adapters::{Candidate, Candidates};
use crate::result::{Curve, Point};
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::report::{Board, Key, Reading};
use handfast_bench::run::Run;

/// The measurements and their candidates.
pub(super) struct Measured {
    pub(super) candidates: Candidates,
    pub(super) board: Board,
    /// Systems that are missing, with the reason.
    pub(super) absent: Vec<(&'static str, String)>,
}

/// Measures `cases` of all candidates, `rounds` times.
pub(super) fn measure(
    run: &mut Run,
    candidates: Candidates,
    cases: &[(&str, Plan)],
    timing: Timing,
    rounds: u32,
) -> Measured {
    run.expect(candidates.there().count() * cases.len() * rounds as usize);
    let mut board = Board::default();
    for _ in 0..rounds {
        for (case, plan) in cases {
            for system in candidates.there() {
                let Some(sample) = run.turn(system, plan, timing) else {
                    continue;
                };
                let key = Key {
                    case: (*case).to_owned(),
                    system: system.named().name(),
                    payload_bytes: Some(plan.payload_bytes),
                    clients: Some(plan.clients),
                };
                board.add(key, Reading::of(&sample));
            }
        }
    }
    let rows = board.rows();
    let has_rows = |name: &str| rows.iter().any(|row| row.system == name);
    let absent = absent(run, &candidates.all, has_rows);
    Measured {
        candidates,
        board,
        absent,
    }
}

/// The candidates that are not `there`, and why.
pub(super) fn absent(
    run: &Run,
    candidates: &[Candidate],
    there: impl Fn(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let missing = candidates.iter().filter(|one| !there(one.name));
    let why = |one: &Candidate| match &one.system {
        Err(why) => why.clone(),
        Ok(_) => run
            .complaint(one.name)
            .unwrap_or("no turn succeeded")
            .to_owned(),
    };
    missing.map(|one| (one.name, why(one))).collect()
}

/// Curves without points, for the missing candidates.
pub(super) fn without(absent: &[(&'static str, String)]) -> impl Iterator<Item = Curve> {
    absent.iter().map(|(name, why)| Curve {
        absent: Some(why.clone()),
        ..Curve::new(name, [])
    })
}

/// A point that a name stands at.
pub(super) fn labelled(x: f64, y: f64, label: &str) -> Point {
    Point {
        x,
        y,
        range: None,
        label: Some(label.to_owned()),
    }
}
