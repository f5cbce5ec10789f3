//! `eros`: what "The Measured Performance of a Fast Local IPC" measured, on this machine.
//!
//! * `one-way` (its Figures 3 and 4): a payload there, an empty reply back; nobody looks at it. The
//!   hand-written limit leaves it in shared memory and copies it out.
//! * `echo` (Figure 4): the same payload back. The client makes it and reads all that comes back,
//!   in every system, since a limit that leaves bytes where they are would otherwise move none.
//! * `nested-2`, `nested-3` (Figure 5): a call through two and three servers, an empty reply back
//!   through all of them; each process on a CPU of its own, as far as there are any. `tail-2`,
//!   `tail-3`: each server forwards the call, and the last one replies straight to the client.
//! * `packet-bytes-3`, `packet-memory-3` (section 4.2): a packet through two servers that forward it to a third one, as
//!   bytes that are copied at each, or as memory that the client keeps. Nobody looks at it.
//! * `table1`: echoes through handfast and through the kernel.

use crate::plan::{Placement, Plan, Task, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems::{self, Runnable, Waits};
use std::io;

const MOVED: [u32; 8] = [0, 64, 256, 1024, 4096, 16_384, 32_768, 65_536];
const CHAINED: [u32; 7] = [0, 16, 64, 512, 1024, 2048, 4096];
const PACKETS: [u32; 4] = [4096, 65_536, 1 << 20, 8 << 20];
/// Payloads of its Table 1, in bytes.
pub const TABLE1: [u32; 12] = [
    16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768,
];

/// Systems whose turns are compared with one another, by key.
const ONE_WAY: [&str; 4] = ["limit", "copy", "handfast-spin", "handfast-default"];
const ECHO: [&str; 4] = [
    "limit-in-place",
    "copy",
    "handfast-spin",
    "handfast-default",
];
const CHAINS: [&str; 4] = ["nested-spin", "tail-spin", "nested-default", "tail-default"];
/// Of messages that nobody makes or looks at.
const BACK: [&str; 2] = ["handfast-spin", "handfast-default"];
const PACKET_CHAINS: [&str; 2] = ["tail-default", "memory-default"];
const TRANSPORTS: [&str; 6] = [
    "handfast-default",
    "pipe",
    "udp",
    "tcp-nagle",
    "tcp",
    "unix-stream",
];

/// Without UDP, which loses what comes too fast.
const STREAMS: [&str; 5] = [
    "handfast-default",
    "pipe",
    "tcp-nagle",
    "tcp",
    "unix-stream",
];

/// One payload of one part, measured in all its systems.
struct Group {
    part: Part,
    plan: Plan,
    systems: Vec<Box<dyn Runnable>>,
}

/// A part of what the paper measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Messages that are answered by an empty reply.
    OneWay,
    /// Messages that come back.
    Echo,
    /// The same, of bytes that nobody makes or looks at, as those of [`Self::OneWay`].
    Back,
    /// Calls through several processes.
    Chain,
    /// Packets that go on through several processes.
    Packets,
    /// Its Table 1: the kernel's ways.
    Table1,
    /// Its Figure 6: messages one way. handfast's are acknowledged by an empty reply each, the kernel's by nothing.
    Throughput,
}

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let parts = [
        Part::OneWay,
        Part::Echo,
        Part::Chain,
        Part::Packets,
        Part::Table1,
    ];
    let placement = run.best_placement();
    Ok(measure_parts(run, &parts, placement)?.rows())
}

/// Runs these parts of it, there.
///
/// # Errors
/// Where nothing can be measured.
pub fn measure_parts(run: &mut Run, parts: &[Part], placement: Placement) -> io::Result<Board> {
    let timing = run.timing(Timing::ms(2, 5), Timing::ms(8, 30));
    let mut groups = groups(run, placement);
    groups.retain(|group| parts.contains(&group.part));
    let turns: usize = groups.iter().map(|group| group.systems.len()).sum();
    run.expect(turns * run.rounds as usize);

    let mut board = Board::default();
    for _ in 0..run.rounds {
        for group in &groups {
            let mut turns = Vec::new();
            for system in &group.systems {
                if let Some(sample) = run.turn(system.as_ref(), &group.plan, timing) {
                    turns.push((system.as_ref(), Reading::of(&sample)));
                }
            }
            for (system, reading) in compared(group.part, &turns) {
                let system = system.named();
                if run.wants(system.name()) {
                    let key = Key {
                        case: case(group, system.key()),
                        system: system.name(),
                        payload_bytes: Some(group.plan.payload_bytes),
                        clients: None,
                    };
                    board.add(key, reading);
                }
            }
        }
    }
    run.notes.push(
        "ratio: one-way: p50 / p50 of `limit`; echo: of `limit` in place; nested, tail: of nested; packet: of bytes; table1: ops/s / the best \
         ops/s of the kernel's. to copy: p50 / p50 of `copy`."
            .to_owned(),
    );
    Ok(board)
}

fn groups(run: &mut Run, placement: Placement) -> Vec<Group> {
    let base = Plan {
        pause: run.choose_pause(),
        placement,
        ..Plan::echo()
    };
    let mut groups = Vec::new();
    let mut add = |run: &Run, part, task, payload: u32, servers| {
        let plan = Plan {
            task,
            payload_bytes: payload as usize,
            servers,
            ..base.clone()
        };
        let systems = systems_of(run, part, &plan);
        groups.push(Group {
            part,
            plan,
            systems,
        });
    };
    for payload in run.payloads(&MOVED) {
        add(run, Part::OneWay, Task::OneWay, payload, 1);
    }
    for payload in run.whole_payloads(&MOVED) {
        add(run, Part::Echo, Task::Return, payload, 1);
    }
    for payload in run.payloads(&MOVED) {
        add(run, Part::Back, Task::Echo, payload, 1);
    }
    for servers in [2, 3] {
        for payload in run.payloads(&CHAINED) {
            add(run, Part::Chain, Task::OneWay, payload, servers);
        }
    }
    for payload in run.payloads(&PACKETS) {
        add(run, Part::Packets, Task::OneWay, payload, 3);
    }
    for payload in run.payloads(&TABLE1) {
        add(run, Part::Table1, Task::Echo, payload, 1);
        add(run, Part::Throughput, Task::OneWay, payload, 1);
    }
    groups
}

/// The systems of a part that `--only` asks for, and those they are compared with.
fn systems_of(run: &Run, part: Part, plan: &Plan) -> Vec<Box<dyn Runnable>> {
    let keys = match part {
        Part::OneWay => &ONE_WAY[..],
        Part::Echo => &ECHO,
        Part::Back => &BACK,
        Part::Chain => &CHAINS,
        Part::Packets => &PACKET_CHAINS,
        Part::Table1 => &TRANSPORTS,
        Part::Throughput => &STREAMS,
    };
    let is_wanted = |system: &dyn Runnable| {
        let system = system.named();
        let is_asked = match (part, system.key()) {
            // Nothing to leave in place.
            (_, "limit-in-place") => plan.payload_bytes > 0,
            (_, "limit" | "copy") | (Part::Table1 | Part::Throughput, _) => true,
            _ => run.wants(system.name()),
        };
        is_asked && !(plan.placement.same_core() && system.waits() == Waits::Spins)
    };
    let systems = keys.iter().filter_map(|key| systems::find(key));
    systems
        .filter(|system| is_wanted(system.as_ref()))
        .collect()
}

fn case(group: &Group, key: &str) -> String {
    match group.part {
        Part::OneWay => "one-way".to_owned(),
        Part::Echo => "echo".to_owned(),
        Part::Back => "back".to_owned(),
        Part::Table1 => "table1".to_owned(),
        Part::Throughput => "throughput".to_owned(),
        Part::Chain => format!("{}-{}", way(key), group.plan.servers),
        Part::Packets if key == "tail-default" => format!("packet-bytes-{}", group.plan.servers),
        Part::Packets => format!("packet-memory-{}", group.plan.servers),
    }
}

/// `nested` of `nested-spin`.
fn way(key: &str) -> &str {
    key.split('-').next().unwrap_or(key)
}

/// Gives each reading of one group and round its ratios.
fn compared<'a>(
    part: Part,
    turns: &[(&'a dyn Runnable, Reading)],
) -> Vec<(&'a dyn Runnable, Reading)> {
    let p50_of = |is_it: &dyn Fn(&str, &str) -> bool| {
        let mut turns = turns.iter();
        let turn = turns.find(|(system, _)| is_it(system.named().key(), system.named().name()));
        turn.and_then(|(_, reading)| reading.p50_ns)
    };
    let copy = p50_of(&|key, _| key == "copy");
    let limit = p50_of(&|_, name| name == "limit");
    let kernel = turns.iter().filter_map(|(system, reading)| {
        let is_kernel = system.named().waits() == Waits::Blocks;
        reading.ops_per_s.filter(|_| is_kernel)
    });
    let kernel = kernel.reduce(f64::max);
    let with_ratios = |(system, reading): &(&'a dyn Runnable, Reading)| {
        let name = system.named().name();
        let nested = || p50_of(&|key, other| way(key) == "nested" && other == name);
        let ratio_to_limit = match part {
            Part::OneWay | Part::Echo | Part::Back => ratio(reading.p50_ns, limit),
            Part::Chain => ratio(reading.p50_ns, nested()),
            Part::Packets => ratio(reading.p50_ns, p50_of(&|key, _| key == "tail-default")),
            Part::Table1 | Part::Throughput => ratio(reading.ops_per_s, kernel),
        };
        let reading = Reading {
            ratio_to_limit,
            ratio_to_copy: ratio(reading.p50_ns, copy),
            ..*reading
        };
        (*system, reading)
    };
    turns.iter().map(with_ratios).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(part: Part, turns: &[(&str, f64)]) -> Vec<(Option<f64>, Option<f64>)> {
        let systems: Vec<_> = turns
            .iter()
            .map(|(key, p50_ns)| (systems::find(key).unwrap(), *p50_ns))
            .collect();
        let turns: Vec<_> = systems
            .iter()
            .map(|(system, p50_ns)| {
                let reading = Reading {
                    p50_ns: Some(*p50_ns),
                    ops_per_s: Some(1e9 / p50_ns),
                    ..Reading::default()
                };
                (system.as_ref(), reading)
            })
            .collect();
        let compared = compared(part, &turns).into_iter();
        compared
            .map(|(_, reading)| (reading.ratio_to_limit, reading.ratio_to_copy))
            .collect()
    }

    #[test]
    fn each_part_is_compared_with_its_own_limit() {
        let echo = [
            ("limit-in-place", 100.0),
            ("copy", 50.0),
            ("handfast-spin", 200.0),
        ];
        let expected = [(1.0, 2.0), (0.5, 1.0), (2.0, 4.0)];
        let some = |(limit, copy)| (Some(limit), Some(copy));
        assert_eq!(ratios(Part::Echo, &echo), expected.map(some));
        let chain = [
            ("nested-spin", 300.0),
            ("tail-spin", 150.0),
            ("nested-default", 600.0),
            ("tail-default", 150.0),
        ];
        let expected = [1.0, 0.5, 1.0, 0.25].map(|ratio| (Some(ratio), None));
        assert_eq!(ratios(Part::Chain, &chain), expected);
        let packets = [("tail-default", 800.0), ("memory-default", 200.0)];
        let expected = [1.0, 0.25].map(|ratio| (Some(ratio), None));
        assert_eq!(ratios(Part::Packets, &packets), expected);
        let table1 = [("handfast-default", 100.0), ("pipe", 800.0), ("tcp", 400.0)];
        let expected = [4.0, 0.5, 1.0].map(|ratio| (Some(ratio), None));
        assert_eq!(ratios(Part::Table1, &table1), expected);
        let one_way = [("limit", 50.0), ("handfast-default", 100.0)];
        assert_eq!(ratios(Part::OneWay, &one_way)[1], (Some(2.0), None));
    }
}
