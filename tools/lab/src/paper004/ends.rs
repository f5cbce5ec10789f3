//! How soon a port hears that it has no senders (its sections 2.5.3 and 2.5.4).

use super::about;
use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::plan::{Plan, Timing};
use handfast_bench::run::Run;
use handfast_bench::systems;
use std::io;

pub(super) struct NoSenders;

const CURVE: &str = "handfast-default";
/// The place of its bar.
const TIME: f64 = 0.0;

impl Experiment for NoSenders {
    fn about(&self) -> About {
        about(
            "no-senders",
            "A holder dies: how soon the port hears that it has no senders",
            "Two passes of the token in which the counts agree detect that a port has no senders; the token passes all nodes three \
             times in a period, so that the port hears in the next period (the paper gives no figure).",
            "A client that holds the only right to a server's port is killed while it is silent. The time is from before the kill to \
             the notice at the server, which sleeps, and includes the end of a process in the kernel. There is no token: the kernel \
             tells the server's control thread.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Rights
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let rounds = if run.args.quick { 3 } else { 15 };
        run.expect(rounds);
        let timing = Timing::ms(5, 1000);
        let plan = Plan {
            watches: true,
            ..Plan::echo()
        };
        let mut late_us = Series::default();
        if let Some(system) = systems::find(CURVE) {
            for _ in 0..rounds {
                let killed = run.attempt(system.as_ref(), &plan, |session| {
                    session.kill_client(timing)
                });
                if let Some(ns) = killed.flatten() {
                    late_us.add(CURVE, TIME, ns as f64 / 1e3);
                }
            }
        }
        let (verdict, reasons) = judge(&late_us, claims);
        Ok(Findings {
            measured: format!(
                "handfast with its default strategy, {rounds} clients that are killed."
            ),
            verdict,
            reasons,
            figures: vec![Figure {
                title: "From the kill to the notice".to_owned(),
                kind: Kind::Bars,
                x: Axis::linear("holder", ""),
                y: Axis::linear("time", "us"),
                curves: late_us.bars(&[CURVE], &["killed"]),
            }],
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}

/// A period of a token that is not to cost much.
const PERIOD_US: f64 = 10_000.0;

fn claims(late_us: &Series) -> Vec<Part> {
    let late_us = late_us.at(CURVE, TIME);
    // No process hears of another's end within a microsecond.
    let limits = (1.0, PERIOD_US);
    vec![Part::within("microseconds to the notice", late_us, limits)]
}
