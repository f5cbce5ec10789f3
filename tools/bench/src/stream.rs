//! `stream`: 24-byte messages in one direction, as fast as they go.

use crate::plan::{Plan, Task, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems;
use std::io;

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(5, 20), Timing::ms(20, 100));
    let plan = Plan {
        task: Task::Stream,
        pause: run.choose_pause(),
        placement: run.best_placement(),
        ..Plan::echo()
    };
    let case = if plan.placement.same_core() {
        "same-core"
    } else {
        "cross-core"
    };
    let mut systems = systems::streams();
    systems.retain(|system| {
        let name = system.named().name();
        name == "limit" || run.wants(name)
    });
    run.expect(systems.len() * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        // The limit is the first of the registry.
        let mut limit = None;
        for system in &systems {
            let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                continue;
            };
            let name = system.named().name();
            let reading = Reading::of(&sample);
            if name == "limit" {
                limit = reading.ops_per_s;
            }
            let case = match system.named().key() {
                "handfast-singles" => format!("{case}, one by one"),
                _ => case.to_owned(),
            };
            let key = Key {
                case,
                system: name,
                payload_bytes: Some(plan.payload_bytes),
                clients: None,
            };
            let reading = Reading {
                ratio_to_limit: ratio(reading.ops_per_s, limit),
                ..reading
            };
            if run.wants(name) {
                board.add(key, reading);
            }
        }
    }
    run.notes
        .push("ratio: ops/s / ops/s of the bare ring; more is better.".to_owned());
    Ok(board.rows())
}
