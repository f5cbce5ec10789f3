//! Round trips of one client.

use super::about;
use super::adapters::{Mode, is_own};
use super::rounds::{self, Measured};
use super::rows::{self, Line};
use crate::bench::Bench;
use crate::bench::plan::{Placement, Plan, Timing};
use crate::bench::report::{Row, time};
use crate::bench::run::Run;
use crate::lab::experiments::{Experiment, Findings};
use crate::lab::result::{About, Axis, Figure, Kind, Table};
use crate::lab::rows::by_system;
use std::io;

pub(super) struct Latency;

const PAYLOADS: [usize; 3] = [24, 1024, 65_536];
const PLACES: [(&str, &str); 2] = [
    ("free", "wherever the scheduler puts them"),
    ("pinned", "server and client each on a CPU of its own"),
];

impl Experiment for Latency {
    fn about(&self) -> About {
        about(
            "latency",
            "Round trip of one client, against the peers",
            "handfast is ahead of every peer at each size: its spinning pair of those that poll, its sleeping pair of those that sleep, and its \
             default of both.",
            "One client calls one server back to back with 24 B, 1 KiB and 64 KiB, where the scheduler puts them, and each process pinned to a CPU of its own.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Rtt
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(5, 10), Timing::ms(15, 60));
        let mut cases = Vec::new();
        for (place, _) in PLACES {
            let placement = match (place, run.cross_core()) {
                ("pinned", None) => continue,
                ("pinned", Some(pinned)) => pinned,
                _ => Placement::Free,
            };
            cases.extend(PAYLOADS.map(|payload_bytes| {
                let plan = Plan {
                    payload_bytes,
                    placement,
                    ..Plan::echo()
                };
                (place, plan)
            }));
        }
        let measured = rounds::measure(run, &cases, timing, run.rounds);
        let size = |row: &Row| row.payload_bytes.map(|len| len as f64);
        let figure = |(place, said): (&str, &str)| Figure {
            title: format!("Median round trip by message size, {said}"),
            kind: Kind::Lines,
            x: Axis::log("message", "bytes"),
            y: Axis::log("round trip", "us"),
            curves: by_system(&measured.rows, place, size, |row| {
                row.p50_ns.map(|ns| ns / 1e3)
            })
            .into_iter()
            .chain(rounds::without(&measured.absent))
            .collect(),
        };
        let lines = lines(&measured);
        let (verdict, reasons) = rows::verdict(&lines);
        let mut tables = vec![rows::table(&lines, time)];
        tables.extend(PLACES.map(|place| all(&measured, place)));
        Ok(Findings {
            measured: format!("p50 and p99 of calls back to back; {}.", measured.versions),
            verdict,
            reasons,
            figures: PLACES.map(figure).to_vec(),
            tables,
            notes: vec![COPIES.to_owned()],
        })
    }
}

const COPIES: &str = "Copies: handfast's server keeps the bytes of a request to itself before it looks at them; iceoryx2's reads them where its \
     client can still write, one copy fewer. Threads: ZeroMQ, nng and gRPC have threads of their own beside the caller's, all of a process on its one CPU where \
     processes are pinned.";

/// Each place, size and way of waiting.
fn lines(measured: &Measured) -> Vec<Line> {
    let mut lines = Vec::new();
    for (place, _) in PLACES {
        for len in PAYLOADS {
            let p50 = |name: &'static str| {
                let is_it = |row: &&Row| {
                    (row.case.as_str(), row.system, row.payload_bytes) == (place, name, Some(len))
                };
                let row = measured.rows.iter().find(is_it)?;
                Some((name, row.p50_ns?))
            };
            let peers = |mode: Option<Mode>| {
                let peers = measured.candidates.iter().filter(move |one| {
                    !is_own(one.name) && mode.is_none_or(|mode| one.mode == mode)
                });
                peers
                    .filter_map(|one| p50(one.name))
                    .collect::<Vec<_>>()
                    .into_iter()
            };
            let rows = [
                ("busy", "handfast-spin", Some(Mode::Busy)),
                ("blocking", "handfast-block", Some(Mode::Blocking)),
                ("default against all", "handfast-default", None),
            ];
            lines.extend(rows.into_iter().filter_map(|(what, own, mode)| {
                Line::of_times(format!("{len} B, {place}, {what}"), p50(own), peers(mode))
            }));
        }
    }
    lines
}

/// Everybody's figures at one place.
fn all(measured: &Measured, (place, said): (&str, &str)) -> Table {
    let mut columns = vec!["system".to_owned(), "waits".to_owned()];
    for len in PAYLOADS {
        columns.extend([format!("{len} B p50"), "p99".to_owned()]);
    }
    let cells = |name: &'static str| {
        PAYLOADS.iter().flat_map(move |len| {
            let is_it = |row: &&Row| {
                (row.case.as_str(), row.system, row.payload_bytes) == (place, name, Some(*len))
            };
            let row = measured.rows.iter().find(is_it);
            let show = |value: Option<f64>| value.map_or_else(|| "absent".to_owned(), time);
            [
                show(row.and_then(|row| row.p50_ns)),
                show(row.and_then(|row| row.p99_ns)),
            ]
        })
    };
    let row = |one: &super::adapters::Candidate| {
        let start = [one.name.to_owned(), one.mode.name().to_owned()];
        start.into_iter().chain(cells(one.name)).collect()
    };
    Table {
        title: format!("Round trips, {said}"),
        columns,
        rows: measured.candidates.iter().map(row).collect(),
    }
}
