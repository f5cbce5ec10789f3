//! "The Measured Performance of a Fast Local IPC" (paper 003).

mod calls;
mod moves;

use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::rows;
use handfast_bench::report::Row;
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

fn about(name: &str, title: &str, claim: &str, method: &str) -> About {
    About {
        name: format!("003-{name}"),
        paper: Some("003".to_owned()),
        title: title.to_owned(),
        claim: claim.to_owned(),
        method: method.to_owned(),
    }
}

/// Its Table 1: echoes through the system's own IPC and through pipe, UDP and TCP.
struct Table1;

const KERNEL: [&str; 5] = ["pipe", "udp", "tcp-nagle", "tcp", "unix-stream"];

impl Experiment for Table1 {
    fn about(&self) -> About {
        about(
            "table-1",
            "Echoes per second: local IPC against the kernel's transports",
            "The fast local IPC is ahead of pipe, UDP and TCP at every size: fourfold at 16 bytes, twofold at 32 KiB.",
            "One client and one server, each pinned to a CPU of its own, exchange messages of 16 B to 32 KiB; all systems take turns \
             in each round, and a figure is the median of its rounds.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Eros
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let board = eros::measure_parts(run, &[eros::Part::Table1])?;
        let rows = board.rows();
        let size = |row: &Row| row.payload_bytes.map(|len| len as f64);
        let figure = Figure {
            title: "Echoes per second by message size".to_owned(),
            kind: Kind::Lines,
            x: Axis::log("message", "bytes"),
            y: Axis::log("echoes", "1/s"),
            curves: rows::by_system(&rows, "table1", size, |row| row.ops_per_s),
        };
        let (verdict, reasons) = judge(&board, |board| claims(&board.rows()));
        Ok(Findings {
            measured: "handfast (default strategy), pipe, UDP, TCP with and without TCP_NODELAY, unix stream sockets.".to_owned(),
            verdict,
            reasons,
            figures: vec![figure],
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}

/// How handfast does at each size, over the best of the kernel's.
fn claims(rows: &[Row]) -> Vec<Part> {
    let part = |len: &u32| {
        let len = *len as usize;
        let per_s = |system| rows::value(rows, ("table1", system), len, |row| row.ops_per_s);
        let best = KERNEL.into_iter().filter_map(per_s).reduce(f64::max);
        let ratio = per_s("handfast-default").zip(best);
        let ratio = ratio.map(|(own, best)| own / best);
        let least = match len {
            16 => 4.0,
            32_768 => 2.0,
            _ => 1.0,
        };
        let what = format!("times the best of the kernel's at {len} B");
        Part::at_least(&what, ratio, least)
    };
    eros::TABLE1.iter().map(part).collect()
}
