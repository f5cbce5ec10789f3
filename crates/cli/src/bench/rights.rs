//! `rights`: what rights beside the bytes of a call cost.
//!
//! `known-link`: one right to a port of the client's, which the server has already. The other
//! cases say how they differ from that.

use super::plan::{Passed, Plan, Task, Timing};
use super::report::{Board, Key, Reading, Row};
use super::run::Run;
use super::stats::ratio;
use super::systems::{self, Waits};
use std::io;

const PAYLOADS: [u32; 1] = [24];

/// `plain` first: the others are compared with it.
const CASES: [(&str, Passed); 6] = [
    ("plain", Passed::Nothing),
    ("known-link", Passed::Known(1)),
    ("known-link, four", Passed::Known(4)),
    ("known-link, new each time", Passed::New),
    ("known-link, back home", Passed::Home),
    ("known-link, in the reply", Passed::InReply),
];

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(5, 20), Timing::ms(10, 50));
    let base = Plan {
        pause: run.choose_pause(),
        placement: run.best_placement(),
        ..Plan::echo()
    };
    let payloads = run.payloads(&PAYLOADS);
    // The limit's round trip says what state the machine is in.
    let keys = ["limit", "passing-spin", "passing-default"];
    let mut systems: Vec<_> = keys.iter().filter_map(|key| systems::find(key)).collect();
    systems.retain(|system| {
        let spins = system.named().waits() == Waits::Spins;
        run.wants(system.named().name()) && !(spins && base.placement.same_core())
    });
    let cases_of = |name| match name {
        "limit" => &CASES[..1],
        _ => &CASES,
    };
    let cases: usize = systems
        .iter()
        .map(|system| cases_of(system.named().name()).len())
        .sum();
    run.expect(cases * payloads.len() * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for payload in &payloads {
            for system in &systems {
                let mut plain = None;
                for (case, passed) in cases_of(system.named().name()) {
                    let plan = Plan {
                        task: Task::Pass(*passed),
                        payload_bytes: *payload as usize,
                        ..base.clone()
                    };
                    let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                        continue;
                    };
                    let reading = Reading::of(&sample);
                    if *passed == Passed::Nothing {
                        plain = reading.p50_ns;
                    }
                    let key = Key {
                        case: (*case).to_owned(),
                        system: system.named().name(),
                        payload_bytes: Some(plan.payload_bytes),
                        clients: None,
                    };
                    let reading = Reading {
                        ratio_to_limit: ratio(reading.p50_ns, plain),
                        ns_per_right: per_right(reading.p50_ns, plain, passed.count()),
                        ..reading
                    };
                    board.add(key, reading);
                }
            }
        }
    }
    run.notes.push(
        "ratio: p50 / p50 of `plain`; per right: their difference, for each right passed."
            .to_owned(),
    );
    Ok(board.rows())
}

/// What each of `count` rights adds; `None` without rights.
fn per_right(p50_ns: Option<f64>, plain: Option<f64>, count: usize) -> Option<f64> {
    let added = p50_ns? - plain?;
    (count > 0).then(|| added / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_shared_by_the_rights() {
        assert_eq!(per_right(Some(900.0), Some(100.0), 4), Some(200.0));
        assert_eq!(per_right(Some(100.0), Some(100.0), 0), None);
        assert_eq!(per_right(Some(100.0), None, 1), None);
        assert_eq!((CASES[0].0, CASES[0].1.count()), ("plain", 0));
    }
}
