//! `scale`: closed-loop clients against one single-threaded server, not pinned.
//!
//! The two limits are bare lanes, one per client, that the server polls in turn: `spin` never
//! gives the CPU away, `yield` yields after 2 us of spinning. `--only` also takes the protocols of
//! paper 000 (`bsls`) and System V queues.

use crate::plan::{Plan, Timing};
use crate::report::{Board, Key, Reading, Row, rounded};
use crate::run::Run;
use crate::stats::{jain, ratio};
use crate::systems::{self, Runnable};
use std::io;

const CLIENTS: [u32; 8] = [1, 2, 3, 4, 6, 16, 64, 256];

/// How long the yielding limit spins before it yields.
const YIELD_AFTER_NS: u64 = 2_000;

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(10, 50), Timing::ms(400, 1_000));
    let pause = run.choose_pause();
    let clients = match run.args.clients.as_slice() {
        [] if run.args.quick => vec![1, 3, 6],
        [] => CLIENTS.to_vec(),
        asked => asked.to_vec(),
    };
    let systems: Vec<_> = systems::calls()
        .into_iter()
        .chain(systems::protocols())
        .filter(|system| {
            let (key, name) = (system.named().key(), system.named().name());
            match key {
                // The spinning limit is what all ratios refer to.
                "limit" => true,
                "limit-yielding" => run.wants(name),
                "pipe" | "unix-stream" => {
                    run.args.only.iter().any(|only| only == name) || run.args.with_peers
                }
                _ => name == "handfast-default" || run.args.only.iter().any(|only| only == name),
            }
        })
        .filter(|system| system.named().key() != "limit-in-place")
        .collect();
    run.start_hogs(|_| None)?;
    run.expect(systems.len() * clients.len() * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for count in &clients {
            for system in &systems {
                let plan = Plan {
                    clients: *count as usize,
                    pause,
                    spin_ns: spin_ns(system.as_ref()),
                    ..Plan::echo()
                };
                let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                    continue;
                };
                let reading = Reading {
                    jain: jain(&sample.calls),
                    longest_wait_ns: Some(sample.longest_wait_ns as f64),
                    ..Reading::of(&sample)
                };
                let key = Key {
                    case: case(system.as_ref()).to_owned(),
                    system: system.named().name(),
                    payload_bytes: Some(plan.payload_bytes),
                    clients: Some(plan.clients),
                };
                board.add(key, reading);
            }
        }
    }
    let mut rows = board.rows();
    against_peak(&mut rows);
    rows.retain(|row| run.wants(row.system));
    run.notes.push(
        "ratio: ops/s / the best ops/s of the spinning limit over all numbers of clients; more is \
         better. Longest wait: of all rounds, calls still open at the window's end included."
            .to_owned(),
    );
    Ok(rows)
}

fn spin_ns(system: &dyn Runnable) -> u64 {
    match system.named().key() {
        "limit-yielding" => YIELD_AFTER_NS,
        "limit-spin-then-sleep" => 5_000,
        _ => 0,
    }
}

fn case(system: &dyn Runnable) -> &'static str {
    match system.named().key() {
        "limit" => SPIN,
        "limit-yielding" => "yield",
        "limit-spin-then-sleep" => "spin-then-sleep",
        _ => "free",
    }
}

const SPIN: &str = "spin";

/// Sets the ratios: throughput over the peak of the spinning limit.
fn against_peak(rows: &mut [Row]) {
    let peak = rows
        .iter()
        .filter(|row| (row.system, row.case.as_str()) == ("limit", SPIN))
        .filter_map(|row| row.ops_per_s)
        .reduce(f64::max);
    for row in rows {
        row.ratio_to_limit = rounded(ratio(row.ops_per_s, peak), 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_refer_to_the_spinning_limits_own_peak() {
        let mut board = Board::default();
        let rows = [
            ("limit", SPIN, 1, 3.0),
            ("limit", SPIN, 3, 8.0),
            ("limit", "yield", 6, 10.0),
            ("handfast-default", "free", 6, 6.0),
        ];
        for (system, case, clients, ops) in rows {
            let key = Key {
                case: case.to_owned(),
                system,
                payload_bytes: None,
                clients: Some(clients),
            };
            let reading = Reading {
                ops_per_s: Some(ops),
                ..Reading::default()
            };
            board.add(key, reading);
        }
        let mut rows = board.rows();
        against_peak(&mut rows);
        let ratios: Vec<_> = rows.iter().map(|row| row.ratio_to_limit).collect();
        assert_eq!(ratios, [0.375, 1.0, 1.25, 0.75].map(Some));
    }
}
