//! `rtt`: the round trip of one client, for every system and payload, on two CPUs and on one; and for 24 bytes where the scheduler places the
//! processes, back to back and by a client that pauses.

use crate::plan::{Placement, Plan, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems::{self, Runnable, Waits};
use handfast_sys::cpu;
use std::io;

const PAYLOADS: [u32; 4] = [24, 1024, 4096, 65_536];

/// How long the client of the case `paced` sleeps between two calls.
const PAUSE_NS: u64 = 100_000;

/// Which registered systems are no rows of `rtt`: limits of other benchmarks.
const OTHERS: [&str; 2] = ["limit-spin-then-sleep", "limit-in-place"];

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(2, 5), Timing::ms(8, 30));
    let pause = run.choose_pause();
    let payloads = run.payloads(&PAYLOADS);
    let mut cases = vec![("same-core", run.same_core(), 0)];
    match run.cross_core() {
        Some(placement) => cases.insert(0, ("cross-core", placement, 0)),
        None => run.warn("one CPU: no cross-core rows".to_owned()),
    }
    cases.push(("free", Placement::Free, 0));
    cases.push(("paced", Placement::Free, PAUSE_NS));
    // In the cases that the scheduler places: the shortest alone.
    let sizes_of = |placement: Placement| match placement {
        Placement::Free => &payloads[..payloads.len().min(1)],
        _ => &payloads[..],
    };
    let systems = systems::calls();
    let rows_of = |placement: Placement| -> Vec<&dyn Runnable> {
        let same_core =
            placement.same_core() || placement == Placement::Free && cpu::allowed().len() < 2;
        let belongs = |system: &&dyn Runnable| match system.named().key() {
            key if OTHERS.contains(&key) => false,
            "limit-yielding" => same_core,
            _ => !(same_core && system.named().waits() == Waits::Spins),
        };
        systems.iter().map(AsRef::as_ref).filter(belongs).collect()
    };
    let wanted = |run: &Run, system: &dyn Runnable| {
        let name = system.named().name();
        matches!(name, "limit" | "futex") || run.wants(name)
    };
    let per_round: usize = cases
        .iter()
        .map(|(_, placement, _)| {
            let rows = rows_of(*placement).into_iter();
            let rows = rows.filter(|system| wanted(run, *system)).count();
            rows * sizes_of(*placement).len()
        })
        .sum();
    run.expect(per_round * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for (case, placement, think_ns) in &cases {
            for payload in sizes_of(*placement) {
                let plan = Plan {
                    payload_bytes: *payload as usize,
                    placement: *placement,
                    think_ns: *think_ns,
                    pause,
                    ..Plan::echo()
                };
                let mut turns = Vec::new();
                for system in rows_of(*placement) {
                    if wanted(run, system)
                        && let Some(sample) = run.turn(system, &plan, timing)
                    {
                        turns.push((system, Reading::of(&sample)));
                    }
                }
                for (system, reading) in compared(turns) {
                    if run.wants(system) {
                        let key = Key {
                            case: (*case).to_owned(),
                            system,
                            payload_bytes: Some(plan.payload_bytes),
                            clients: None,
                        };
                        board.add(key, reading);
                    }
                }
            }
        }
    }
    run.notes.push(
        "ratio: p50 / p50 of `limit`; for systems that sleep for every message / p50 of `futex`."
            .to_owned(),
    );
    Ok(board.rows())
}

/// Gives each reading of one round its ratio to the limit that fits how its system waits.
fn compared(turns: Vec<(&dyn Runnable, Reading)>) -> Vec<(&'static str, Reading)> {
    let p50_of = |name| {
        let turn = turns
            .iter()
            .find(|(system, _)| system.named().name() == name);
        turn.and_then(|(_, reading)| reading.p50_ns)
    };
    let (limit, futex) = (p50_of("limit"), p50_of("futex"));
    turns
        .into_iter()
        .map(|(system, reading)| {
            let against = match system.named().waits() {
                Waits::Blocks => futex,
                Waits::Spins | Waits::Adapts => limit,
            };
            let reading = Reading {
                ratio_to_limit: ratio(reading.p50_ns, against),
                ..reading
            };
            (system.named().name(), reading)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_are_compared_with_futex_and_the_others_with_limit() {
        let systems = systems::calls();
        let turn = |key: &str, p50_ns| {
            let system = systems.iter().find(|system| system.named().key() == key);
            let reading = Reading {
                p50_ns: Some(p50_ns),
                ..Reading::default()
            };
            (system.unwrap().as_ref(), reading)
        };
        let turns = vec![
            turn("limit", 200.0),
            turn("futex", 10e3),
            turn("pipe", 20e3),
        ];
        let ratios: Vec<_> = compared(turns)
            .into_iter()
            .map(|(name, reading)| (name, reading.ratio_to_limit))
            .collect();
        let expected = [("limit", 1.0), ("futex", 1.0), ("pipe", 2.0)];
        assert_eq!(ratios, expected.map(|(name, ratio)| (name, Some(ratio))));
    }
}
