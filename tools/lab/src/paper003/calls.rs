//! Its Figures 3 to 6: calls and messages between processes, by payload.

use super::{KERNEL, OWN, about, figures, findings, mb, measure, size};
use crate::claims::Part;
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind};
use crate::rows;
use handfast_bench::report::Row;
use handfast_bench::run::Run;
use handfast_bench::{Bench, eros};
use std::io;

/// One way, against plain copy.
pub(super) struct Figure3;
/// One way and echo.
pub(super) struct Figure4;
/// Two hops: tail call and nested.
pub(super) struct Figure5;
/// Throughput against the kernel's transports.
pub(super) struct Figure6;

fn p50(row: &Row) -> Option<f64> {
    row.p50_ns
}

/// The median latency of a system at one payload.
fn p50_of(found: &[Row], case: &str, system: &str, len: usize) -> Option<f64> {
    rows::value(found, (case, system), len, p50)
}

fn by_payload(title: &str, y: Axis, curves: Vec<Curve>) -> Figure {
    Figure {
        title: title.to_owned(),
        kind: Kind::Lines,
        x: Axis::log("payload", "bytes"),
        y,
        curves,
    }
}

impl Experiment for Figure3 {
    fn about(&self) -> About {
        about(
            "figure-3",
            "One-way calls by payload, against plain copy",
            "A call costs a plain copy of its payload and a small constant: half again as much at 4 KiB, a third at 32 KiB, with \
             nearly the same slope.",
            "A client sends a payload that nobody looks at and gets an empty reply, on one CPU, as the paper had, and each process on a \
             CPU of its own; the copy moves the same bytes by memcpy within one process, from cache to cache. All take turns in each \
             round. The claim is judged on one CPU.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Eros
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let boards = measure(run, &[eros::Part::OneWay])?;
        let figures = figures(&boards, |found| {
            let curves = rows::by_system(found, "one-way", size, p50);
            by_payload("Time of a one-way call", Axis::log("median", "ns"), curves)
        });
        let measured = "handfast with its default strategy and spinning, a hand-written pair that leaves the payload in shared memory \
                        (limit), and memcpy.";
        Ok(findings(measured, (&boards, one_way), figures))
    }
}

fn one_way(found: &[Row]) -> Vec<Part> {
    let over = |len| {
        let (own, copy) = (
            p50_of(found, "one-way", OWN, len)?,
            p50_of(found, "one-way", "copy", len)?,
        );
        Some(own / copy - 1.0)
    };
    let slope = |system| {
        let at = |len| p50_of(found, "one-way", system, len);
        Some((at(65_536)? - at(4096)?) / (65_536.0 - 4096.0))
    };
    vec![
        constant_overhead("4 KiB", over(4096), 0.508),
        constant_overhead("32 KiB", over(32_768), 0.332),
        match (slope(OWN), slope("copy")) {
            (Some(own), Some(copy)) => Part::new(
                own <= 1.5 * copy,
                format!(
                    "beyond 4 KiB a KiB costs {:.1} ns against {:.1} ns",
                    own * 1024.0,
                    copy * 1024.0
                ),
            ),
            _ => Part::missing("slopes"),
        },
    ]
}

/// Whether a call costs no larger a part more than a copy than the paper's does.
fn constant_overhead(at: &str, over: Option<f64>, paper: f64) -> Part {
    match over {
        Some(over) => Part::new(
            over <= paper,
            format!(
                "at {at} a call takes {:.0} % more than a copy (paper: {:.0} %)",
                over * 100.0,
                paper * 100.0
            ),
        ),
        None => Part::missing(at),
    }
}

impl Experiment for Figure4 {
    fn about(&self) -> About {
        about(
            "figure-4",
            "One way against echo, by payload",
            "Though it moves twice the data, an echo of a small payload takes no longer than a one-way call: its destination is \
             in the cache already.",
            "One way: a payload there, and an empty reply. Echo: the same payload back. Nobody makes or looks at the bytes, in either. \
             Median round trips, on one CPU, as the paper had, and each process on a CPU of its own. The claim is judged on one CPU.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Eros
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let boards = measure(run, &[eros::Part::OneWay, eros::Part::Back])?;
        let figures = figures(&boards, |found| {
            let mut curves = Vec::new();
            for (case, name) in [("one-way", "one way"), ("back", "echo")] {
                for mut curve in rows::by_system(found, case, size, p50) {
                    curve.name = format!("{name}, {}", curve.name);
                    curves.push(curve);
                }
            }
            by_payload("Round trip by payload", Axis::log("median", "ns"), curves)
        });
        let measured = "handfast with its default strategy and spinning; one way, a hand-written pair (limit) and memcpy, too.";
        Ok(findings(measured, (&boards, echo), figures))
    }
}

fn echo(found: &[Row]) -> Vec<Part> {
    let ratio = |len| Some(p50_of(found, "back", OWN, len)? / p50_of(found, "one-way", OWN, len)?);
    let part = |(len, at)| match ratio(len) {
        Some(ratio) => Part::new(
            ratio <= 1.05,
            format!("at {at} an echo takes {ratio:.2} times what a one-way call takes"),
        ),
        None => Part::missing(at),
    };
    [(64, "64 B"), (256, "256 B"), (1024, "1 KiB")]
        .map(part)
        .into()
}

impl Experiment for Figure5 {
    fn about(&self) -> About {
        about(
            "figure-5",
            "Calls through two processes: tail call against nested",
            "Where the process in the middle passes the call on instead of calling, a null call takes a quarter less time, and \
             payloads to 2 KiB still some 5 % less.",
            "A client calls a server, which hands the call to a second one; nested, the first waits and replies, with a tail \
             call the second replies straight to the client. Replies are empty. All processes are on one CPU, as the paper had; and \
             each has a CPU of its own, as far as there are any. Both ways take turns in each round. The claim is judged on one CPU.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Eros
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        if run.args.quick {
            // Up to four processes are started for each turn.
            run.rounds = run.rounds.min(2);
        }
        let boards = measure(run, &[eros::Part::Chain])?;
        let figures = figures(&boards, |found| {
            let mut curves = Vec::new();
            for case in ["nested-2", "tail-2", "nested-3", "tail-3"] {
                for mut curve in rows::by_system(found, case, size, p50) {
                    curve.name = format!("{case}, {}", curve.name);
                    curves.push(curve);
                }
            }
            let title = "Time of a call through several processes";
            Figure {
                // A null call has its place, too.
                x: Axis::linear("payload", "bytes"),
                ..by_payload(title, Axis::log("median", "ns"), curves)
            }
        });
        let measured =
            "handfast with its default strategy and spinning, two servers in a chain, and three.";
        Ok(findings(measured, (&boards, chain), figures))
    }
}

fn chain(found: &[Row]) -> Vec<Part> {
    let saved = |len| {
        let (tail, nested) = (
            p50_of(found, "tail-2", OWN, len)?,
            p50_of(found, "nested-2", OWN, len)?,
        );
        Some(1.0 - tail / nested)
    };
    let part = |(len, paper)| saves(len, saved(len), paper);
    [(0, 0.2525), (1024, 0.049)].map(part).into()
}

fn saves(len: usize, saved: Option<f64>, paper: f64) -> Part {
    match saved {
        Some(saved) => Part::new(
            saved >= paper,
            format!(
                "a tail call of {len} B saves {:.0} % (paper: {:.0} %)",
                saved * 100.0,
                paper * 100.0
            ),
        ),
        None => Part::missing(&format!("{len} B")),
    }
}

impl Experiment for Figure6 {
    fn about(&self) -> About {
        about(
            "figure-6",
            "Throughput by payload, against the kernel's streams",
            "Messages that are each acknowledged have twice the throughput of the kernel's pipe and four times that of its \
             sockets, at every size; it peaks at 4 KiB and keeps up while the source fits the cache.",
            "handfast: a payload there and an empty reply, one call after the other. The kernel's: one write after the other, \
             as ttcp does, read in pieces of the same size, with no acknowledgement. On one CPU, as the paper had, and each process \
             on a CPU of its own; all take turns in each round. The claim is judged on one CPU.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Eros
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let boards = measure(run, &[eros::Part::Throughput])?;
        let figures = figures(&boards, |found| {
            let mut curves = rows::by_system(found, "throughput", size, mb);
            curves.push(Curve {
                name: "udp".to_owned(),
                absent: Some(
                    "it loses what comes faster than it is read; Table 1 has its echoes".to_owned(),
                ),
                points: Vec::new(),
            });
            let y = Axis::log("throughput", "MB/s");
            by_payload("Throughput by payload", y, curves)
        });
        let measured = "handfast with its default strategy; pipe, TCP with and without TCP_NODELAY, unix stream sockets.";
        Ok(findings(measured, (&boards, streams), figures))
    }
}

fn streams(found: &[Row]) -> Vec<Part> {
    let of = |system: &str, len| rows::value(found, ("throughput", system), len, mb);
    let least = |others: &[&str]| {
        let ratio = |len: &u32| {
            let len = *len as usize;
            let best = others
                .iter()
                .filter_map(|system| of(system, len))
                .reduce(f64::max)?;
            Some((of(OWN, len)? / best, len))
        };
        let ratios = eros::TABLE1.iter().filter_map(ratio);
        ratios.reduce(|one, two| if one.0 <= two.0 { one } else { two })
    };
    let sockets: Vec<&str> = KERNEL.into_iter().filter(|name| *name != "pipe").collect();
    vec![
        ahead("pipe", least(&["pipe"]), 2.0),
        ahead("sockets", least(&sockets), 4.0),
        match (of(OWN, 32_768), of(OWN, 4096)) {
            (Some(large), Some(page)) => Part::new(
                large <= page * 1.1,
                format!(
                    "32 KiB have {:.2} times the throughput of 4 KiB",
                    large / page
                ),
            )
            .unless("caches are larger, and what a call takes beside its bytes is spread over more of them"),
            _ => Part::missing("the peak"),
        },
    ]
}

/// Whether handfast has so many times the throughput of `who`, at the size where it is least.
fn ahead(who: &str, least: Option<(f64, usize)>, paper: f64) -> Part {
    match least {
        Some((ratio, len)) => Part::new(
            ratio >= paper,
            format!(
                "at least {ratio:.1} times the throughput of {who} (at {len} B; paper: {paper:.0})"
            ),
        )
        .unless(
            "the kernel's writer does not wait for anything, what it writes gathers in a buffer",
        ),
        None => Part::missing(who),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_held_against_the_papers_numbers() {
        assert_eq!(
            constant_overhead("4 KiB", Some(0.4), 0.508).holds,
            Some(true)
        );
        assert_eq!(
            constant_overhead("4 KiB", Some(9.0), 0.508).holds,
            Some(false)
        );
        assert_eq!(constant_overhead("4 KiB", None, 0.508).holds, None);
        assert_eq!(saves(0, Some(0.3), 0.25).holds, Some(true));
        assert_eq!(saves(0, Some(-0.1), 0.25).holds, Some(false));
        assert_eq!(ahead("pipe", Some((2.5, 16)), 2.0).holds, Some(true));
        assert_eq!(ahead("pipe", Some((1.5, 16)), 2.0).holds, Some(false));
    }
}
