//! `sockets`: the round trip of one connection, by payload, on two CPUs, on one, and where the scheduler places the processes.

use crate::plan::{Placement, Plan, Timing};
use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use crate::stats::ratio;
use crate::systems;
use std::io;

const PAYLOADS: [u32; 4] = [64, 1024, 16_384, 65_536];
const SYSTEMS: [&str; 3] = ["tcp", "unix-stream", "handfast-stream"];

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let timing = run.timing(Timing::ms(2, 5), Timing::ms(8, 30));
    let payloads = run.payloads(&PAYLOADS);
    let mut cases = vec![("same-core", run.same_core()), ("free", Placement::Free)];
    match run.cross_core() {
        Some(placement) => cases.insert(0, ("cross-core", placement)),
        None => run.warn("one CPU: no cross-core rows".to_owned()),
    }
    let systems: Vec<_> = SYSTEMS.into_iter().filter_map(systems::find).collect();
    run.expect(run.rounds as usize * cases.len() * payloads.len() * systems.len());
    let mut board = Board::default();
    for _ in 0..run.rounds {
        for (case, placement) in &cases {
            for payload in &payloads {
                let plan = Plan {
                    payload_bytes: *payload as usize,
                    placement: *placement,
                    ..Plan::echo()
                };
                let mut tcp_ns = None;
                for system in &systems {
                    let Some(sample) = run.turn(system.as_ref(), &plan, timing) else {
                        continue;
                    };
                    let reading = Reading::of(&sample);
                    let name = system.named().name();
                    tcp_ns = tcp_ns.or(reading.p50_ns.filter(|_| name == SYSTEMS[0]));
                    if run.wants(name) {
                        let key = Key {
                            case: (*case).to_owned(),
                            system: name,
                            payload_bytes: Some(plan.payload_bytes),
                            clients: None,
                        };
                        let reading = Reading {
                            ratio_to_limit: ratio(reading.p50_ns, tcp_ns),
                            ..reading
                        };
                        board.add(key, reading);
                    }
                }
            }
        }
    }
    run.notes
        .push("ratio: p50 / p50 of `tcp`, of the same round.".to_owned());
    Ok(board.rows())
}
