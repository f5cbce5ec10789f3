//! "The Measured Performance of a Fast Local IPC" (paper 003).

mod calls;
mod moves;

use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind, Verdict};
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
        let rows = eros::measure_parts(run, &[eros::Part::Table1])?;
        let size = |row: &Row| row.payload_bytes.map(|len| len as f64);
        let figure = Figure {
            title: "Echoes per second by message size".to_owned(),
            kind: Kind::Lines,
            x: Axis::log("message", "bytes"),
            y: Axis::log("echoes", "1/s"),
            curves: rows::by_system(&rows, "table1", size, |row| row.ops_per_s),
        };
        let ahead = |len| {
            let per_s = |system| rows::value(&rows, ("table1", system), len, |row| row.ops_per_s);
            let best = KERNEL.into_iter().filter_map(per_s).reduce(f64::max)?;
            Some(per_s("handfast-default")? / best)
        };
        let ratios: Vec<(usize, f64)> = eros::TABLE1
            .iter()
            .filter_map(|len| Some((*len as usize, ahead(*len as usize)?)))
            .collect();
        let is_ahead = !ratios.is_empty() && ratios.iter().all(|(_, ratio)| *ratio > 1.0);
        let at = |len| ahead(len).unwrap_or(0.0);
        let verdict = match (is_ahead, at(16) >= 4.0 && at(32_768) >= 2.0) {
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Partly,
            _ => Verdict::Fails,
        };
        let list: Vec<_> = ratios
            .iter()
            .map(|(len, ratio)| format!("{ratio:.1} at {len} B"))
            .collect();
        Ok(Findings {
            measured: "handfast (default strategy), pipe, UDP, TCP with and without TCP_NODELAY, unix stream sockets.".to_owned(),
            verdict,
            reasons: format!("times the best of the kernel's: {}", list.join(", ")),
            figures: vec![figure],
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}
