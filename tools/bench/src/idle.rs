//! `idle`: clients that have called and now ask nothing. Their cost is the cost of being connected.

use crate::plan::{Plan, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::systems;
use handfast_cli::usage::Usage;
use std::io;

const CLIENTS: u32 = 64;

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(50, 200), Timing::ms(500, 10_000));
    let counts = match run.args.clients.as_slice() {
        [] => vec![CLIENTS],
        asked => asked.to_vec(),
    };
    // One round is enough here: the window is long and the right answer is zero.
    let rounds = run.args.rounds.unwrap_or(1);
    let mut systems = systems::calls();
    systems.retain(|system| {
        let name = system.named().name();
        match system.named().key() {
            "futex" | "unix-stream" => run.wants(name),
            "handfast-default" | "handfast-block" => run.wants(name),
            _ => false,
        }
    });
    run.expect(systems.len() * counts.len() * rounds as usize);

    let mut board = Board::default();
    for _ in 0..rounds {
        for count in &counts {
            for system in &systems {
                let plan = Plan {
                    clients: *count as usize,
                    ..Plan::echo()
                };
                let rest = run.attempt(system.as_ref(), &plan, |session| session.rest(timing));
                let Some(rest) = rest else { continue };
                for (case, used) in [("server", rest.server), ("clients", rest.clients)] {
                    let key = Key {
                        case: case.to_owned(),
                        system: system.named().name(),
                        payload_bytes: None,
                        clients: Some(plan.clients),
                    };
                    board.add(key, reading(used));
                }
            }
        }
    }
    let seconds = timing.window.as_secs_f64();
    run.notes.push(format!(
        "Context switches and CPU time over {seconds} s of rest; `clients`: of all together. The \
         limit is zero."
    ));
    Ok(board.rows())
}

fn reading(used: Usage) -> Reading {
    Reading {
        switches: Some(used.switches as f64),
        cpu_ns: Some(used.cpu_ns as f64),
        ..Reading::default()
    }
}
