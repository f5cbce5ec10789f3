//! `chain`: one call through 2 to 6 processes, the client among them, on however many CPUs there are.
//!
//! * `nested-N`: each server calls the next one, and replies with what comes back.
//! * `tail-N`: each server forwards the call, and the last one replies straight to the client.
//! * `ring-N`: one-way messages; the last server sends to a port of the client's.
//!
//! N counts the processes. The client's and the first server's CPU are chosen as in `rtt`; other servers are on the
//! CPUs that are left, or with the first. Where all have one CPU, each process waits for others that can run only
//! when it does not.

use crate::plan::{Plan, Task, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems;
use std::io;

/// Processes of a chain.
const PROCESSES: core::ops::RangeInclusive<usize> = 2..=6;
/// Systems, by key; the first is what all are compared with.
const SYSTEMS: [&str; 6] = [
    "nested-default",
    "tail-default",
    "ring-default",
    "nested-block",
    "tail-block",
    "ring-block",
];

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(2, 5), Timing::ms(20, 100));
    let payloads = run.payloads(&[64]);
    let placement = run.best_placement();
    let systems: Vec<_> = (SYSTEMS.iter())
        .filter_map(|key| systems::find(key))
        .collect();
    let chains = PROCESSES.count() * payloads.len();
    run.expect(chains * systems.len() * run.rounds as usize);
    let mut board = Board::default();
    for _ in 0..run.rounds {
        for (processes, payload) in
            PROCESSES.flat_map(|count| payloads.iter().map(move |payload| (count, *payload)))
        {
            let plan = Plan {
                task: Task::OneWay,
                payload_bytes: payload as usize,
                servers: processes - 1,
                placement,
                ..Plan::echo()
            };
            let mut nested_ns = None;
            for system in &systems {
                let named = system.named();
                let is_nested = named.key() == SYSTEMS[0];
                if !is_nested && !run.wants(named.name()) {
                    continue;
                }
                let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                    continue;
                };
                let mut reading = Reading::of(&sample);
                if is_nested {
                    nested_ns = reading.p50_ns;
                }
                reading.ratio_to_limit = ratio(reading.p50_ns, nested_ns);
                let way = named.key().split('-').next().unwrap_or_default();
                let key = Key {
                    case: format!("{way}-{processes}"),
                    system: named.name(),
                    payload_bytes: Some(plan.payload_bytes),
                    clients: None,
                };
                board.add(key, reading);
            }
        }
    }
    run.notes.push(
        "ratio: p50 / p50 of nested calls of handfast-default through as many processes."
            .to_owned(),
    );
    Ok(board.rows())
}
