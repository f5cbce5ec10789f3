//! Processes that are killed: when the others notice, and what is left.

use super::about;
use super::adapters::{Candidate, Candidates, is_own};
use super::leftovers::Left;
use super::rounds::{absent, labelled, without};
use crate::claims::{Part, Rounds, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind, Table};
use crate::rows::ranged;
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::report::time;
use handfast_bench::run::Run;
use handfast_bench::session::Session;
use handfast_bench::stats::median;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

pub(super) struct Death;

const ROUNDS: u32 = 5;
/// After so long nobody is waited for any more.
const LIMIT: Duration = Duration::from_secs(5);
const QUICK_LIMIT: Duration = Duration::from_secs(1);

/// The side that notices.
const SIDES: [&str; 2] = [
    "client in a call, its server killed",
    "server, a client of its killed",
];

/// The findings about one system.
#[derive(Default)]
struct Noticed {
    /// Nanoseconds, of each side in each round.
    times_ns: [Vec<f64>; 2],
    /// Sides that let the limit pass once; they are not asked again.
    never: [bool; 2],
    /// Of each round.
    left: Vec<Left>,
}

impl Noticed {
    /// The median of a side, unless it never noticed.
    fn median_ns(&self, side: usize) -> Option<f64> {
        if self.never[side] {
            return None;
        }
        median(&self.times_ns[side])
    }

    /// The leftovers of the round that left most.
    fn most_left(&self) -> Option<Left> {
        let all = self.left.iter().copied();
        all.max_by_key(|left| (left.memory_files + left.objects, left.files))
    }

    fn said(&self, side: usize) -> String {
        match self.median_ns(side) {
            Some(ns) => time(ns),
            None if self.never[side] => "never".to_owned(),
            None => "absent".to_owned(),
        }
    }
}

/// By system.
type Found = HashMap<&'static str, Noticed>;

impl Rounds for Noticed {
    fn count(&self) -> usize {
        let [one, two] = self.times_ns.each_ref().map(Vec::len);
        one.max(two).max(self.left.len())
    }

    fn only(&self, round: usize) -> Self {
        let only = |times: &Vec<f64>| times.get(round).copied().into_iter().collect();
        Self {
            times_ns: self.times_ns.each_ref().map(only),
            never: self.never,
            left: self.left.get(round).copied().into_iter().collect(),
        }
    }
}

impl Rounds for Found {
    fn count(&self) -> usize {
        self.values().map(Rounds::count).max().unwrap_or_default()
    }

    fn only(&self, round: usize) -> Self {
        let noticed = self.iter();
        noticed
            .map(|(name, noticed)| (*name, noticed.only(round)))
            .collect()
    }
}

impl Experiment for Death {
    fn about(&self) -> About {
        about(
            "death",
            "A killed process: when it is noticed, and what it leaves",
            "Both sides of handfast notice a killed process within 10 ms, and neither memory nor objects of System V are left behind.",
            "A client waits in a call when its server is killed (SIGKILL, after a stop that makes sure that it does not answer); a server serves a client that \
             is killed while it is silent; and all are killed amid their calls and what is there afterwards is counted, then removed. Five seconds \
             without notice are never. Peers that have a way to be told are told by it.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Idle
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let limit = if run.args.quick { QUICK_LIMIT } else { LIMIT };
        let timing = Timing {
            window: limit,
            ..Timing::ms(20, 0)
        };
        let rounds = run.rounds.min(if run.args.quick { 1 } else { ROUNDS });
        let candidates = Candidates::echoing();
        run.expect(candidates.all.len() * rounds as usize);
        let mut found = Found::new();
        for _ in 0..rounds {
            for one in &candidates.all {
                let noticed = found.entry(one.name).or_default();
                ask(run, one, timing, noticed);
                noticed.left.extend(left(run, one, timing));
            }
        }
        found.retain(|_, noticed| {
            !noticed.left.is_empty() || noticed.times_ns.iter().any(|times| !times.is_empty())
        });
        let absent = absent(run, &candidates.all, |name| found.contains_key(name));
        let names: Vec<&str> = candidates.all.iter().map(|one| one.name).collect();
        let curve = |found: &Found, side: usize| {
            let points = names.iter().enumerate().filter_map(|(x, name)| {
                let ns = found.get(name)?.median_ns(side)?;
                Some(labelled(x as f64, ns / 1e6, name))
            });
            Curve {
                points: points.collect(),
                ..Curve::new(SIDES[side], [])
            }
        };
        let figure = Figure {
            title: "Time until a killed process is noticed (no bar: never)".to_owned(),
            kind: Kind::Bars,
            x: Axis::linear("system", ""),
            y: Axis::log("time", "ms"),
            curves: ranged(&found, |found| vec![curve(found, 0), curve(found, 1)])
                .into_iter()
                .chain(without(&absent))
                .collect(),
        };
        let (verdict, reasons) = judge(&found, claims);
        Ok(Findings {
            measured: format!("Times to notice, and what is left, of {rounds} rounds; {}.", candidates.versions),
            verdict,
            reasons,
            figures: vec![figure],
            tables: vec![table(&names, &found)],
            notes: vec![
                "ZeroMQ's and nng's calls wait for the server to come back: they are for that. iceoryx2 tells nobody: its adapter looks for dead nodes \
                 every 100 ms, and what it finds then is removed by it. handfast's server is told that no sender is left; its name's socket stays \
                 until the name is bound again."
                    .to_owned(),
                format!("Never: not within {} s.", limit.as_secs()),
            ],
        })
    }
}

/// Ends a session by a death: nanoseconds until that was noticed.
type Kill = fn(Session, Timing) -> io::Result<Option<u64>>;

/// Kills a server and a client of one system, and adds when that was noticed.
fn ask(run: &mut Run, one: &Candidate, timing: Timing, noticed: &mut Noticed) {
    let Ok(system) = &one.system else { return };
    let kills: [Kill; 2] = [Session::kill_server, Session::kill_client];
    for (side, kill) in kills.into_iter().enumerate() {
        if noticed.never[side] {
            continue;
        }
        let plan = Plan {
            watches: side == 1,
            ..Plan::echo()
        };
        match run.attempt(system.as_ref(), &plan, |session| kill(session, timing)) {
            Some(Some(ns)) => noticed.times_ns[side].push(ns as f64),
            Some(None) => noticed.never[side] = true,
            None => {}
        }
    }
}

/// Kills everybody, and says what there is afterwards that was not before.
fn left(run: &mut Run, one: &Candidate, timing: Timing) -> Option<Left> {
    let Ok(system) = &one.system else { return None };
    let own = run.dir().to_owned();
    // The name comes with the session: before it there is nothing of that name.
    let before = Left::of("no such name", &own);
    let look = |session: Session| session.kill_all(timing, |name| Left::of(name, &own));
    let left = run.attempt(system.as_ref(), &Plan::echo(), look)?;
    Some(left.since(before))
}

fn claims(found: &Found) -> Vec<Part> {
    let own = found.get(OWN);
    let mut parts = Vec::new();
    for (side, title) in SIDES.into_iter().enumerate() {
        let peers = found.iter().filter(|(name, _)| !is_own(name));
        let times = peers.filter_map(|(name, noticed)| Some((*name, noticed.median_ns(side)?)));
        let best = times.min_by(|a, b| a.1.total_cmp(&b.1));
        let best = best.map_or_else(
            || "no peer".to_owned(),
            |(name, ns)| format!("{} by {name}", time(ns)),
        );
        let part = own.and_then(|own| {
            let ns = own.median_ns(side);
            let is_measured = ns.is_some() || own.never[side];
            let (said, limit) = (own.said(side), time(QUICK_NS));
            is_measured.then(|| {
                Part::new(
                    ns.is_some_and(|ns| ns < QUICK_NS),
                    format!("{title}: {said} (to hold: under {limit}), best of the peers {best}"),
                )
            })
        });
        parts.push(part.unwrap_or_else(|| Part::missing(title)));
    }
    let left = own.and_then(Noticed::most_left).map(|left| {
        Part::new(
            left.memory_files == 0 && left.objects == 0,
            format!(
                "left in the worst round: {} memory files, {} other files, {} objects (to hold: no memory files and no objects)",
                left.memory_files, left.files, left.objects
            ),
        )
    });
    parts.push(left.unwrap_or_else(|| Part::missing("what is left")));
    parts
}

const OWN: &str = "handfast-default";

/// The claimed limit.
const QUICK_NS: f64 = 10e6;

fn table(names: &[&str], found: &Found) -> Table {
    let columns = [
        "system",
        SIDES[0],
        SIDES[1],
        "left in memory",
        "other files left",
        "System V objects left",
    ];
    let row = |name: &&str| {
        let mut cells = vec![(*name).to_owned()];
        match found.get(name) {
            None => cells.extend(["absent"; 5].map(str::to_owned)),
            Some(noticed) => {
                cells.extend([noticed.said(0), noticed.said(1)]);
                let left = noticed.most_left().unwrap_or_default();
                cells.push(match left.memory_files {
                    0 => "nothing".to_owned(),
                    files => format!("{files} files, {} KiB", left.memory_bytes / 1024),
                });
                cells.extend([left.files, left.objects].map(|count| count.to_string()));
            }
        }
        cells
    };
    Table {
        title: "Noticed after, and left behind".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: names.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Verdict;

    fn verdict(times_ns: [[f64; 4]; 2], never: [bool; 2], memory_files: [usize; 4]) -> Verdict {
        let left = memory_files.map(|memory_files| Left {
            memory_files,
            ..Left::default()
        });
        let own = Noticed {
            times_ns: times_ns.map(Vec::from),
            never,
            left: left.into(),
        };
        judge(&Found::from([(OWN, own)]), claims).0
    }

    #[test]
    fn deaths_are_to_be_noticed_soon_and_leave_nothing_in_most_rounds() {
        let soon = [1e6, 2e6, 3e6, 2e6];
        let late = [50e6, 60e6, 20e6, 30e6];
        let both = [1e6, 2e6, 30e6, 20e6];
        let nobody = [false; 2];
        assert_eq!(verdict([soon, soon], nobody, [0; 4]), Verdict::Holds);
        assert_eq!(verdict([soon, late], nobody, [0; 4]), Verdict::Partly);
        assert_eq!(verdict([soon, both], nobody, [0; 4]), Verdict::Undecided);
        assert_eq!(
            verdict([soon, soon], [true, false], [0; 4]),
            Verdict::Partly
        );
        assert_eq!(verdict([soon, soon], nobody, [1; 4]), Verdict::Partly);
        assert_eq!(
            verdict([soon, soon], nobody, [0, 0, 1, 0]),
            Verdict::Undecided
        );
        assert_eq!(verdict([late, late], nobody, [1; 4]), Verdict::Fails);
        assert_eq!(judge(&Found::new(), claims).0, Verdict::Absent);
    }
}
