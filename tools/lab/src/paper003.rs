//! "The Measured Performance of a Fast Local IPC" (paper 003).

mod calls;
mod moves;

use crate::claims::{Part, judge, weigh};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::rows;
use handfast_bench::plan::Placement;
use handfast_bench::report::{Board, Row};
use handfast_bench::run::Run;
use handfast_bench::{Bench, eros};
use std::io;

pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(moves::Figure2),
        Box::new(calls::Figure3),
        Box::new(calls::Figure4),
        Box::new(calls::Figure5),
        Box::new(calls::Figure6),
        Box::new(Table1),
    ]
}

/// Where the processes run, and what that is called. One CPU first: that is what the paper had, and where claims are judged.
fn places(run: &Run) -> Vec<(&'static str, Placement)> {
    let (one, each) = (run.same_core(), run.best_placement());
    let mut places = vec![("one CPU", one)];
    if one != each {
        places.push(("a CPU each", each));
    }
    places
}

/// These parts of the benchmark, in each place.
fn measure(run: &mut Run, parts: &[eros::Part]) -> io::Result<Vec<(&'static str, Board)>> {
    let mut boards = Vec::new();
    for (name, placement) in places(run) {
        boards.push((name, eros::measure_parts(run, parts, placement)?));
    }
    Ok(boards)
}

/// Bounds the time of experiments with many sizes: a quick run measures these alone, a full one fewer rounds of all.
fn shorten(run: &mut Run, sizes: &[u32]) {
    if run.args.quick {
        run.args.payloads = sizes.to_vec();
    }
    run.rounds = run.rounds.min(ROUNDS);
}

/// With these an experiment of twelve sizes takes some three minutes.
const ROUNDS: u32 = 9;

/// Of the sizes of its Table 1, those that claims are about.
const FEW: [u32; 3] = [16, 4096, 32_768];

/// A figure of each place.
fn figures(boards: &[(&'static str, Board)], figure: impl Fn(&Board) -> Figure) -> Vec<Figure> {
    let figure = |(place, board): &(&str, Board)| {
        let figure = figure(board);
        Figure {
            title: format!("{}, {place}", figure.title),
            ..figure
        }
    };
    boards.iter().map(figure).collect()
}

/// The findings, with the claims about the rows of one CPU.
fn findings(
    measured: &str,
    (boards, claims): (&[(&'static str, Board)], impl Fn(&[Row]) -> Vec<Part>),
    figures: Vec<Figure>,
) -> Findings {
    let judged = boards
        .first()
        .map(|(_, board)| judge(board, |board| claims(&board.rows())));
    let (verdict, reasons) = judged.unwrap_or_else(|| weigh(&[]));
    Findings {
        measured: measured.to_owned(),
        verdict,
        reasons,
        figures,
        tables: Vec::new(),
        notes: Vec::new(),
    }
}

fn size(row: &Row) -> Option<f64> {
    row.payload_bytes.map(|len| len as f64)
}

/// Megabytes in a second.
fn mb(row: &Row) -> Option<f64> {
    Some(row.ops_per_s? * row.payload_bytes? as f64 / 1e6)
}

fn about(name: &str, title: &str, claim: &str, method: &str) -> About {
    About {
        name: format!("003-{name}"),
        paper: Some("003".to_owned()),
        title: title.to_owned(),
        claim: claim.to_owned(),
        method: method.to_owned(),
    }
}

/// Its Table 1: the throughput of the system's own IPC and of the kernel's transports.
struct Table1;

const OWN: &str = "handfast-default";
const KERNEL: [&str; 5] = ["pipe", "udp", "tcp-nagle", "tcp", "unix-stream"];

impl Experiment for Table1 {
    fn about(&self) -> About {
        about(
            "table-1",
            "Bandwidth by message size: local IPC against the kernel's transports",
            "The fast local IPC, each message answered by an empty reply, is ahead of pipe, UDP and TCP one way at every size: fourfold \
             of a pipe at 16 bytes, 2.3 times at 4 KiB, twofold at 32 KiB.",
            "One client and one server exchange messages of the paper's twelve sizes, 16 B to 32 KiB, on one CPU, as the paper had, and each on a CPU of its own. \
             handfast: a payload there and an empty reply, one call after the other. The kernel's: one write after the other, as ttcp \
             does. UDP loses what comes faster than it is read, so that its echoes are measured, beside those of all others. All \
             systems take turns in each round. The claim is judged on one CPU.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Eros
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        shorten(run, &FEW);
        let boards = measure(run, &[eros::Part::Throughput, eros::Part::Table1])?;
        let figure = |case: &'static str, title: &'static str| {
            move |found: &Board| Figure {
                title: title.to_owned(),
                kind: Kind::Lines,
                x: Axis::log("message", "bytes"),
                y: Axis::log("throughput", "MB/s"),
                curves: rows::by_system(found, case, size, mb),
            }
        };
        let mut all = figures(&boards, figure("throughput", "Bandwidth one way"));
        all.extend(figures(&boards, figure("table1", "Bandwidth of echoes")));
        let measured = "handfast (default strategy), pipe, UDP, TCP with and without TCP_NODELAY, unix stream sockets.";
        Ok(findings(measured, (&boards, claims), all))
    }
}

fn claims(found: &[Row]) -> Vec<Part> {
    let over = |other: &str, len| {
        let of = |system| rows::value(found, ("throughput", system), len, mb);
        Some(of(OWN)? / of(other)?)
    };
    let pipe = [(16, 4.0), (4096, 2.3), (32_768, 2.0)];
    let pipe = pipe.map(|(len, paper)| {
        let what = format!("times a pipe, at {len} B");
        Part::at_least(&what, over("pipe", len), paper)
    });
    let tcp = eros::TABLE1.map(|len| over("tcp", len as usize));
    let tcp = tcp.into_iter().flatten().reduce(f64::min);
    let mut parts: Vec<Part> = pipe.into();
    parts.push(Part::at_least(
        "times TCP, at the size where that is least",
        tcp,
        1.0,
    ));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_held_against_the_papers_if_it_can_be() {
        let holds = |ratio| Part::at_least("times a pipe", ratio, 2.3).holds;
        assert_eq!(holds(Some(2.3)), Some(true));
        assert_eq!(holds(Some(1.4)), Some(false));
        assert_eq!(holds(Some(18_000.0)), None);
        assert_eq!(holds(None), None);
    }
}
