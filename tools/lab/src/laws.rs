//! The laws of waiting on few processors, by the models of the policies.

use crate::claims::{Part, weigh};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::run::Run;
use handfast_proto::neighbours::laws::{self, Waits};
use std::io;

pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    vec![Box::new(Crowds), Box::new(Chains)]
}

fn about(name: &str, title: &str, method: &str) -> About {
    About {
        name: format!("laws-{name}"),
        paper: None,
        title: title.to_owned(),
        claim: "The default strategy is never slower than 1.05 times what waits take that sleep, nor than twice what the best of \
                sleeping and yielding takes."
            .to_owned(),
        method: method.to_owned(),
    }
}

/// The limits, as in the tests of the models: of what sleeping does, and of what the best does.
const OF_ASLEEP_MIN: f64 = 0.95;
const OF_BEST_MIN: f64 = 0.5;

const ASLEEP: &str = "the same, all asleep";
const BEST: &str = "the best of the two";

fn claims(name: &str, found: &[f64; 2]) -> Vec<Part> {
    [(ASLEEP, OF_ASLEEP_MIN), (BEST, OF_BEST_MIN)]
        .into_iter()
        .zip(found)
        .map(|((beside, least), worst)| {
            let ratio = worst.is_finite().then_some(*worst);
            Part::at_least(&format!("{name} / {beside}, at worst"), ratio, least)
        })
        .collect()
}

/// Against sleeping, and against the best, each the worst so far.
struct Worst([f64; 2]);

impl Worst {
    const fn new() -> Self {
        Self([f64::INFINITY; 2])
    }

    /// How much the default does, sleepers and yielders. Returns the two ratios.
    fn add(&mut self, [ours, asleep, yields]: [f64; 3]) -> [f64; 2] {
        let ratios = [ours / asleep, ours / asleep.max(yields)];
        for (worst, ratio) in self.0.iter_mut().zip(ratios) {
            *worst = worst.min(ratio);
        }
        ratios
    }
}

const WAITS: [Waits; 3] = [Waits::Adaptive, Waits::Sleep, Waits::Yield];

fn figures(x: &str, is_log: bool, names: &[&str], found: &[Series; 2]) -> Vec<Figure> {
    let titles = [
        "Speed, of the same where all sleep",
        "Speed, of the best of sleeping and yielding",
    ];
    let figure = |(title, series): (&str, &Series)| Figure {
        title: title.to_owned(),
        kind: Kind::Lines,
        x: match is_log {
            true => Axis::log(x, ""),
            false => Axis::linear(x, ""),
        },
        y: Axis::log("ratio", ""),
        curves: series.curves(names),
    };
    titles.into_iter().zip(found).map(figure).collect()
}

/// One server and its clients.
struct Crowds;

const CLIENTS: [usize; 8] = [1, 2, 3, 4, 6, 16, 64, 299];
const CPUS: [&str; 4] = ["1 CPU", "2 CPUs", "3 CPUs", "4 CPUs"];

impl Experiment for Crowds {
    fn about(&self) -> About {
        about(
            "crowds",
            "A server and 1 to 299 clients on few processors",
            "A simulated machine of one to four processors runs the policies of the default strategy, with the rota: each client calls \
             again as soon as it has its answer. Steps take as long as on the machines that were measured; nothing runs beside them.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Scale
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let most = if run.args.quick { 16 } else { usize::MAX };
        let (mut worst, mut found) = (Worst::new(), <[Series; 2]>::default());
        for (cpus, name) in (1..).zip(CPUS) {
            for clients in CLIENTS.into_iter().filter(|clients| *clients <= most) {
                let calls = WAITS.map(|waits| laws::calls(waits, cpus, clients) as f64);
                for (series, ratio) in found.iter_mut().zip(worst.add(calls)) {
                    series.add(name, clients as f64, ratio);
                }
            }
        }
        let (verdict, reasons) = weigh(&claims("calls", &worst.0));
        Ok(Findings {
            measured: "The policies on a simulated machine: calls in 60 ms.".to_owned(),
            verdict,
            reasons,
            figures: figures("clients", true, &CPUS, &found),
            tables: Vec::new(),
            notes: Vec::new(),
        })
    }
}

/// Threads that take turns.
struct Chains;

const FORMS: [(&str, bool); 2] = [("round", false), ("to the last and back", true)];

impl Experiment for Chains {
    fn about(&self) -> About {
        about(
            "chains",
            "Chains of two to six processes on few processors",
            "A simulated machine of one to four processors, each member of the chain on one of them. The message goes round, as tail calls \
             and one-way messages do, or to the last member and back, as nested calls do; once in 5,000 turns a member is held up. A point \
             has the median of all placements, and their range.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Chain
    }

    fn run(&self, _: &mut Run) -> io::Result<Findings> {
        let (mut worst, mut found) = (FORMS.map(|_| Worst::new()), <[Series; 2]>::default());
        for chain in laws::chains() {
            for ((name, is_nested), worst) in FORMS.into_iter().zip(&mut worst) {
                let turn_ns = |waits| laws::turn_ns(waits, &chain, is_nested) as f64;
                let ratios = worst.add(WAITS.map(|waits| 1.0 / turn_ns(waits)));
                for (series, ratio) in found.iter_mut().zip(ratios) {
                    series.add(name, chain.len() as f64, ratio);
                }
            }
        }
        let [round, nested] = FORMS.map(|(name, _)| name);
        let mut parts = claims(round, &worst[0].0);
        parts.extend(claims(nested, &worst[1].0));
        let (verdict, reasons) = weigh(&parts);
        Ok(Findings {
            measured: "The policies on a simulated machine: nanoseconds for each turn.".to_owned(),
            verdict,
            reasons,
            figures: figures("members", false, &[round, nested], &found),
            tables: Vec::new(),
            notes: vec![
                "Members of nested calls know of their neighbours alone: where they have several processors they may all be asleep, which is \
                 more than twice as slow as the best."
                    .to_owned(),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Verdict;

    #[test]
    fn a_strategy_that_is_slower_than_its_laws_does_not_hold() {
        let verdict = |of: [f64; 3]| {
            let mut worst = Worst::new();
            worst.add([1.0, 1.0, 1.0]);
            worst.add(of);
            weigh(&claims("calls", &worst.0)).0
        };
        assert_eq!(verdict([0.96, 1.0, 1.8]), Verdict::Holds);
        assert_eq!(verdict([0.9, 1.0, 1.0]), Verdict::Partly);
        assert_eq!(verdict([1.0, 1.0, 2.1]), Verdict::Partly);
        assert_ne!(weigh(&claims("calls", &Worst::new().0)).0, Verdict::Holds);
    }
}
