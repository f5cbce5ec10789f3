//! "Optimizing IPC Performance for Shared-Memory Multiprocessors" (paper 002).

mod workers;

use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind};
use crate::rows;
use handfast_bench::report::{Board, Row};
use handfast_bench::run::Run;
use handfast_bench::{Bench, ppc};
use std::io;

pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(Figure2),
        Box::new(Scaling),
        Box::new(workers::Workers),
    ]
}

fn about(name: &str, title: &str, claim: &str, method: &str) -> About {
    About {
        name: format!("002-{name}"),
        paper: Some("002".to_owned()),
        title: title.to_owned(),
        claim: claim.to_owned(),
        method: method.to_owned(),
    }
}

/// Its Figure 2: where the time of a protected procedure call goes.
struct Figure2;

/// The pieces of a bar, each piece with the system that has it and all before it.
const PIECES: [(&str, &str); 8] = [
    ("plain call", PLAIN),
    ("words in registers", "step-words"),
    ("two WRPKRU", "step-rights"),
    ("another stack", "step-stack"),
    ("claim of the stack", "step-claim"),
    ("clearing vector registers", "step-clear"),
    ("checks, dispatch, catching panics", HELD),
    ("choice of this CPU's stack", DOMAIN),
];
const HELD: &str = "handfast-domain-held";
const DOMAIN: &str = "handfast-domain";
const PLAIN: &str = "plain-call";
const COLD: &str = "null-cold";

/// The bars: case of the benchmark, system, what stands below.
const BARS: [(&str, &str, &str); 4] = [
    ("null", HELD, "warm, held"),
    ("null", DOMAIN, "warm"),
    (COLD, HELD, "cold, held"),
    (COLD, DOMAIN, "cold"),
];

impl Experiment for Figure2 {
    fn about(&self) -> About {
        about(
            "figure-2",
            "Where the time of a null protected procedure call goes",
            "A null call with eight words each way takes 34.1 us with warm caches, 3 to 4 us less where descriptor and stack are held, \
             20 us more with a flushed data cache, held or not, and another 20 to 30 us more with a dirty one and a flushed instruction \
             cache.",
            "Calls of an empty function with eight words by one thread on one CPU, in bursts; all pieces take turns in each \
             round. Each hand-written call has one piece more than the one before, and a piece is the difference of their \
             medians; the last ones are handfast's own calls into a domain, with a held stack and without. Cold: the caches \
             hold something else before each call, and reading the clock is part of the plain call.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Ppc
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        // A cold call needs its caches filled with something else first.
        run.args
            .seconds
            .get_or_insert(if run.args.quick { 0.02 } else { 0.05 });
        let systems = PIECES.map(|(_, system)| system);
        let cases = [(ppc::Case::Null, 1), (ppc::Case::Cold, 1)];
        let board = ppc::measure_parts(run, &systems, &cases)?;
        let (verdict, reasons) = judge(&board, |board| claims(&p50_of(&board.rows())));
        Ok(Findings {
            measured: "Hand-written calls piece by piece, then handfast's calls into a domain of the same process, caches warm and \
                       cold, stack held and not."
                .to_owned(),
            verdict,
            reasons,
            figures: vec![Figure {
                title: "Time of a null call, by piece".to_owned(),
                kind: Kind::Stacked,
                x: Axis::linear("call", ""),
                y: Axis::linear("time", "ns"),
                curves: rows::ranged(&board, |board| stacked(&p50_of(&board.rows()))),
            }],
            tables: Vec::new(),
            notes: vec![
                "The paper's user-level and kernel-level servers are one here: a domain lies in the caller's address space, so \
                 that nothing is flushed and nothing trapped into."
                    .to_owned(),
            ],
        })
    }
}

/// The median time of a system in a case.
fn p50_of(found: &[Row]) -> impl Fn(&str, &str) -> Option<f64> {
    |case, system| {
        let mut rows = found.iter();
        rows.find(|row| row.case == case && row.system == system)?
            .p50_ns
    }
}

/// The time each system takes beyond the one before, none less than nothing; together the time of the last one.
fn pieces(times: &[f64]) -> Vec<f64> {
    let total = times.last().copied().unwrap_or(0.0);
    let mut so_far = 0.0;
    let piece = |time: &f64| {
        // A time that noise has made longer than the time of more pieces counts as theirs.
        let reached = time.min(total).max(so_far);
        let piece = reached - so_far;
        so_far = reached;
        piece
    };
    times.iter().map(piece).collect()
}

fn stacked(p50_ns: &dyn Fn(&str, &str) -> Option<f64>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = PIECES
        .iter()
        .map(|(name, _)| Curve::new(name, []))
        .collect();
    for (index, (case, last, label)) in BARS.into_iter().enumerate() {
        let count = PIECES.iter().position(|(_, system)| *system == last);
        let parts = &PIECES[..count.map_or(0, |place| place + 1)];
        let times: Option<Vec<f64>> = parts
            .iter()
            .map(|(_, system)| p50_ns(case, system))
            .collect();
        for (curve, value) in curves
            .iter_mut()
            .zip(times.iter().flat_map(|times| pieces(times)))
        {
            let mut point = Curve::new("", [(index as f64, value)]).points;
            point[0].label = Some(label.to_owned());
            curve.points.append(&mut point);
        }
    }
    for curve in &mut curves {
        curve.absent = curve.points.is_empty().then(|| NO_KEYS.to_owned());
    }
    curves
}

const NO_KEYS: &str = "no domains here: the processor or the kernel has no memory keys";

/// The paper's times of a null call, in microseconds: warm, and what is added or saved, at least and at most.
const WARM_US: f64 = 34.1;
const HELD_SAVES_US: (f64, f64) = (3.0, 4.0);
/// A flushed data cache; that, a dirty one and a flushed instruction cache. The lines flushed on this machine are dirty, and its instructions may stay.
const COLD_ADDS_US: (f64, f64) = (20.0, 50.0);

fn claims(p50_ns: &dyn Fn(&str, &str) -> Option<f64>) -> Vec<Part> {
    // The time of a call beyond a plain one. Less than nothing is a measurement that went wrong.
    let beyond = |case, system| Some(p50_ns(case, system)? - p50_ns(case, PLAIN)?);
    let added = |system| Some(beyond(COLD, system)? - beyond("null", system)?);
    let warm = beyond("null", DOMAIN);
    let of_warm = |(least, most): (f64, f64)| (least / WARM_US / 2.0, most / WARM_US * 2.0);
    let part = |what, value: Option<f64>, base: Option<f64>, bounds| {
        let ratio = value.zip(base);
        match ratio {
            Some((_, base)) if base <= 0.0 => Part::senseless(what),
            _ => Part::within(what, ratio.map(|(value, base)| value / base), bounds),
        }
    };
    let saved = warm.zip(beyond("null", HELD));
    let saved = saved.map(|(all, held)| all - held);
    vec![
        part(
            "a held stack saves, of a warm call",
            saved,
            warm,
            of_warm(HELD_SAVES_US),
        )
        .unless("one exchange claims a stack of either kind; only the look at this CPU's number is saved"),
        part(
            "cold caches add, to a warm call",
            added(DOMAIN),
            warm,
            of_warm(COLD_ADDS_US),
        ),
        part(
            "cold caches add, with a held stack / without",
            added(HELD),
            added(DOMAIN),
            (0.5, 2.0),
        ),
    ]
}

/// Its section 3, and the report it refers to: throughput by number of callers.
struct Scaling;

const SCALED: [&str; 5] = [DOMAIN, HELD, "limit", "plain-call", "syscall"];

impl Experiment for Scaling {
    fn about(&self) -> About {
        about(
            "scaling",
            "Null protected procedure calls by one to all CPUs",
            "Calls share no data and take no locks, so their throughput grows in proportion to the callers, to the last \
             processor, also into one and the same server.",
            "One thread on each of one to all CPUs calls an empty function of the same domain with eight words; throughput is \
             that of all threads at the pace of their median bursts, so that what other programs take falls out. The ideal \
             is as many times the throughput of one thread.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Ppc
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let cases = ppc::null_cases(run);
        let board = ppc::measure_parts(run, &SCALED, &cases)?;
        let (verdict, reasons) = judge(&board, |board| {
            let curves = by_threads(board);
            vec![scales(&curves, DOMAIN), scales(&curves, HELD)]
        });
        let mut curves = by_threads(&board);
        if let Some(ideal) = ideal(&curves) {
            curves.push(ideal);
        }
        Ok(Findings {
            measured: "handfast's calls into a domain, with a stack of this CPU's pool and with a held one; the hand-written limit, \
                       a plain call and a system call beside them."
                .to_owned(),
            verdict,
            reasons,
            figures: vec![Figure {
                title: "Null calls in a second, all threads together".to_owned(),
                kind: Kind::Lines,
                x: Axis::linear("threads", ""),
                y: Axis::log("calls", "1/s"),
                curves,
            }],
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}

fn by_threads(board: &Board) -> Vec<Curve> {
    let threads = |row: &Row| row.clients.map(|count| count as f64);
    rows::by_system(board, "null", threads, |row| row.ops_per_s)
}

/// Whether a system does as many times as much on all CPUs as there are CPUs.
fn scales(curves: &[Curve], name: &str) -> Part {
    match speed_up(curves, name) {
        Some((times, count)) => Part::new(
            // More than that is no scaling, but a measurement that went wrong.
            (0.9 * count..=1.2 * count).contains(&times),
            format!(
                "{name} does {times:.2} times as much on {count:.0} CPUs (to hold: {:.1} to {:.1})",
                0.9 * count,
                1.2 * count
            ),
        ),
        None => Part::missing(name),
    }
}

fn ideal(curves: &[Curve]) -> Option<Curve> {
    let own = curves.iter().find(|curve| curve.name == DOMAIN)?;
    let one = own.points.iter().find(|point| point.x == 1.0)?.y;
    let ideal = own.points.iter().map(|point| (point.x, point.x * one));
    Some(Curve::new("ideal for handfast-domain", ideal))
}

/// How many times as much as one thread the most threads do, and how many those are.
fn speed_up(curves: &[Curve], name: &str) -> Option<(f64, f64)> {
    let points = &curves.iter().find(|curve| curve.name == name)?.points;
    let one = points.iter().find(|point| point.x == 1.0)?;
    let most = points.iter().max_by(|one, two| one.x.total_cmp(&two.x))?;
    Some((most.y / one.y, most.x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;

    /// Times of all pieces, warm; cold ones take so many times as long.
    fn p50_of_pieces(times: [f64; 8], cold: f64) -> impl Fn(&str, &str) -> Option<f64> {
        move |case, system| {
            let place = PIECES.iter().position(|(_, name)| *name == system)?;
            Some(times[place] * if case == COLD { cold } else { 1.0 })
        }
    }

    fn verdict(times: [f64; 8], cold: f64) -> Verdict {
        weigh(&claims(&p50_of_pieces(times, cold))).0
    }

    #[test]
    fn pieces_add_up_to_the_whole_and_are_never_negative() {
        assert_eq!(pieces(&[2.0, 5.0, 30.0]), [2.0, 3.0, 25.0]);
        assert_eq!(
            pieces(&[2.0, 9.0, 8.0, 30.0, 28.0]),
            [2.0, 7.0, 0.0, 19.0, 0.0]
        );
        assert!(pieces(&[]).is_empty());
        let curves = stacked(&|_, _| Some(10.0));
        // The first piece has it all; a held stack is not chosen.
        assert_eq!(curves[0].points.len(), 4);
        assert_eq!(curves[7].points.len(), 2);
        assert!(
            stacked(&|_, _| None)
                .iter()
                .all(|curve| curve.absent.is_some())
        );
    }

    #[test]
    fn a_call_is_held_against_the_papers_ratios_from_both_sides() {
        // The paper's, in tens of nanoseconds, beyond a plain call of one.
        let paper = [1.0, 40.0, 250.0, 290.0, 300.0, 302.0, 306.0, 342.0];
        assert_eq!(verdict(paper, 1.0 + 20.0 / 34.2), Verdict::Holds);
        assert_eq!(verdict(paper, 2.4), Verdict::Holds);
        // Cold caches that add too little, and too much.
        assert_eq!(verdict(paper, 1.2), Verdict::Partly);
        assert_eq!(verdict(paper, 6.0), Verdict::Partly);
        // A held stack that saves nothing, next to all, and less than nothing.
        let held = |ns| {
            let mut times = paper;
            times[6] = ns;
            claims(&p50_of_pieces(times, 2.0))[0].holds
        };
        assert_eq!(held(306.0), Some(true));
        assert_eq!(held(340.0), Some(false));
        assert_eq!(held(20.0), Some(false));
        assert_eq!(held(900.0), Some(false));
    }

    #[test]
    fn times_below_those_of_a_plain_call_prove_nothing() {
        let broken = [50.0, 4.0, 25.0, 30.0, 34.0, 36.0, 40.0, 45.0];
        assert_eq!(verdict(broken, 2.0), Verdict::Undecided);
        // Cold calls that are faster than warm ones.
        let paper = [1.0, 40.0, 250.0, 290.0, 300.0, 302.0, 306.0, 342.0];
        let parts = claims(&p50_of_pieces(paper, 0.5));
        assert_eq!(
            parts.iter().map(|part| part.holds).collect::<Vec<_>>(),
            [Some(true), Some(false), None]
        );
        assert_eq!(weigh(&claims(&|_, _| None)).0, Verdict::Absent);
    }

    #[test]
    fn the_speed_up_is_that_of_the_most_threads() {
        let curves = [Curve::new(DOMAIN, [(1.0, 10.0), (4.0, 38.0), (2.0, 20.0)])];
        assert_eq!(speed_up(&curves, DOMAIN), Some((3.8, 4.0)));
        assert_eq!(speed_up(&curves, "limit"), None);
        assert_eq!(ideal(&curves).unwrap().points[1].y, 40.0);
    }
}
