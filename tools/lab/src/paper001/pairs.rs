//! Its Figure 3: five pairs at once.

use super::{HYBRIDS, NAMES, Regime, about, pair, regimes, rounds, strategies};
use crate::claims::{Part, Rounds, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::laws::{Law, mean_cost};
use handfast_bench::plan::{Plan, Task, Timing};
use handfast_bench::run::Run;
use handfast_bench::session::{Session, watched::Watched};
use handfast_bench::wait;
use std::io;

pub(super) struct Figure3;

const PAIRS: usize = 5;
/// The pieces of a bar.
const PIECES: [&str; 3] = ["work", "user, beyond the work", "system"];

impl Experiment for Figure3 {
    fn about(&self) -> About {
        about(
            "figure-3",
            "Five pairs at once, random delays of 0 to 300 us: time and scheduler",
            "Spinning keeps the others from running; blocking does better than being notified (by a third), yielding worse \
             since the scheduler thrashes; spinning first improves all three, halves the yields, and spin-block is best.",
            "Five clients on one CPU and five servers on another send each other 24 bytes in turn, each its own partner; each \
             works for a delay before it sends, drawn alike from 0 to as long as hybrids spin. Twice: for 300 us as in the \
             paper, and for what a block costs on this machine. CPU times of all ten processes are exact, their division into \
             user and system is by the kernel's ticks; switches are the kernel's counts. All for one round trip. Where the ten \
             have nothing to wait for but their CPUs, a round trip takes its pair five times the mean delay.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Wait
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let timing = run.timing(Timing::ms(60, 300), Timing::ms(150, 1000));
        let rounds = rounds(run, 2, 4);
        let strategies = strategies("handfast");
        let base = Plan {
            pause: run.choose_pause(),
            ..pair(run)
        };
        let regimes = regimes(run, &base);
        run.expect(rounds as usize * (2 + regimes.len() * strategies.len()));
        let mut found = vec![Found::default(), Found::default()];
        for _ in 0..rounds {
            let timing_of_costs = run.timing(Timing::ms(5, 20), Timing::ms(20, 60));
            let costs = wait::costs(run, &base, timing_of_costs);
            for (regime, found) in regimes.iter().zip(&mut found) {
                let law = Law::Uniform(regime.limit_us);
                let plan = Plan {
                    task: Task::PingPong(law),
                    spin_ns: regime.limit_us * 1_000,
                    ..base.clone()
                };
                let delays_ns = law.delays_ns();
                let least_ns = costs.and_then(|costs| {
                    let both = |delay_ns| costs.both_ns(delay_ns);
                    mean_cost(&delays_ns, 0, delays_ns.len() as u64, both)
                });
                for (index, (_, system)) in strategies.iter().enumerate() {
                    let measure = |sessions| Session::measure_together(sessions, timing);
                    let all = run.attempt_together(system.as_ref(), &plan, PAIRS, measure);
                    if let Some(all) = all {
                        found.add(index as f64, &RoundTrip::of(&all), least_ns);
                    }
                }
            }
        }
        let (verdict, mut reasons) = judge(&found, |found| {
            let each = regimes.iter().zip(found);
            each.flat_map(|(regime, found)| regime.label(claims(&found.wall_us, &found.switches)))
                .collect()
        });
        let mut figures = Vec::new();
        for (regime, found) in regimes.iter().zip(&found) {
            figures.extend(found.figures(regime));
            let over = NAMES.iter().enumerate().filter_map(|(index, name)| {
                Some(format!("{name} {:.1}", found.over.at(OVER, index as f64)?))
            });
            reasons += &format!(
                "; {regime}: CPU beyond the work over an oracle's: {}",
                over.collect::<Vec<_>>().join(", ")
            );
        }
        Ok(Findings {
            measured: "handfast's seven strategies and its default, on both sides of all five pairs.".to_owned(),
            verdict,
            reasons,
            figures,
            tables: Vec::new(),
            notes: vec![
                "The optimum has the machine to itself: it spins through a delay or sleeps once. Here another pair's work fills \
                 a wait that is slept through, so that it is out of no strategy's reach."
                    .to_owned(),
            ],
        })
    }
}

const WALL: &str = "time";
const SWITCHES: &str = "switches";
const OVER: &str = "ratio";

/// By strategy, which is x.
#[derive(Default)]
struct Found {
    wall_us: Series,
    cpu_us: Series,
    switches: Series,
    over: Series,
}

impl Rounds for Found {
    fn count(&self) -> usize {
        self.wall_us.count()
    }

    fn only(&self, round: usize) -> Self {
        Self {
            wall_us: self.wall_us.only(round),
            cpu_us: self.cpu_us.only(round),
            switches: self.switches.only(round),
            over: self.over.only(round),
        }
    }
}

impl Found {
    fn figures(&self, regime: &Regime) -> [Figure; 4] {
        let figure = |title: &str, kind, y, curves| Figure {
            title: format!("{title}, {regime}"),
            kind,
            x: Axis::linear("strategy", ""),
            y,
            curves,
        };
        [
            figure(
                "Time of a round trip, as one pair sees it",
                Kind::Bars,
                Axis::linear("time", "us"),
                self.wall_us.bars(&[WALL], &NAMES),
            ),
            figure(
                "CPU time of a round trip, both sides",
                Kind::Stacked,
                Axis::linear("CPU time", "us"),
                self.cpu_us.bars(&PIECES, &NAMES),
            ),
            figure(
                "Context switches of a round trip, both sides",
                Kind::Bars,
                Axis::linear("switches", ""),
                self.switches.bars(&[SWITCHES], &NAMES),
            ),
            figure(
                "CPU time beyond the work, over that of an offline optimum",
                Kind::Bars,
                Axis::log("ratio", ""),
                self.over.bars(&[OVER], &NAMES),
            ),
        ]
    }

    fn add(&mut self, x: f64, message: &RoundTrip, least_ns: Option<f64>) {
        self.wall_us.add(WALL, x, message.wall_us);
        let pieces = [message.work_us, message.user_us, message.system_us];
        for (piece, value) in PIECES.iter().zip(pieces) {
            self.cpu_us.add(piece, x, value);
        }
        self.switches.add(SWITCHES, x, message.switches);
        if let Some(least_ns) = least_ns {
            let beyond_us = message.user_us + message.system_us;
            self.over.add(OVER, x, beyond_us * 1e3 / least_ns);
        }
    }
}

/// The time of one round trip, among all pairs' together.
#[derive(Debug, PartialEq)]
struct RoundTrip {
    wall_us: f64,
    work_us: f64,
    user_us: f64,
    system_us: f64,
    switches: f64,
}

impl RoundTrip {
    fn of(all: &[Watched]) -> Self {
        let sum = |what: &dyn Fn(&Watched) -> u64| all.iter().map(what).sum::<u64>() as f64;
        let messages = sum(&|one| one.sample.total()).max(1.0);
        let cpu = sum(&|one| one.sample.server_cpu_ns + one.sample.clients_cpu_ns) / 1e3;
        let work = sum(&|one| one.sample.busy_ns) / 1e3;
        let system_ticks = sum(&|one| one.system_ticks);
        let ticks = system_ticks + sum(&|one| one.user_ticks);
        // Too short for a single tick: all of it counts as user time.
        let system = cpu * system_ticks / ticks.max(1.0);
        Self {
            wall_us: sum(&|one| one.sample.elapsed_ns) / 1e3 / messages,
            work_us: work / messages,
            user_us: (cpu - system - work).max(0.0) / messages,
            system_us: system / messages,
            switches: sum(&|one| one.switches) / messages,
        }
    }
}

/// The claims about times and switches of a round trip.
fn claims(wall_us: &Series, switches: &Series) -> Vec<Part> {
    let index = |name: &str| NAMES.iter().position(|known| *known == name);
    let wall = |name| wall_us.at(WALL, index(name)? as f64);
    let ratio = |one, other| Some(wall(one)? / wall(other)?);
    let switched = |name| switches.at(SWITCHES, index(name)? as f64);
    let mut parts = Vec::new();
    for name in ["spin", "notify", "sched"] {
        let what = format!("time of {name} / of block");
        parts.push(Part::at_least(&what, ratio(name, "block"), 1.0));
    }
    for (name, pure) in HYBRIDS {
        let what = format!("time of {name} / of {pure}");
        parts.push(Part::at_most(&what, ratio(name, pure), 1.0));
    }
    let halved = switched("spin-sched").zip(switched("sched"));
    let halved = halved.map(|(hybrid, pure)| hybrid / pure);
    // Half, within half and a fifth more.
    let what = "switches of spin-sched / of sched";
    parts.push(Part::within(what, halved, (0.25, 0.6)));
    let others = NAMES[..7].iter().filter(|name| **name != "spin-block");
    let best = others.filter_map(|name| wall(name)).reduce(f64::min);
    let best = wall("spin-block").zip(best).map(|(own, best)| own / best);
    let what = "time of spin-block / of the best of the others";
    parts.push(Part::at_most(what, best, 1.02));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::weigh;
    use crate::result::Verdict;
    use handfast_bench::session::Sample;
    use handfast_bench::systems::child::histogram;

    fn found(times: [f64; 7]) -> (Series, Series) {
        let (mut wall_us, mut switches) = (Series::default(), Series::default());
        for (index, time) in times.into_iter().enumerate() {
            wall_us.add(WALL, index as f64, time);
            switches.add(SWITCHES, index as f64, time);
        }
        (wall_us, switches)
    }

    #[test]
    fn the_papers_order_of_strategies_is_looked_for() {
        let verdict = |(wall_us, switches)| weigh(&claims(&wall_us, &switches)).0;
        let paper = [9_000.0, 4_000.0, 2_000.0, 2_700.0, 2_000.0, 800.0, 1_000.0];
        assert_eq!(verdict(found(paper)), Verdict::Holds);
        let mut other = paper;
        other[5] = 2_500.0;
        assert_eq!(verdict(found(other)), Verdict::Partly);
    }

    #[test]
    fn cpu_time_is_divided_by_ticks_and_the_work_taken_out() {
        let sample = Sample {
            elapsed_ns: 1_000_000,
            calls: vec![10],
            latencies: histogram().unwrap(),
            server_cpu_ns: 600_000,
            clients_cpu_ns: 400_000,
            served_before: 0,
            served: 10,
            busy_ns: 500_000,
            longest_wait_ns: 0,
        };
        let watched = Watched {
            sample,
            switches: 20,
            user_ticks: 3,
            system_ticks: 1,
        };
        let expected = RoundTrip {
            wall_us: 100.0,
            work_us: 50.0,
            user_us: 25.0,
            system_us: 25.0,
            switches: 2.0,
        };
        assert_eq!(RoundTrip::of(&[watched]), expected);
    }
}
