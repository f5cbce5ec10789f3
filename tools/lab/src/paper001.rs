//! "Reducing Waiting Costs in User-Level Communication" (paper 001).
//!
//! The paper's two nodes are two CPUs here, its network is shared memory, its interrupt a futex wake-up. All seven
//! strategies are handfast's own, on both sides alike, and its default is measured beside them. A hybrid spins for what
//! a block costs on this machine (some ten microseconds; 300 on the paper's), and in Figures 2 and 3 for 300, too.

mod delays;
mod hogs;
mod optimum;
mod pairs;
mod streams;
mod table;

use crate::claims::Part;
use crate::experiment::Experiment;
use crate::result::About;
use crate::series::Series;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::run::Run;
use handfast_bench::systems::{self, Runnable};
use handfast_bench::wait;

pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(table::Figure1),
        Box::new(delays::Figure2),
        Box::new(pairs::Figure3),
        Box::new(hogs::Figure4),
        Box::new(streams::Ttcp),
        Box::new(optimum::Optimum),
    ]
}

fn about(name: &str, title: &str, claim: &str, method: &str) -> About {
    About {
        name: format!("001-{name}"),
        paper: Some("001".to_owned()),
        title: title.to_owned(),
        claim: claim.to_owned(),
        method: method.to_owned(),
    }
}

/// The paper's order, and handfast's default. Systems are called after them.
const NAMES: [&str; 8] = [
    "spin",
    "sched",
    "block",
    "notify",
    "spin-sched",
    "spin-block",
    "spin-notify",
    DEFAULT,
];
/// handfast's default.
const DEFAULT: &str = "adaptive";
/// Each hybrid with the strategy it becomes.
const HYBRIDS: [(&str, &str); 3] = [
    ("spin-sched", "sched"),
    ("spin-block", "block"),
    ("spin-notify", "notify"),
];

/// The strategies, as systems whose keys begin so.
fn strategies(prefix: &str) -> Vec<(&'static str, Box<dyn Runnable>)> {
    let find = |name: &'static str| {
        let key = if name == DEFAULT { "default" } else { name };
        Some((name, systems::find(&format!("{prefix}-{key}"))?))
    };
    NAMES.into_iter().filter_map(find).collect()
}

/// One client and one server, each on a CPU of its own.
fn pair(run: &Run) -> Plan {
    Plan {
        placement: run.best_placement(),
        ..Plan::echo()
    }
}

/// How long hybrids spin, and what delays go with that.
struct Regime {
    limit_us: u64,
}

/// The paper's spin, and the longest of its random delays.
const PAPER_US: u64 = 300;

/// The paper's, and the same scaled to what a block costs here.
fn regimes(run: &mut Run, base: &Plan) -> [Regime; 2] {
    let costs = wait::costs(run, base, Timing::ms(20, 60));
    let block_us = costs.map_or(10.0, |costs| costs.block_ns / 1e3);
    let scaled = (block_us.round() as u64).max(1);
    [PAPER_US, scaled].map(|limit_us| Regime { limit_us })
}

impl Regime {
    /// The parts of a claim, of this regime.
    fn label(&self, mut parts: Vec<Part>) -> Vec<Part> {
        for part in &mut parts {
            part.found = format!("{self}: {}", part.found);
        }
        parts
    }
}

impl core::fmt::Display for Regime {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "hybrids spin for {} us", self.limit_us)
    }
}

fn rounds(run: &Run, quick: u32, full: u32) -> u32 {
    let usual = if run.args.quick { quick } else { full };
    run.args.rounds.unwrap_or(usual)
}

/// Where all waits are alike, an oracle decides as one of the pure strategies does: what each costs over the cheaper of
/// *spin* and *block*.
fn over_cheaper(cost: &Series, xs: &[f64]) -> Series {
    let mut over = Series::default();
    for x in xs {
        let pure = ["spin", "block"].map(|name| cost.at(name, *x));
        let Some(least) = pure.into_iter().flatten().reduce(f64::min) else {
            continue;
        };
        for name in NAMES {
            if let Some(own) = cost.at(name, *x) {
                over.add(name, *x, own / least);
            }
        }
    }
    over
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_strategies_are_systems() {
        for (prefix, count) in [
            ("handfast", NAMES.len()),
            ("ttcp", NAMES.len()),
            ("files", 4),
        ] {
            assert_eq!(strategies(prefix).len(), count, "{prefix}");
        }
    }

    #[test]
    fn an_oracle_spins_or_sleeps_whichever_is_cheaper() {
        let mut cost = Series::default();
        for (name, short, long) in [
            ("spin", 1.0, 300.0),
            ("block", 20.0, 20.0),
            (DEFAULT, 1.5, 30.0),
        ] {
            cost.add(name, 0.0, short);
            cost.add(name, 300.0, long);
        }
        let over = over_cheaper(&cost, &[0.0, 300.0]);
        assert_eq!(over.at(DEFAULT, 0.0), Some(1.5));
        assert_eq!(over.at(DEFAULT, 300.0), Some(1.5));
        assert_eq!(over.at("spin", 300.0), Some(15.0));
    }
}
