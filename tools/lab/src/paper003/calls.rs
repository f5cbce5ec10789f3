//! Its Figures 3 to 6: calls and messages between processes, by payload.

use super::{FEW, KERNEL, OWN, about, figures, findings, mb, measure, shorten, size};
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
        slopes(slope(OWN), slope("copy")),
    ]
}

/// Whether a call costs for each byte about as much as a copy, neither half as much again nor as much less.
fn slopes(own: Option<f64>, copy: Option<f64>) -> Part {
    let what = "beyond 4 KiB a byte costs, a call's / a copy's,";
    match own.zip(copy) {
        // More bytes for less time is a measurement that went wrong.
        Some((own, copy)) if own <= 0.0 || copy <= 0.0 => Part::senseless(what),
        slopes => Part::within(what, slopes.map(|(own, copy)| own / copy), (0.67, 1.5)),
    }
}

/// Whether a call costs no larger a part more than a copy than the paper's does. It cannot cost less than one, which is part of it.
fn constant_overhead(at: &str, over: Option<f64>, paper: f64) -> Part {
    match over {
        Some(over) if over < 0.0 => {
            Part::senseless(&format!("at {at} a call, over a copy of its payload"))
        }
        Some(over) => Part::new(
            over <= paper,
            format!(
                "at {at} a call takes {:.0} % more than a copy (to hold: 0 to {:.1} %)",
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
    [(64, "64 B"), (256, "256 B"), (1024, "1 KiB")]
        .map(|(len, at)| no_slower(at, ratio(len)))
        .into()
}

/// Whether an echo takes no longer than a one-way call. It moves twice the bytes, so half the time is a measurement that went wrong.
fn no_slower(at: &str, ratio: Option<f64>) -> Part {
    let what = format!("at {at} an echo / a one-way call takes");
    match ratio {
        Some(ratio) if ratio < 0.5 => Part::senseless(&what),
        _ => Part::within(&what, ratio, (0.5, 1.05)),
    }
}

impl Experiment for Figure5 {
    fn about(&self) -> About {
        about(
            "figure-5",
            "Calls through two processes: tail call against nested",
            "Where the process in the middle passes the call on instead of calling, a null call takes a quarter less time (25.25 %), one \
             of 512 B 9.34 % less, and payloads to 2 KiB still 4.9 % less; at 16 B a third more bytes go through (34.1 %).",
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
        shorten(run, &JUDGED);
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
    let saves = |(len, paper)| saves(len, saved(len), paper);
    let mut parts: Vec<Part> = [(0, 0.2525), (512, 0.0934), (2048, 0.049)]
        .map(saves)
        .into();
    let bytes = |case| rows::value(found, (case, OWN), 16, mb);
    let gained = bytes("tail-2").zip(bytes("nested-2"));
    parts.push(gains(gained.map(|(tail, nested)| tail / nested)));
    parts
}

/// Of the payloads of a chain, those that claims are about.
const JUDGED: [u32; 4] = [0, 16, 512, 2048];

/// Whether a tail call takes as many bytes through as the paper's. Twice or half as many cannot be, as with [`saves`].
fn gains(ratio: Option<f64>) -> Part {
    let what = "megabytes in a second of 16 B, tail call / nested";
    match ratio {
        Some(ratio) if !(0.5..=2.0).contains(&ratio) => Part::senseless(what),
        _ => Part::within(what, ratio, (1.341, 2.0)),
    }
}

/// Whether a tail call saves at least what the paper's does. Three of four messages are left, so neither half of the time nor twice
/// as much can be: a measurement that went wrong.
fn saves(len: usize, saved: Option<f64>, paper: f64) -> Part {
    let what = format!("{len} B");
    match saved {
        Some(saved) if !(-1.0..=0.5).contains(&saved) => Part::senseless(&what),
        Some(saved) => Part::new(
            saved >= paper,
            format!(
                "a tail call of {what} saves {:.1} % (to hold: {:.1} to 50 %)",
                saved * 100.0,
                paper * 100.0
            ),
        ),
        None => Part::missing(&what),
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
        shorten(run, &FEW);
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
        peak(of(OWN, 32_768), of(OWN, 4096)),
    ]
}

/// The paper's is 0.89. Within half and a tenth more than one.
fn peak(large: Option<f64>, page: Option<f64>) -> Part {
    let ratio = large.zip(page).map(|(large, page)| large / page);
    let what = "throughput of 32 KiB / of 4 KiB";
    Part::within(what, ratio, (0.45, 1.1)).unless(
        "caches are larger, and what a call takes beside its bytes is spread over more of them",
    )
}

/// Whether handfast has so many times the throughput of `who`, at the size where it is least.
fn ahead(who: &str, least: Option<(f64, usize)>, paper: f64) -> Part {
    match least {
        Some((ratio, len)) => Part::at_least(
            &format!("times the throughput of {who}, at {len} B, where that is least,"),
            Some(ratio),
            paper,
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
    use crate::claims::weigh;
    use crate::result::Verdict;
    use handfast_bench::report::{Board, Key, Reading};

    /// Times of a chain's calls, nested and as tail calls, by payload.
    fn calls(times: &[(usize, f64, f64)]) -> Vec<Row> {
        let mut board = Board::default();
        for (payload, nested_ns, tail_ns) in times {
            for (case, ns) in [("nested-2", *nested_ns), ("tail-2", *tail_ns)] {
                let key = Key {
                    case: case.to_owned(),
                    system: OWN,
                    payload_bytes: Some(*payload),
                    clients: None,
                };
                let reading = Reading {
                    p50_ns: Some(ns),
                    ops_per_s: Some(1e9 / ns),
                    ..Reading::default()
                };
                board.add(key, reading);
            }
        }
        board.rows()
    }

    #[test]
    fn a_chain_is_judged_at_the_papers_sizes() {
        let paper = [
            (0, 100.0, 74.0),
            (16, 134.2, 100.0),
            (512, 1000.0, 906.0),
            (2048, 1000.0, 950.0),
        ];
        let judged = |times: &[_]| weigh(&chain(&calls(times))).0;
        assert_eq!(judged(&paper), Verdict::Holds);
        for place in 0..paper.len() {
            let mut slow = paper;
            slow[place].2 = slow[place].1;
            assert_eq!(judged(&slow), Verdict::Partly, "{}", slow[place].0);
        }
        assert_eq!(judged(&paper[..0]), Verdict::Absent);
        assert_eq!(
            judged(&paper.map(|(len, ns, _)| (len, ns, 1.5 * ns))),
            Verdict::Fails
        );
        assert_eq!(
            judged(&paper.map(|(len, ns, _)| (len, ns, 1.0))),
            Verdict::Undecided
        );
    }

    fn holds<const N: usize>(parts: [Part; N]) -> [Option<bool>; N] {
        parts.map(|part| part.holds)
    }

    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);

    #[test]
    fn a_call_costs_a_copy_and_a_little_more_but_not_less() {
        let over = |over| constant_overhead("4 KiB", over, 0.508);
        let found = [Some(0.4), Some(9.0), Some(-0.2), None].map(over);
        assert_eq!(holds(found), [YES, NO, None, None]);
        let slopes = |own, copy| slopes(Some(own), Some(copy));
        let found = [
            slopes(1.1, 1.0),
            slopes(2.0, 1.0),
            slopes(0.1, 1.0),
            // As a busy machine had it: -9324 ns for a KiB.
            slopes(-9.1, 1.0),
            slopes(1.0, -1.0),
            slopes(-1.0, -1.0),
        ];
        assert_eq!(holds(found), [YES, NO, NO, None, None, None]);
    }

    #[test]
    fn echoes_and_tail_calls_are_held_against_what_can_be() {
        let echo = |ratio| no_slower("64 B", ratio);
        let found = [Some(0.98), Some(1.2), Some(0.1), None].map(echo);
        assert_eq!(holds(found), [YES, NO, None, None]);
        let gain = [1.4, 1.1, 0.6, 7.0, 0.02].map(|ratio| gains(Some(ratio)));
        assert_eq!(holds(gain), [YES, NO, NO, None, None]);
        let tail = |saved| saves(0, saved, 0.2525);
        let found = [0.3, 0.2, -0.1, 0.9, -52.0].map(|saved| tail(Some(saved)));
        assert_eq!(holds(found), [YES, NO, NO, None, None]);
    }

    #[test]
    fn throughput_is_held_against_the_papers_factors() {
        let over_pipe = |ratio| ahead("pipe", Some((ratio, 16)), 2.0);
        let found = [2.5, 1.5, 5000.0, f64::NAN].map(over_pipe);
        assert_eq!(holds(found), [YES, NO, None, None]);
        let peak = |large| peak(Some(large), Some(100.0));
        assert_eq!(holds([89.0, 140.0, 4.0].map(peak)), [YES, NO, NO]);
    }
}
