//! `payload`: a client makes a payload, the server reads all of it and answers with its sum.
//!
//! The limit leaves the payload in the shared memory it was made in. The hand-written
//! `one-copy` makes it there too, and the server copies it out before it reads: what a system
//! with a hostile peer can reach. Few buffers, so all of it stays in the caches.
//!
//! `loan`: the client makes it in a block that it lends, and the server copies that out, 64 bytes at a time. The
//! limit is the same.
//!
//! `pieces`: the first 64 bytes and the rest lie in two places, and are one message (`call_vectored`).
//!
//! Payloads that are too long for a lane are measured for the limit, loans, handfast's messages and the kernel's streams.

use crate::plan::{Plan, Task, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems::{self, Runnable};
use handfast::MESSAGE_BYTES_MAX;
use std::io;

const PAYLOADS: [u32; 10] = [
    64, 256, 1024, 4096, 16_384, 65_536, 131_072, 262_144, 1_048_576, 8_388_608,
];

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(2, 5), Timing::ms(8, 30));
    let pause = run.choose_pause();
    let payloads = run.whole_payloads(&PAYLOADS);
    let mut systems = systems::calls();
    let others = LOANS.iter().chain(&PIECES);
    systems.extend(others.filter_map(|key| systems::find(key)));
    // A stable sort: the limit first, the rest in the registry's order.
    systems.sort_by_key(|system| system.named().key() != IN_PLACE);
    systems.retain(|system| match system.named().key() {
        IN_PLACE => true,
        "limit-yielding" | "limit-spin-then-sleep" => false,
        _ => run.wants(system.named().name()),
    });
    let fits = |system: &dyn Runnable, payload: u32| {
        payload as usize <= MESSAGE_BYTES_MAX || is_long(system)
    };
    let turns: usize = payloads
        .iter()
        .map(|payload| {
            systems
                .iter()
                .filter(|system| fits(system.as_ref(), *payload))
                .count()
        })
        .sum();
    run.expect(turns * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for payload in &payloads {
            let plan = Plan {
                task: Task::Consume,
                payload_bytes: *payload as usize,
                placement: run.best_placement(),
                pause,
                ..Plan::echo()
            };
            let mut limit = None;
            for system in &systems {
                if !fits(system.as_ref(), *payload) {
                    continue;
                }
                let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                    continue;
                };
                let reading = Reading::of(&sample);
                if system.named().key() == IN_PLACE {
                    limit = reading.p50_ns;
                }
                let key = Key {
                    case: case(system.as_ref()).to_owned(),
                    system: system.named().name(),
                    payload_bytes: Some(plan.payload_bytes),
                    clients: None,
                };
                let reading = Reading {
                    ratio_to_limit: ratio(reading.p50_ns, limit),
                    ..reading
                };
                if run.wants(key.system) {
                    board.add(key, reading);
                }
            }
        }
    }
    run.notes
        .push("ratio: p50 / p50 of `limit` in place, which copies nothing.".to_owned());
    Ok(board.rows())
}

const IN_PLACE: &str = "limit-in-place";
const LOANS: [&str; 2] = ["loan-spin", "loan-default"];
const PIECES: [&str; 2] = ["pieces-spin", "pieces-default"];

/// Systems that carry more than goes through a lane, beside the limit and loans.
const LONG: [&str; 6] = [
    "handfast-spin",
    "handfast-default",
    "handfast-block",
    "pipe",
    "unix-stream",
    "tcp",
];

/// Whether the system has payloads that are longer than those of a lane.
fn is_long(system: &dyn Runnable) -> bool {
    let key = system.named().key();
    key == IN_PLACE || [&LOANS[..], &PIECES, &LONG].concat().contains(&key)
}

fn case(system: &dyn Runnable) -> &'static str {
    match system.named().key() {
        IN_PLACE => "in-place",
        "limit" => "one-copy",
        key if LOANS.contains(&key) => "loan",
        key if PIECES.contains(&key) => "pieces",
        _ => "hot",
    }
}
