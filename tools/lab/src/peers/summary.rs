//! Speed against CPU time, at three loads.

use super::about;
use super::adapters::{Candidate, Candidates};
use super::rounds::{self, labelled};
use super::rows::{self, Line};
use crate::claims::judge;
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind, Table};
use crate::rows::ranged;
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::report::{Board, Row, time};
use handfast_bench::run::Run;
use std::io;

pub(super) struct Summary;

/// The loads: name, what is said of it, clients, pause between calls.
const LOADS: [(&str, &str, usize, u64); 3] = [
    ("busy", "one client, back to back", 1, 0),
    (
        "paced",
        "one client that pauses 100 us between calls",
        1,
        100_000,
    ),
    ("crowd", "16 clients, back to back", 16, 0),
];
const ROUNDS: u32 = 9;

impl Experiment for Summary {
    fn about(&self) -> About {
        about(
            "summary",
            "Speed against CPU time, beside the peers",
            "At each load round trip times CPU time is least with handfast's default: a peer that answers sooner burns more than that is worth, and one that \
             burns less answers later.",
            "24 B calls at three loads: one busy client, one that sleeps 100 us between calls, and 16 busy ones; nobody pinned. CPU time is that of all \
             processes and all their threads, divided by the calls.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Rtt
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(10, 30), Timing::ms(50, 200));
        let cases = LOADS.map(|(load, _, clients, think_ns)| {
            let plan = Plan {
                clients,
                think_ns,
                ..Plan::echo()
            };
            (load, plan)
        });
        let rounds = run.rounds.min(ROUNDS);
        let measured = rounds::measure(run, Candidates::echoing(), &cases, timing, rounds);
        let figures = LOADS.map(|(load, said, ..)| Figure {
            title: format!("Round trip against CPU time for a call: {said}"),
            kind: Kind::Scatter,
            x: Axis::log("round trip (p50)", "us"),
            y: Axis::log("CPU for a call, all processes", "us"),
            curves: ranged(&measured.board, |board| points(&board.rows(), load))
                .into_iter()
                .chain(rounds::without(&measured.absent))
                .collect(),
        });
        let candidates = &measured.candidates;
        let parts = |board: &Board| rows::parts(&lines(&board.rows(), candidates));
        let (verdict, reasons) = judge(&measured.board, parts);
        Ok(Findings {
            measured: format!("p50 of the round trip and CPU time for a call; {}.", measured.candidates.versions),
            verdict,
            reasons: format!("by the product of both: {reasons}"),
            figures: figures.to_vec(),
            tables: vec![all(&measured.board.rows(), candidates)],
            notes: vec![
                "Rows of the verdict: round trip times CPU time for a call; who has less of the product is nearer to the corner where calls are \
                 both quick and cheap. A client that pauses sleeps by the clock, so all pay for that alike."
                    .to_owned(),
                rows::TRIED.to_owned(),
            ],
        })
    }
}

/// Round trip and CPU time of a row.
fn both(row: &Row) -> Option<(f64, f64)> {
    Some((row.p50_ns?, row.cpu_ns_per_op?))
}

/// A point for each system at a load.
fn points(found: &[Row], load: &str) -> Vec<Curve> {
    let rows = found.iter().filter(|row| row.case == load);
    let curve = |row: &Row| {
        let (p50, cpu) = both(row)?;
        let point = labelled(p50 / 1e3, cpu / 1e3, row.system);
        Some(Curve {
            points: vec![point],
            ..Curve::new(row.system, [])
        })
    };
    rows.filter_map(curve).collect()
}

fn found(rows: &[Row], load: &str, name: &str) -> Option<(f64, f64)> {
    let is_it = |row: &&Row| (row.case.as_str(), row.system) == (load, name);
    rows.iter().find(is_it).and_then(both)
}

fn lines(rows: &[Row], candidates: &Candidates) -> Vec<Line> {
    let line = |(load, ..): &(&str, &str, usize, u64)| {
        let product =
            |name: &'static str| found(rows, load, name).map(|(p50, cpu)| (name, p50 * cpu));
        let peers = candidates.peers(None);
        Line::of_times(
            (*load).to_owned(),
            product("handfast-default"),
            peers.filter_map(product),
        )
    };
    LOADS.iter().map(line).collect()
}

fn all(rows: &[Row], candidates: &Candidates) -> Table {
    let mut columns = vec!["system".to_owned(), "waits".to_owned()];
    columns.extend(
        LOADS
            .iter()
            .flat_map(|(load, ..)| [format!("{load} p50"), "CPU/call".to_owned()]),
    );
    let cells = |name| {
        LOADS.iter().flat_map(move |(load, ..)| {
            found(rows, load, name).map_or_else(
                || ["absent", "absent"].map(str::to_owned),
                |(p50, cpu)| [time(p50), time(cpu)],
            )
        })
    };
    let row = |one: &Candidate| {
        let start = [one.name.to_owned(), one.mode.name().to_owned()];
        start.into_iter().chain(cells(one.name)).collect()
    };
    Table {
        title: "Round trip and CPU time by load".to_owned(),
        columns,
        rows: candidates.all.iter().map(row).collect(),
    }
}
