//! Its runs of ttcp: messages in one direction, as fast as they go.

use super::{DEFAULT, NAMES, about, over_cheaper, pair, rounds, strategies};
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Task, Timing};
use handfast_bench::run::Run;
use std::io;

pub(super) struct Ttcp;

const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16_384, 65_536];
const QUICK: [usize; 3] = [64, 1024, 16_384];

impl Experiment for Ttcp {
    fn about(&self) -> About {
        about(
            "ttcp",
            "One-way streams by message size",
            "Streams in one direction show what single messages do (the paper gives no figure): spinning is ahead, blocking and \
             being notified behind it, and spin-block keeps up with spinning.",
            "As ttcp does, a sender sends messages one by one without a pause and a receiver takes each, each process on a CPU \
             of its own; a sender waits, by the same strategy, when the queue is full. Throughput counts what was received.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Stream
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(5, 25), Timing::ms(20, 100));
        let rounds = rounds(run, 2, 5);
        let sizes = if run.args.quick { &QUICK[..] } else { &SIZES };
        let strategies = strategies("ttcp");
        run.expect(rounds as usize * sizes.len() * strategies.len());
        let (mut mb, mut cpu_ns) = (Series::default(), Series::default());
        for _ in 0..rounds {
            for len in sizes {
                let plan = Plan {
                    task: Task::Stream,
                    payload_bytes: *len,
                    ..pair(run)
                };
                for (name, system) in &strategies {
                    if let Some(sample) = run.turn(system.as_ref(), &plan, timing) {
                        mb.add(name, *len as f64, sample.per_second() * *len as f64 / 1e6);
                        cpu_ns.add(name, *len as f64, sample.cpu_per_call_ns());
                    }
                }
            }
        }
        let sizes: Vec<f64> = sizes.iter().map(|len| *len as f64).collect();
        let (verdict, reasons) = judge(&mb, |mb| claims(mb, &sizes));
        let figure = |title: &str, y, series: &Series| Figure {
            title: title.to_owned(),
            kind: Kind::Lines,
            x: Axis::log("message", "bytes"),
            y,
            curves: series.curves(&NAMES),
        };
        Ok(Findings {
            measured: "handfast's seven strategies and its default, messages sent and received one by one.".to_owned(),
            verdict,
            reasons,
            figures: vec![
                figure("Throughput by message size", Axis::log("throughput", "MB/s"), &mb),
                figure("CPU time of a message, both sides", Axis::log("CPU time", "ns"), &cpu_ns),
                figure(
                    "CPU time of a message over that of an offline optimum",
                    Axis::log("ratio", ""),
                    &over_cheaper(&cpu_ns, &sizes),
                ),
            ],
            tables: Vec::new(),
            notes: vec![
                "The optimum is what the cheaper of spin and block costs at the same size.".to_owned(),
            ],
        })
    }
}

fn claims(mb: &Series, sizes: &[f64]) -> Vec<Part> {
    // The least over all sizes.
    let least = |one: &str, other: &str| {
        let ratio = |len: &f64| Some((mb.at(one, *len)? / mb.at(other, *len)?, *len));
        let ratios = sizes.iter().filter_map(ratio);
        ratios.reduce(|one, other| if one.0 <= other.0 { one } else { other })
    };
    let mut parts = Vec::new();
    for (one, other, limit) in [
        ("spin", "block", 1.0),
        ("spin", "notify", 1.0),
        ("spin-block", "spin", 0.9),
        ("spin-block", "block", 1.0),
    ] {
        parts.push(match least(one, other) {
            Some((ratio, len)) => {
                let what = format!("throughput of {one} / of {other} (at {len:.0} B, its least)");
                Part::at_least(&what, Some(ratio), limit)
            }
            None => Part::missing(one),
        });
    }
    if let Some((ratio, len)) = least(DEFAULT, "spin") {
        let what = format!("throughput of handfast's default / of spin (at {len:.0} B, its least)");
        parts.push(Part::at_least(&what, Some(ratio), 0.9));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    #[test]
    fn the_worst_size_decides() {
        let mut mb = Series::default();
        for (name, small, large) in [
            ("spin", 100.0, 1000.0),
            ("block", 10.0, 900.0),
            ("notify", 5.0, 800.0),
            ("spin-block", 99.0, 990.0),
            (DEFAULT, 98.0, 990.0),
        ] {
            mb.add(name, 64.0, small);
            mb.add(name, 4096.0, large);
        }
        let sizes = [64.0, 4096.0];
        assert_eq!(weigh(&claims(&mb, &sizes)).0, Verdict::Holds);
        mb.add("block", 64.0, 1000.0);
        assert_eq!(weigh(&claims(&mb, &sizes)).0, Verdict::Partly);
    }
}
