//! Many clients at one server.

use super::about;
use super::adapters::{Candidate, Candidates};
use super::rounds;
use super::rows::{self, Line};
use crate::claims::judge;
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind, Table};
use crate::rows::by_system;
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::report::{Board, Row, count};
use handfast_bench::run::Run;
use std::io;

pub(super) struct Throughput;

const CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK: [usize; 3] = [1, 4, 64];
const ROUNDS: u32 = 5;

impl Experiment for Throughput {
    fn about(&self) -> About {
        about(
            "throughput",
            "Calls per second with 1 to 64 clients, against the peers",
            "handfast's default server answers more calls than any peer's, whatever the number of clients.",
            "1 to 64 clients call one server back to back with 24 B, not pinned.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Scale
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(10, 50), Timing::ms(100, 300));
        let clients = if run.args.quick { &QUICK[..] } else { &CLIENTS };
        let plan = |clients: &usize| Plan {
            clients: *clients,
            ..Plan::echo()
        };
        let cases: Vec<_> = clients
            .iter()
            .map(|clients| (CASE, plan(clients)))
            .collect();
        let rounds = run.rounds.min(if run.args.quick { 1 } else { ROUNDS });
        let measured = rounds::measure(run, Candidates::echoing(), &cases, timing, rounds);
        let count_of = |row: &Row| row.clients.map(|clients| clients as f64);
        let figure = |title: &str, y: Axis, field: fn(&Row) -> Option<f64>| Figure {
            title: title.to_owned(),
            kind: Kind::Lines,
            x: Axis::log("clients", ""),
            y,
            curves: by_system(&measured.board, CASE, count_of, field)
                .into_iter()
                .chain(rounds::without(&measured.absent))
                .collect(),
        };
        let rate = figure(
            "Calls per second by number of clients",
            Axis::log("calls", "1/s"),
            |row| row.ops_per_s,
        );
        let cost = figure(
            "CPU time for a call, of all processes",
            Axis::log("CPU", "us"),
            |row| row.cpu_ns_per_op.map(|ns| ns / 1e3),
        );
        let candidates = &measured.candidates;
        let lines = |board: &Board| lines(&board.rows(), candidates, clients);
        let (verdict, reasons) = judge(&measured.board, |board| rows::parts(&lines(board)));
        let found = measured.board.rows();
        Ok(Findings {
            measured: format!(
                "Calls per second of all clients together; {}.",
                measured.candidates.versions
            ),
            verdict,
            reasons,
            figures: vec![rate, cost],
            tables: vec![
                rows::table(&lines(&measured.board), count),
                all(&found, candidates, clients),
            ],
            notes: vec![rows::TRIED.to_owned()],
        })
    }
}

const CASE: &str = "clients";

fn rate(found: &[Row], name: &'static str, clients: usize) -> Option<(&'static str, f64)> {
    let is_it = |row: &&Row| (row.system, row.clients) == (name, Some(clients));
    let row = found.iter().find(is_it)?;
    Some((name, row.ops_per_s?))
}

fn lines(found: &[Row], candidates: &Candidates, clients: &[usize]) -> Vec<Line> {
    let line = |clients: &usize| {
        let own = rate(found, "handfast-default", *clients);
        let peers = candidates.peers(None);
        let peers = peers.filter_map(|name| rate(found, name, *clients));
        Line::of_rates(format!("{clients} clients"), own, peers)
    };
    clients.iter().map(line).collect()
}

fn all(found: &[Row], candidates: &Candidates, clients: &[usize]) -> Table {
    let cell = |name, clients| {
        rate(found, name, clients).map_or_else(|| "absent".to_owned(), |(_, rate)| count(rate))
    };
    let row = |one: &Candidate| {
        let start = [one.name.to_owned(), one.mode.name().to_owned()];
        start
            .into_iter()
            .chain(clients.iter().map(|clients| cell(one.name, *clients)))
            .collect()
    };
    let start = ["system".to_owned(), "waits".to_owned()];
    Table {
        title: "Calls per second by number of clients".to_owned(),
        columns: start
            .into_iter()
            .chain(clients.iter().map(usize::to_string))
            .collect(),
        rows: candidates.all.iter().map(row).collect(),
    }
}
