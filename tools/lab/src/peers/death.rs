//! Processes that are killed: when the others notice, and what is left.

use super::about;
use super::adapters::{Candidate, Candidates, is_own};
use super::leftovers::Left;
use super::rounds::{absent, labelled, without};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind, Table, Verdict};
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
    left: Option<Left>,
}

impl Noticed {
    /// The median of a side, unless it never noticed.
    fn median_ns(&self, side: usize) -> Option<f64> {
        if self.never[side] {
            return None;
        }
        median(&self.times_ns[side])
    }

    fn said(&self, side: usize) -> String {
        match self.median_ns(side) {
            Some(ns) => time(ns),
            None if self.never[side] => "never".to_owned(),
            None => "absent".to_owned(),
        }
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
        let mut found: HashMap<&str, Noticed> = HashMap::new();
        for round in 0..rounds {
            for one in &candidates.all {
                let noticed = found.entry(one.name).or_default();
                ask(run, one, timing, noticed);
                if round == 0 {
                    noticed.left = left(run, one, timing);
                }
            }
        }
        found.retain(|_, noticed| {
            noticed.left.is_some() || noticed.times_ns.iter().any(|times| !times.is_empty())
        });
        let absent = absent(run, &candidates.all, |name| found.contains_key(name));
        let names: Vec<&str> = candidates.all.iter().map(|one| one.name).collect();
        let curve = |(side, title): (usize, &str)| {
            let points = names.iter().enumerate().filter_map(|(x, name)| {
                Some(labelled(
                    x as f64,
                    found.get(name)?.median_ns(side)? / 1e6,
                    name,
                ))
            });
            Curve {
                points: points.collect(),
                ..Curve::new(title, [])
            }
        };
        let figure = Figure {
            title: "Time until a killed process is noticed (no bar: never)".to_owned(),
            kind: Kind::Bars,
            x: Axis::linear("system", ""),
            y: Axis::log("time", "ms"),
            curves: SIDES
                .into_iter()
                .enumerate()
                .map(curve)
                .chain(without(&absent))
                .collect(),
        };
        let (verdict, reasons) = judge(&found);
        Ok(Findings {
            measured: format!("Times to notice, of {rounds} rounds; what is left, of one; {}.", candidates.versions),
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

fn judge(found: &HashMap<&str, Noticed>) -> (Verdict, String) {
    let Some(own) = found.get("handfast-default") else {
        return (Verdict::Absent, "handfast was not measured".to_owned());
    };
    let best = |side: usize| {
        let peers = found.iter().filter(|(name, _)| !is_own(name));
        let times = peers.filter_map(|(name, noticed)| Some((*name, noticed.median_ns(side)?)));
        times.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut is_quick = true;
    let mut said = Vec::new();
    for (side, title) in SIDES.into_iter().enumerate() {
        let ns = own.median_ns(side);
        is_quick &= ns.is_some_and(|ns| ns < QUICK_NS);
        let best = best(side);
        let best = best.map_or_else(
            || "no peer".to_owned(),
            |(name, ns)| format!("{} by {name}", time(ns)),
        );
        said.push(format!(
            "{title}: {}, best of the peers {best}",
            own.said(side)
        ));
    }
    let left = own.left.unwrap_or_default();
    let is_clean = left.memory_files == 0 && left.objects == 0;
    said.push(format!(
        "left: {} memory files, {} other files, {} objects",
        left.memory_files, left.files, left.objects
    ));
    let verdict = match (is_quick, is_clean) {
        (true, true) => Verdict::Holds,
        (false, false) => Verdict::Fails,
        _ => Verdict::Partly,
    };
    (verdict, said.join("; "))
}

/// The claimed limit.
const QUICK_NS: f64 = 10e6;

fn table(names: &[&str], found: &HashMap<&str, Noticed>) -> Table {
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
                let left = noticed.left.unwrap_or_default();
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
