//! `rights`: what rights beside the bytes of a call cost.
//!
//! `known-link`: one right to a port of the client's, which the server has already. The other
//! cases say how they differ from that. `third`: the port is a third process's, with which the server
//! has a link, and the right is the same each time; rights come by the vine when the exporter does not
//! keep up. `send-once`: no call, but a message with a send-once right to a port of the client's, made each time, by which the
//! server answers. `vine`: the server has no such link and makes none; what else has to go by the control
//! sockets is part of that. `called`: the server calls once through the right it was given.
//!
//! `new-link`: from the moment the client sends a right of that kind until it hears that the server has
//! got a link with the third process and an answer through it. Each time server and third process are
//! new, have a link with the client only, and sleep; the client has introduced others before.

use crate::plan::{Passed, Placement, Plan, Task, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems::{self, Named, Waits};
use std::collections::BTreeMap;
use std::io;

const PAYLOADS: [u32; 1] = [24];

/// The window for strangers: all meet in it.
const ONCE: Timing = Timing::ms(0, 50);

/// `plain` first: the others are compared with it.
const CASES: [(&str, Passed); 12] = [
    ("plain", Passed::Nothing),
    ("known-link", Passed::Known(1)),
    ("known-link, four", Passed::Known(4)),
    ("known-link, new each time", Passed::New),
    ("known-link, back home", Passed::Home),
    ("known-link, in the reply", Passed::InReply),
    ("send-once", Passed::Once),
    ("known-link, third", third(false, false)),
    ("known-link, third, called", third(false, true)),
    ("vine", third(true, false)),
    ("vine, called", third(true, true)),
    ("new-link", Passed::Strangers),
];

const fn third(vine: bool, called: bool) -> Passed {
    Passed::Third { vine, called }
}

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    Ok(measure_all(run)?.rows())
}

/// The same, round by round.
///
/// # Errors
/// Where nothing can be measured.
pub fn measure_all(run: &mut Run) -> io::Result<Board> {
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
    let cases_of = |system: &dyn Named| {
        let cases = match system.name() {
            "limit" => &CASES[..1],
            _ => &CASES,
        };
        let spins = system.waits() == Waits::Spins;
        let is_fit = move |passed: Passed| !(spins && passed == Passed::Strangers);
        cases.iter().filter(move |(_, passed)| is_fit(*passed))
    };
    let cases: usize = systems
        .iter()
        .map(|system| cases_of(system.named()).count())
        .sum();
    run.expect(cases * payloads.len() * run.rounds as usize);

    let mut board = Board::default();
    let mut came: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for _ in 0..run.rounds {
        for payload in &payloads {
            for system in &systems {
                let mut plain = None;
                for (case, passed) in cases_of(system.named()) {
                    let is_once = *passed == Passed::Strangers;
                    let plan = Plan {
                        task: Task::Pass(*passed),
                        payload_bytes: *payload as usize,
                        servers: passed.servers(),
                        // Between strangers, control threads and other threads take part.
                        placement: if is_once {
                            Placement::Free
                        } else {
                            base.placement
                        },
                        ..base.clone()
                    };
                    let timing = if is_once { ONCE } else { timing };
                    let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                        continue;
                    };
                    let mut reading = Reading::of(&sample);
                    // The window is longer than those few calls.
                    reading.ops_per_s = reading.ops_per_s.filter(|_| !is_once);
                    if matches!(passed, Passed::Third { vine: false, .. }) {
                        let (direct, all) = came.entry((system.named().name(), *case)).or_default();
                        *direct += sample.served;
                        *all += sample.total();
                    }
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
    for ((system, case), (direct, all)) in came {
        let share = 100 * direct / all.max(1);
        run.notes.push(format!(
            "{case}, {system}: {share} % of the rights came as direct ones, the others by the vine."
        ));
    }
    run.notes.push(
        "ratio: p50 / p50 of `plain`; per right: their difference, for each right passed."
            .to_owned(),
    );
    Ok(board)
}

/// The time each of `count` rights adds; `None` without rights.
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
