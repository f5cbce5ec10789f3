//! Clients that are connected and ask nothing.

use super::about;
use super::adapters::{Candidates, is_own};
use super::rounds::{absent, labelled, without};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Curve, Figure, Kind, Table, Verdict};
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::run::Run;
use handfast_bench::stats::median;
use std::collections::HashMap;
use std::io;

pub(super) struct Idle;

const CLIENTS: usize = 16;
const ROUNDS: u32 = 3;

/// The usage of one system in a second.
#[derive(Clone, Copy, Default)]
struct Used {
    server_ms: f64,
    server_switches: f64,
    clients_ms: f64,
    clients_switches: f64,
}

/// Title, value.
type Field = (&'static str, fn(&Used) -> f64);

const FIELDS: [Field; 4] = [
    ("server's CPU, ms/s", |used| used.server_ms),
    ("server's switches/s", |used| used.server_switches),
    ("clients' CPU, ms/s", |used| used.clients_ms),
    ("clients' switches/s", |used| used.clients_switches),
];

impl Experiment for Idle {
    fn about(&self) -> About {
        about(
            "idle",
            "What being connected costs, against the peers",
            "A server of handfast's default with silent clients uses no CPU and is never woken, where peers as fast burn a core.",
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
        let mut readings: HashMap<&str, Vec<Used>> = HashMap::new();
        for _ in 0..rounds {
            for system in &there {
                let rest = run.attempt(*system, &plan, |session| session.rest(timing));
                let Some(rest) = rest else { continue };
                let per_s = |amount: u64| amount as f64 / seconds;
                readings
                    .entry(system.named().name())
                    .or_default()
                    .push(Used {
                        server_ms: per_s(rest.server.cpu_ns) / 1e6,
                        server_switches: per_s(rest.server.switches),
                        clients_ms: per_s(rest.clients.cpu_ns) / 1e6,
                        clients_switches: per_s(rest.clients.switches),
                    });
            }
        }
        let used = |name: &str| {
            let all = readings.get(name)?;
            let middle =
                |field: fn(&Used) -> f64| median(&all.iter().map(field).collect::<Vec<_>>());
            Some(FIELDS.map(|(_, field)| middle(field).unwrap_or(0.0)))
        };
        let names: Vec<&str> = candidates.all.iter().map(|one| one.name).collect();
        let absent = absent(run, &candidates.all, |name| readings.contains_key(name));
        let figure = |title: &str, y: Axis, fields: [usize; 2]| Figure {
            title: title.to_owned(),
            kind: Kind::Bars,
            x: Axis::linear("system", ""),
            y,
            curves: ["server", "clients"]
                .into_iter()
                .zip(fields)
                .map(|(side, field)| {
                    let points = names
                        .iter()
                        .enumerate()
                        .filter_map(|(x, name)| Some(labelled(x as f64, used(name)?[field], name)));
                    Curve {
                        points: points.collect(),
                        ..Curve::new(side, [])
                    }
                })
                .chain(without(&absent))
                .collect(),
        };
        let cells = |name: &&str| {
            let values = used(name).map_or_else(
                || FIELDS.map(|_| "absent".to_owned()),
                |values| values.map(|value| format!("{value:.2}")),
            );
            std::iter::once((*name).to_owned()).chain(values).collect()
        };
        let table = Table {
            title: format!("{CLIENTS} silent clients, each second"),
            columns: std::iter::once("system")
                .chain(FIELDS.map(|(title, _)| title))
                .map(str::to_owned)
                .collect(),
            rows: names.iter().map(cells).collect(),
        };
        let burns = names
            .iter()
            .filter(|name| !is_own(name))
            .filter_map(|name| {
                let server_ms = used(name)?[0];
                (server_ms > 100.0).then(|| format!("{name} {server_ms:.0} ms"))
            });
        let burns: Vec<String> = burns.collect();
        let own =
            ["handfast-default", "handfast-block"].map(|name| used(name).unwrap_or([f64::NAN; 4]));
        let is_zero = own.iter().flatten().all(|value| *value == 0.0);
        let is_nearly = own.iter().flatten().all(|value| *value < 1.0);
        let verdict = match (is_zero, is_nearly) {
            (true, _) => Verdict::Holds,
            (_, true) => Verdict::Partly,
            _ => Verdict::Fails,
        };
        let [server_ms, server_switches, clients_ms, clients_switches] = own[0];
        Ok(Findings {
            measured: format!("CPU time and switches at rest; {}.", candidates.versions),
            verdict,
            reasons: format!(
                "handfast-default: server {server_ms:.2} ms and {server_switches:.1} switches a second, all clients {clients_ms:.2} ms and \
                 {clients_switches:.1}; peers' servers that poll, each second: {}",
                if burns.is_empty() {
                    "none measured".to_owned()
                } else {
                    burns.join(", ")
                }
            ),
            figures: vec![
                figure("CPU time at rest", Axis::linear("CPU", "ms/s"), [0, 2]),
                figure(
                    "Context switches at rest",
                    Axis::linear("switches", "1/s"),
                    [1, 3],
                ),
            ],
            tables: vec![table],
            notes: Vec::new(),
        })
    }
}
