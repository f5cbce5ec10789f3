//! Clients that are connected and ask nothing.

use super::about;
use super::adapters::{Candidates, Mode};
use super::rounds::{absent, labelled, without};
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind, Table};
use crate::rows::ranged;
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::run::Run;
use handfast_bench::session::Rest;
use std::io;

pub(super) struct Idle;

const CLIENTS: usize = 16;
const ROUNDS: u32 = 3;

/// The counts of each second, in their order in the series.
const FIELDS: [&str; 4] = [
    "server's CPU, ms/s",
    "server's switches/s",
    "clients' CPU, ms/s",
    "clients' switches/s",
];
/// The server's CPU time.
const SERVER: usize = 0;

impl Experiment for Idle {
    fn about(&self) -> About {
        about(
            "idle",
            "What being connected costs, against the peers",
            "A server of handfast's default, or one that blocks, with silent clients uses no CPU and is never woken, nor are its clients, where \
             peers that poll burn a core.",
            "16 clients have called for a moment and are connected; for two seconds nobody asks anything. CPU time and context switches of all \
             threads, per second.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Idle
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(100, 200), Timing::ms(200, 2_000));
        let rounds = run.rounds.min(if run.args.quick { 1 } else { ROUNDS });
        let candidates = Candidates::echoing();
        let there: Vec<_> = candidates.there().collect();
        run.expect(there.len() * rounds as usize);
        let seconds = timing.window.as_secs_f64();
        let plan = Plan {
            clients: CLIENTS,
            ..Plan::echo()
        };
        // By system, then field.
        let mut readings = Series::default();
        for _ in 0..rounds {
            for system in &there {
                let rest = run.attempt(*system, &plan, |session| session.rest(timing));
                let Some(Rest { server, clients }) = rest else {
                    continue;
                };
                let per_s = |amount: u64| amount as f64 / seconds;
                let used = [server, clients].map(|used| (used.cpu_ns, used.switches));
                let used = used.map(|(cpu_ns, switches)| [per_s(cpu_ns) / 1e6, per_s(switches)]);
                for (field, value) in used.into_iter().flatten().enumerate() {
                    readings.add(system.named().name(), field as f64, value);
                }
            }
        }
        let names: Vec<&str> = candidates.all.iter().map(|one| one.name).collect();
        let absent = absent(run, &candidates.all, |name| {
            readings.at(name, SERVER as f64).is_some()
        });
        let figure = |title: &str, y: Axis, fields: [usize; 2]| Figure {
            title: title.to_owned(),
            kind: Kind::Bars,
            x: Axis::linear("system", ""),
            y,
            curves: ranged(&readings, |readings| bars(readings, &names, fields))
                .into_iter()
                .chain(without(&absent))
                .collect(),
        };
        let busy: Vec<&str> = candidates.peers(Some(Mode::Busy)).collect();
        let (verdict, reasons) = judge(&readings, |readings| claims(readings, &busy));
        Ok(Findings {
            measured: format!("CPU time and switches at rest; {}.", candidates.versions),
            verdict,
            reasons,
            figures: vec![
                figure("CPU time at rest", Axis::linear("CPU", "ms/s"), [0, 2]),
                figure(
                    "Context switches at rest",
                    Axis::linear("switches", "1/s"),
                    [1, 3],
                ),
            ],
            tables: vec![table(&readings, &names)],
            notes: Vec::new(),
        })
    }
}

/// A field of the servers, and one of the clients.
fn bars(readings: &Series, names: &[&str], fields: [usize; 2]) -> Vec<Curve> {
    let curve = |(side, field): (&str, usize)| {
        let points = names.iter().enumerate().filter_map(|(x, name)| {
            let value = readings.at(name, field as f64)?;
            Some(labelled(x as f64, value, name))
        });
        Curve {
            points: points.collect(),
            ..Curve::new(side, [])
        }
    };
    let sides = ["server", "clients"].into_iter().zip(fields);
    sides.map(curve).collect()
}

fn table(readings: &Series, names: &[&str]) -> Table {
    let cells = |name: &&str| {
        let show = |value: f64| format!("{value:.2}");
        let cell = |field| {
            let value = readings.at(name, field as f64);
            value.map_or_else(|| "absent".to_owned(), show)
        };
        let cells = (0..FIELDS.len()).map(cell);
        std::iter::once((*name).to_owned()).chain(cells).collect()
    };
    let columns = std::iter::once("system").chain(FIELDS);
    Table {
        title: format!("{CLIENTS} silent clients, each second"),
        columns: columns.map(str::to_owned).collect(),
        rows: names.iter().map(cells).collect(),
    }
}

/// Of a thousand: a core is burnt by a server that has most of one.
const CORE_MS: f64 = 500.0;

fn claims(readings: &Series, busy: &[&str]) -> Vec<Part> {
    let mut parts = Vec::new();
    for name in ["handfast-default", "handfast-block"] {
        for (field, title) in FIELDS.into_iter().enumerate() {
            let what = format!("{name}, {title}");
            parts.push(Part::at_most(&what, readings.at(name, field as f64), 0.0));
        }
    }
    let burnt = busy.iter().filter_map(|name| {
        let ms = readings.at(name, SERVER as f64)?;
        Some((*name, ms))
    });
    let least = burnt.min_by(|one, two| one.1.total_cmp(&two.1));
    let what = match least {
        Some((name, _)) => {
            format!("CPU of the peer's server that polls and has least of it ({name}), ms/s")
        }
        None => "CPU of peers' servers that poll".to_owned(),
    };
    parts.push(Part::at_least(&what, least.map(|(_, ms)| ms), CORE_MS));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Verdict;

    /// Three rounds of handfast's and of a peer that polls.
    fn verdict(own_ms: [f64; 3], peer_ms: f64) -> Verdict {
        let mut readings = Series::default();
        for ms in own_ms {
            for field in 0..FIELDS.len() {
                readings.add("handfast-default", field as f64, 0.0);
                readings.add(
                    "handfast-block",
                    field as f64,
                    if field == SERVER { ms } else { 0.0 },
                );
            }
            readings.add("iceoryx2-busy", SERVER as f64, peer_ms);
        }
        judge(&readings, |readings| {
            claims(readings, &["iceoryx2-busy", "absent"])
        })
        .0
    }

    #[test]
    fn silent_clients_are_to_cost_nothing_in_every_round() {
        assert_eq!(verdict([0.0; 3], 990.0), Verdict::Holds);
        assert_eq!(verdict([0.2; 3], 990.0), Verdict::Partly);
        assert_eq!(verdict([0.0, 0.2, 0.0], 990.0), Verdict::Undecided);
        assert_eq!(verdict([0.0; 3], 1.0), Verdict::Partly);
        let nothing = Series::default();
        assert_eq!(judge(&nothing, |none| claims(none, &[])).0, Verdict::Absent);
    }
}
