//! Round trips of one client: of bytes that are sent back, and of payloads that stay where they are made.

use super::about;
use super::adapters::{Candidate, Candidates, Mode};
use super::rounds;
use super::rows::{self, Line};
use crate::claims::judge;
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind, Table};
use crate::rows::by_system;
use handfast_bench::Bench;
use handfast_bench::plan::{Placement, Plan, Task, Timing};
use handfast_bench::report::{Board, Row, time};
use handfast_bench::run::Run;
use std::io;

/// An experiment with one client.
pub(super) struct Latency {
    name: &'static str,
    title: &'static str,
    claim: &'static str,
    method: &'static str,
    note: &'static str,
    candidates: fn() -> Candidates,
    task: Task,
    payloads: &'static [usize],
    places: &'static [Place],
    rows: &'static [Compared],
}

/// Name, and what is said of it.
type Place = (&'static str, &'static str);
/// What, of ours, against which of the peers.
type Compared = (&'static str, &'static str, Option<Mode>);

const FREE: Place = ("free", "wherever the scheduler puts them");
const PINNED: Place = ("pinned", "server and client each on a CPU of its own");

pub(super) const ECHO: Latency = Latency {
    name: "latency",
    title: "Round trip of one client, against the peers",
    claim: "handfast is ahead of every peer at each size: its spinning pair of those that poll, its sleeping pair of those that \
         sleep, and its default of both.",
    method: "One client calls one server back to back with 24 B, 1 KiB and 64 KiB, where the scheduler puts them, and each \
         process pinned to a CPU of its own.",
    note: "Copies: handfast's server keeps the bytes of a request to itself before it looks at them; iceoryx2's reads them where \
         its client can still write, one copy fewer. Threads: ZeroMQ and nng have threads of their own beside the caller's, all of \
         a process on its one CPU where processes are pinned.",
    candidates: Candidates::echoing,
    task: Task::Echo,
    payloads: &[24, 1024, 65_536],
    places: &[FREE, PINNED],
    rows: &[
        ("busy", "handfast-spin", Some(Mode::Busy)),
        ("blocking", "handfast-block", Some(Mode::Blocking)),
        ("default against all", "handfast-default", None),
    ],
};

pub(super) const IN_PLACE: Latency = Latency {
    name: "in-place",
    title: "Payloads that stay where they are made, against iceoryx2",
    claim: "A payload that is made in place and read by the server comes over as fast with handfast's loans as with iceoryx2's.",
    method: "The client makes each payload where it is sent from, word by word, the server reads all of it and answers with the \
         sum of its words; 4 KiB, 64 KiB and 1 MiB, each process pinned to a CPU of its own.",
    note: "handfast's server copies each line out of the loan before it looks at it, since its client can still write there; \
         iceoryx2's reads it in place.",
    candidates: Candidates::in_place,
    task: Task::Consume,
    payloads: &[4096, 65_536, 1 << 20],
    places: &[PINNED],
    rows: &[
        ("busy", "handfast-spin", Some(Mode::Busy)),
        (
            "default against sleepers",
            "handfast-default",
            Some(Mode::Blocking),
        ),
        ("default against all", "handfast-default", None),
    ],
};

impl Experiment for Latency {
    fn about(&self) -> About {
        about(self.name, self.title, self.claim, self.method)
    }

    fn bench(&self) -> Bench {
        Bench::Rtt
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(5, 10), Timing::ms(15, 60));
        let mut cases = Vec::new();
        for (place, _) in self.places {
            let placement = match *place {
                "pinned" => run.best_placement(),
                _ => Placement::Free,
            };
            for payload_bytes in self.payloads {
                let plan = Plan {
                    task: self.task,
                    payload_bytes: *payload_bytes,
                    placement,
                    ..Plan::echo()
                };
                cases.push((*place, plan));
            }
        }
        let measured = rounds::measure(run, (self.candidates)(), &cases, timing, run.rounds);
        let size = |row: &Row| row.payload_bytes.map(|len| len as f64);
        let figure = |(place, said): &Place| Figure {
            title: format!("Median round trip by size, {said}"),
            kind: Kind::Lines,
            x: Axis::log("payload", "bytes"),
            y: Axis::log("round trip", "us"),
            curves: by_system(&measured.board, place, size, |row| {
                row.p50_ns.map(|ns| ns / 1e3)
            })
            .into_iter()
            .chain(rounds::without(&measured.absent))
            .collect(),
        };
        let candidates = &measured.candidates;
        let lines = |board: &Board| self.lines(&board.rows(), candidates);
        let (verdict, reasons) = judge(&measured.board, |board| rows::parts(&lines(board)));
        let mut tables = vec![rows::table(&lines(&measured.board), time)];
        let found = measured.board.rows();
        let all = |place| self.all(&found, candidates, place);
        tables.extend(self.places.iter().map(all));
        Ok(Findings {
            measured: format!(
                "p50 and p99 of calls back to back; {}.",
                measured.candidates.versions
            ),
            verdict,
            reasons,
            figures: self.places.iter().map(figure).collect(),
            tables,
            notes: vec![self.note.to_owned(), rows::TRIED.to_owned()],
        })
    }
}

impl Latency {
    /// Each place, size and way of waiting.
    fn lines(&self, found: &[Row], candidates: &Candidates) -> Vec<Line> {
        let mut lines = Vec::new();
        for (place, _) in self.places {
            for len in self.payloads {
                let p50 = |name| Some((name, row(found, place, name, *len)?.p50_ns?));
                lines.extend(self.rows.iter().map(|(what, own, mode)| {
                    let peers = candidates.peers(*mode).filter_map(p50);
                    Line::of_times(format!("{len} B, {place}, {what}"), p50(own), peers)
                }));
            }
        }
        lines
    }

    /// Everybody's figures at one place.
    fn all(&self, found: &[Row], candidates: &Candidates, (place, said): &Place) -> Table {
        let mut columns = vec!["system".to_owned(), "waits".to_owned()];
        for len in self.payloads {
            columns.extend([format!("{len} B p50"), "p99".to_owned()]);
        }
        let cells = |one: &Candidate| {
            let mut cells = vec![one.name.to_owned(), one.mode.name().to_owned()];
            for len in self.payloads {
                let row = row(found, place, one.name, *len);
                let show = |value: Option<f64>| value.map_or_else(|| "absent".to_owned(), time);
                cells.push(show(row.and_then(|row| row.p50_ns)));
                cells.push(show(row.and_then(|row| row.p99_ns)));
            }
            cells
        };
        Table {
            title: format!("Round trips, {said}"),
            columns,
            rows: candidates.all.iter().map(cells).collect(),
        }
    }
}

fn row<'a>(found: &'a [Row], place: &str, name: &str, len: usize) -> Option<&'a Row> {
    let wanted = (place, name, Some(len));
    let mut rows = found.iter();
    rows.find(|row| (row.case.as_str(), row.system, row.payload_bytes) == wanted)
}
