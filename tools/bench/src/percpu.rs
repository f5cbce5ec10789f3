//! `percpu`: 1 to all clients, each on a CPU of its own, against servers that are processes: one thread, a pool of
//! threads at one port, a worker on every CPU, and a hand-written futex pair on every CPU, which is the limit.
//!
//! The result is how throughput grows with the clients: the ratio of so many on so many CPUs to one on one, within one
//! round. Other programs' time slices fall out of the second form of it, at the pace of the median call.
//!
//! Then a crowd of clients on each CPU, without and with handlers that sleep: how many of the requests beside those are still answered.

use crate::laws::Law;
use crate::plan::{Placement, Plan, Task, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems::{self, Runnable};
use handfast_sys::cpu;
use std::io;

/// In the order of the table.
const SYSTEMS: [&str; 4] = [
    "handfast-default",
    "handfast-percpu",
    "handfast-pool",
    LIMIT,
];
const LIMIT: &str = "futex-percpu";

/// Microseconds of work for each request.
const WORKS_US: [u64; 3] = [0, 2, 10];

/// Clients on each CPU, in the crowd whose requests have handlers sleep: more than sleep at once. And in all.
const CROWD: usize = 32;
const CROWD_MAX: usize = 128;

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(5, 10), Timing::ms(15, 40));
    let cpus = cpu::allowed();
    let clients: Vec<usize> = match run.args.clients.as_slice() {
        [] => (1..=cpus.len()).collect(),
        asked => asked.iter().map(|count| *count as usize).collect(),
    };
    let systems: Vec<_> = SYSTEMS.into_iter().filter_map(systems::find).collect();
    let wanted = |run: &Run, name: &str| name == LIMIT || run.wants(name);
    let systems: Vec<_> = systems
        .into_iter()
        .filter(|system| wanted(run, system.named().name()))
        .collect();
    let readings = clients.len() * WORKS_US.len() + 2;
    run.expect(systems.len() * readings * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for work_us in WORKS_US {
            let mut turns = Vec::new();
            for count in &clients {
                for system in &systems {
                    let task = match work_us {
                        0 => Task::Echo,
                        work_us => Task::Service(Law::Constant(work_us)),
                    };
                    let turn = turn(run, system.as_ref(), (*count, task, work_us), timing);
                    turns.extend(turn);
                }
            }
            let turns: Vec<(&str, usize, Turn)> = turns;
            let find = |of: &str, at: usize| {
                let turn = turns
                    .iter()
                    .find(|(name, count, _)| (*name, *count) == (of, at));
                turn.map(|(_, _, turn)| turn)
            };
            for (system, count, turn) in &turns {
                let (one, limit) = (find(system, 1), find(LIMIT, *count));
                let reading = Reading {
                    ratio_to_limit: ratio(
                        turn.reading.ops_per_s,
                        limit.and_then(|of| of.reading.ops_per_s),
                    ),
                    ratio_to_one: ratio(
                        turn.reading.ops_per_s,
                        one.and_then(|of| of.reading.ops_per_s),
                    ),
                    pace_to_one: ratio(turn.pace, one.and_then(|of| of.pace)),
                    ..turn.reading
                };
                if run.wants(system) {
                    let key = Key {
                        case: format!("work-{work_us}us"),
                        system,
                        payload_bytes: None,
                        clients: Some(*count),
                    };
                    board.add(key, reading);
                }
            }
        }
        crowd(run, &systems, cpus.len(), timing, &mut board);
    }
    run.notes.push(
        "every-10th-sleeps: of a crowd, every tenth request of a client has its handler sleep 1 ms; to one: requests of \
         each kind / as many of the crowd in which no handler sleeps."
            .to_owned(),
    );
    run.notes.push(
        "ratio: ops/s / ops/s of `futex-percpu`; to one: ops/s / ops/s of the same system with one client; at pace: the \
         same, of clients at the pace of their median calls. More is better. Client n is pinned to CPU n. p50 and p99 are \
         without the work."
            .to_owned(),
    );
    Ok(board.rows())
}

/// A crowd without and with handlers that sleep.
fn crowd(
    run: &mut Run,
    systems: &[Box<dyn Runnable>],
    cpus: usize,
    timing: Timing,
    board: &mut Board,
) {
    let clients = CROWD_MAX.min(CROWD * cpus);
    for system in systems {
        let mut awake = None;
        for (case, task) in [("crowd", Task::Echo), ("every-10th-sleeps", Task::Doze)] {
            let Some((system, _, turn)) = turn(run, system.as_ref(), (clients, task, 0), timing)
            else {
                continue;
            };
            let ops_per_s = turn.reading.ops_per_s;
            let reading = Reading {
                ratio_to_one: ratio(ops_per_s, awake.unwrap_or(ops_per_s)),
                ..turn.reading
            };
            awake = Some(ops_per_s);
            if run.wants(system) {
                let key = Key {
                    case: case.to_owned(),
                    system,
                    payload_bytes: None,
                    clients: Some(clients),
                };
                board.add(key, reading);
            }
        }
    }
}

struct Turn {
    reading: Reading,
    /// Calls in a second if all took as long as the median one.
    pace: Option<f64>,
}

fn turn(
    run: &mut Run,
    system: &dyn Runnable,
    (clients, task, work_us): (usize, Task, u64),
    timing: Timing,
) -> Option<(&'static str, usize, Turn)> {
    let plan = Plan {
        task,
        clients,
        placement: Placement::OnePerCpu,
        ..Plan::echo()
    };
    let sample = run.turn(system, &plan, timing)?;
    let reading = Reading::of(&sample);
    let call_ns = |p50_ns| p50_ns + work_us as f64 * 1e3;
    let pace = reading
        .p50_ns
        .map(|p50_ns| clients as f64 * 1e9 / call_ns(p50_ns));
    Some((system.named().name(), clients, Turn { reading, pace }))
}
