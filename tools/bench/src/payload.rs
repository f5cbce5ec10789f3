//! `payload`: a client sends a payload to a server, one way and back.
//!
//! One way, the client makes the payload and the server reads all of it and answers with its sum:
//!
//! * `in-place`: the hand-written limit leaves the payload in the shared memory it was made in.
//! * `one-copy`: the limit's client makes it there, and its server copies it out before it reads. A system
//!   with a hostile peer can reach this.
//! * `loan`: the client makes it in a block that it lends, and the server copies that out, 64 bytes at a time.
//! * `pieces`: the first 64 bytes and the rest lie in two places, and are one message (`call_vectored`).
//! * `hot`: all others. There are few buffers, so all of it stays in the caches.
//!
//! From 64 KiB on there are also:
//!
//! * `echo`: the same payload back. The client makes it and reads all that comes back. The limit's server
//!   copies it once, from the request's place to the reply's.
//! * `sent`: nobody makes or reads the payload, and the reply is empty. It has no limit: the hand-written pair
//!   would copy bytes that its server has in its cache from the last time.
//! * `memcpy`: one copy of it within one process, from and to the cache of one CPU.
//!
//! Payloads that are too long for a lane are measured for the limits, loans, handfast's messages and the kernel's streams.

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

/// From here on a turn takes longer.
const LONG_BYTES_MIN: usize = 1 << 20;

/// One system and its work on the payload.
type Turn = (Task, Box<dyn Runnable>);

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let short = run.timing(Timing::ms(2, 5), Timing::ms(8, 30));
    // Until the memory that is used again is there, and for many calls.
    let long = run.timing(Timing::ms(20, 100), Timing::ms(40, 200));
    let base = Plan {
        placement: run.best_placement(),
        pause: run.choose_pause(),
        ..Plan::echo()
    };
    let payloads = run.whole_payloads(&PAYLOADS).into_iter();
    let groups: Vec<(usize, Vec<Turn>)> = payloads
        .map(|payload| (payload as usize, turns(run, payload as usize)))
        .collect();
    let turns: usize = groups.iter().map(|(_, turns)| turns.len()).sum();
    run.expect(turns * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for (payload_bytes, turns) in &groups {
            let mut readings = Vec::new();
            for (task, system) in turns {
                let plan = Plan {
                    task: *task,
                    payload_bytes: *payload_bytes,
                    ..base.clone()
                };
                let timing = match *payload_bytes >= LONG_BYTES_MIN {
                    true => long,
                    false => short,
                };
                if let Some(sample) = run.turn(system.as_ref(), &plan, timing) {
                    readings.push((*task, system.as_ref(), Reading::of(&sample)));
                }
            }
            for (task, system, reading) in compared(&readings) {
                let key = Key {
                    case: case(task, system.named().key()).to_owned(),
                    system: system.named().name(),
                    payload_bytes: Some(*payload_bytes),
                    clients: None,
                };
                if run.wants(key.system) {
                    board.add(key, reading);
                }
            }
        }
    }
    run.notes.push(
        "ratio: p50 / p50 of `limit` in place, which copies nothing; echo: of a `limit` that copies once. to copy: p50 / p50 \
         of one memcpy. to unix: p50 / p50 of `unix-stream` in the same case, one way with the payload made and read."
            .to_owned(),
    );
    Ok(board.rows())
}

const IN_PLACE: &str = "limit-in-place";
const LOANS: [&str; 2] = ["loan-spin", "loan-default"];
const PIECES: [&str; 2] = ["pieces-spin", "pieces-default"];

/// Systems that carry more than goes through a lane, beside loans and messages in pieces.
const LONG: [&str; 8] = [
    IN_PLACE,
    "limit",
    "handfast-spin",
    "handfast-default",
    "handfast-block",
    "pipe",
    "unix-stream",
    "tcp",
];

/// Shorter payloads go to and fro in `rtt` and `eros`.
const MOVED_BYTES_MIN: usize = 65_536;
const ECHO: [&str; 5] = [
    IN_PLACE,
    "unix-stream",
    "handfast-spin",
    "handfast-default",
    "handfast-block",
];
/// Without streams, which acknowledge nothing.
const SENT: [&str; 4] = [
    "copy",
    "handfast-spin",
    "handfast-default",
    "handfast-block",
];

/// The turns of one payload: systems that `--only` asks for, and those that they are compared with.
fn turns(run: &Run, payload_bytes: usize) -> Vec<Turn> {
    let mut systems = systems::calls();
    let others = LOANS.iter().chain(&PIECES);
    systems.extend(others.filter_map(|key| systems::find(key)));
    // A stable sort: the limit first, the rest in the registry's order.
    systems.sort_by_key(|system| system.named().key() != IN_PLACE);
    systems.retain(|system| payload_bytes <= MESSAGE_BYTES_MAX || is_long(system.named().key()));
    let mut turns: Vec<Turn> = systems
        .into_iter()
        .map(|system| (Task::Consume, system))
        .collect();
    if payload_bytes >= MOVED_BYTES_MIN {
        let echo = ECHO.map(|key| (Task::Return, key));
        let sent = SENT.map(|key| (Task::OneWay, key));
        let moved = echo.into_iter().chain(sent);
        turns.extend(moved.filter_map(|(task, key)| Some((task, systems::find(key)?))));
    }
    turns.retain(|(_, system)| match system.named().key() {
        IN_PLACE | "copy" => true,
        "limit-yielding" | "limit-spin-then-sleep" => false,
        "unix-stream" if payload_bytes >= MOVED_BYTES_MIN => true,
        _ => run.wants(system.named().name()),
    });
    turns
}

/// Whether the system has payloads that are longer than those of a lane.
fn is_long(key: &str) -> bool {
    [&LOANS[..], &PIECES, &LONG].concat().contains(&key)
}

/// Gives each reading of one payload and round its ratios.
fn compared<'a>(
    readings: &[(Task, &'a dyn Runnable, Reading)],
) -> Vec<(Task, &'a dyn Runnable, Reading)> {
    let p50_of = |of: Task, key: &str| {
        let is_it = |(task, system, _): &&(Task, &dyn Runnable, Reading)| {
            *task == of && system.named().key() == key
        };
        let (.., reading) = readings.iter().find(is_it)?;
        reading.p50_ns
    };
    let copy = p50_of(Task::OneWay, "copy");
    let with_ratios = |(task, system, reading): &(Task, &'a dyn Runnable, Reading)| {
        let reading = Reading {
            ratio_to_limit: ratio(reading.p50_ns, p50_of(*task, IN_PLACE)),
            ratio_to_copy: ratio(reading.p50_ns, copy),
            ratio_to_unix: ratio(reading.p50_ns, p50_of(*task, "unix-stream")),
            ..*reading
        };
        (*task, *system, reading)
    };
    readings.iter().map(with_ratios).collect()
}

fn case(task: Task, key: &str) -> &'static str {
    match (task, key) {
        (Task::Return, _) => "echo",
        (Task::OneWay, "copy") => "memcpy",
        (Task::OneWay, _) => "sent",
        (_, IN_PLACE) => "in-place",
        (_, "limit") => "one-copy",
        (_, key) if LOANS.contains(&key) => "loan",
        (_, key) if PIECES.contains(&key) => "pieces",
        _ => "hot",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_compared_with_its_own_limit_and_stream_and_all_with_one_memcpy() {
        let turns = [
            (Task::Consume, IN_PLACE, 100.0),
            (Task::Consume, "handfast-default", 300.0),
            (Task::Consume, "unix-stream", 600.0),
            (Task::Return, IN_PLACE, 200.0),
            (Task::Return, "handfast-default", 400.0),
            (Task::Return, "unix-stream", 1600.0),
            (Task::OneWay, "copy", 50.0),
            (Task::OneWay, "handfast-default", 100.0),
        ];
        let systems = turns.map(|(_, key, _)| systems::find(key).unwrap());
        let turns = turns.iter().zip(&systems);
        let readings = turns.map(|((task, _, p50_ns), system)| {
            let reading = Reading {
                p50_ns: Some(*p50_ns),
                ..Reading::default()
            };
            (*task, system.as_ref(), reading)
        });
        let readings: Vec<_> = readings.collect();
        let found = compared(&readings).into_iter().map(|(.., reading)| {
            let ratios = [reading.ratio_to_limit, reading.ratio_to_unix];
            (reading.ratio_to_copy.unwrap(), ratios)
        });
        let expected = [
            (2.0, [Some(1.0), Some(1.0 / 6.0)]),
            (6.0, [Some(3.0), Some(0.5)]),
            (12.0, [Some(6.0), Some(1.0)]),
            (4.0, [Some(1.0), Some(0.125)]),
            (8.0, [Some(2.0), Some(0.25)]),
            (32.0, [Some(8.0), Some(1.0)]),
            (1.0, [None, None]),
            (2.0, [None, None]),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
